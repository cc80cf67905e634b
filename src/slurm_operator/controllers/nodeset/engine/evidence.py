"""How new Slurm's word must be for something that cannot be taken back, and how long it counts. Pure.

Where Slurm's word is the ground for a deletion, its list of nodes must have been asked for within the last
second, and counts for two seconds more. A list of thousands of nodes takes longer than that to arrive; so one
that was asked for on purpose counts as well, for two seconds from its arrival. No longer: thousands of
deletions take longer than somebody needs to give a node work again. Where a list is not enough, Slurm must
have been asked for the node by its name as well, together with a list, and that lasts for two seconds, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.nodeset.decisions import Proof

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.actions import Removal
    from slurm_operator.controllers.nodeset.engine.memory import Memory
    from slurm_operator.controllers.nodeset.observation import Observation

# As old as the writer of drains lets a decision be. A list of a thousand nodes takes a third of that to
# arrive, so another one would hardly be younger when it is used.
FRESH_SECONDS: Final = 1.0
LASTS_SECONDS: Final = 2.0
# From a write to the list that shows it: a few hundred milliseconds, or seconds with thousands of nodes.
SETTLES_SECONDS: Final = 5.0
# The part of the time that is left of which one can be sure.
_SURELY: Final = 0.8


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Slurm was asked again on purpose: from when to when, and after what moment for its list of nodes."""

    began: float
    listed: float
    ended: float


@dataclass(frozen=True, slots=True)
class Weighed:
    """Removals for which the evidence is new enough, until when it is, and those that need more."""

    ready: tuple[Removal, ...] = ()
    open: tuple[Removal, ...] = ()
    until: float = 0.0


def counts_until(seen: Observation, confirmed: Confirmed | None) -> float | None:
    """Return until when the list of nodes at hand is ground enough; None if it is not."""
    taken = None if seen.view is None else seen.view.taken
    if taken is None:
        return None
    if taken > seen.now - FRESH_SECONDS:
        return taken + FRESH_SECONDS + LASTS_SECONDS
    if confirmed is None or taken <= confirmed.listed:
        return None
    until = confirmed.ended + LASTS_SECONDS
    return until if seen.now < until else None


def weigh(seen: Observation, confirmed: Confirmed | None, removals: Iterable[Removal]) -> Weighed:
    """Tell for which deletions and releases the evidence is new enough."""
    until = counts_until(seen, confirmed)
    if until is None:
        return Weighed(open=tuple(removals))
    everything = tuple(removals)
    lacking = {
        one.uid
        for one in everything
        if one.proof is Proof.NAME and not _asked(seen, confirmed, one.slurm_name)
    }
    ready = tuple(one for one in everything if one.uid not in lacking)
    if confirmed is not None and any(one.proof is Proof.NAME for one in ready):
        # Newer lists come by themselves, and another answer about a single node does not.
        until = min(until, confirmed.ended + LASTS_SECONDS)
    return Weighed(ready, tuple(one for one in everything if one.uid in lacking), until)


def in_time(done: int, took: float, left: int, remaining: float) -> bool:
    """Tell whether what is left will be done while the evidence counts, if it goes on as so far."""
    return done > 0 and left * took <= _SURELY * remaining * done


def settling(seen: Observation, memory: Memory, name: str) -> bool:
    """Tell whether the state of a node was changed so lately that the next list will tell of it.

    What its pod would say until then is about to be false, and most idle pods are gone by then.
    """
    taken = -math.inf if seen.view is None or seen.view.taken is None else seen.view.taken
    since = memory.changing.get(name)
    if since is None:
        since = memory.written.get(name, -math.inf)
        if taken > since:
            return False
    return seen.now - since < SETTLES_SECONDS


def _asked(seen: Observation, confirmed: Confirmed | None, name: str) -> bool:
    """Tell whether Slurm was asked for a node by its name when it was last asked on purpose, just now."""
    asked = seen.asked.get(name)
    return (
        confirmed is not None
        and asked is not None
        and asked.at >= confirmed.began
        and seen.now < confirmed.ended + LASTS_SECONDS
    )
