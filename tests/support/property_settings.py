"""How many random cases the property tests try, and which.

The normal run is derandomised: the same code gives the same cases, so a red CI is red for everybody, and a
green one stays green. New cases are for `make explore`, which takes fresh seeds and tries `FACTOR` times as
many; what it finds becomes a test with a name.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

NORMAL: Final = "normal"
EXPLORE: Final = "explore"
FACTOR: Final = int(os.environ.get("EXPLORE_FACTOR", "20"))
_CASES: Final = 100
# Of a decoder: a sample in the normal run, and more than 100,000 for all decoders together when exploring.
_FUZZED: Final = 60
_FUZZED_EXPLORED: Final = 650


def examples(count: int) -> int:
    """Return how many cases a test tries that tries so many in the normal run."""
    return count * FACTOR if _profile() == EXPLORE else count


def fuzzed() -> int:
    """Return how many inputs a decoder is fuzzed with."""
    return _FUZZED_EXPLORED * FACTOR if _profile() == EXPLORE else _FUZZED


def load_profile() -> None:
    """Let all property tests follow the profile that HYPOTHESIS_PROFILE names."""
    # How long one case takes depends on what else the machine does, and says nothing about the code.
    calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(NORMAL, calm, derandomize=True, print_blob=True)
    settings.register_profile(EXPLORE, calm, max_examples=examples(_CASES), print_blob=True)
    settings.load_profile(_profile())


def _profile() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", NORMAL)
