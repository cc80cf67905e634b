"""Times that are worth to be known and not to be judged by: they depend on the machine."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Measured:
    """What was measured in a run."""

    def __init__(self) -> None:
        self._found: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, what: str, seconds: float) -> None:
        """Take down a time."""
        self._found[what].append(seconds)

    def lines(self) -> Iterator[str]:
        """Return one line for each thing that was measured."""
        for what, times in sorted(self._found.items()):
            yield f"{what}: n={len(times)} median {median(times):.2f} s, longest {max(times):.2f} s"


MEASURED = Measured()
