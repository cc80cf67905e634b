"""Which group (a namespace) is next where many want the same thing, a worker or a slot for a request.

Groups that want it take turns. A group that has had a turn is in the round from then on, behind all that had
theirs before. When it comes to the front it has another turn if it wants one; else it is forgotten. A group
that is not in the round, because it wanted nothing for as long as a round takes, goes before the round: a
change in a quiet namespace does not wait until a hundred busy ones have had their turns.

Of four turns at least one is for the round, so groups that come for the first time, however many, do not stop
the others: where `n` groups wait, each has a turn within `4 n` turns. What is remembered of groups that want
nothing is gone with the end of a round, so it is bounded, too. Everything costs O(1), spread over the turns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

G = TypeVar("G", bound=Hashable)

# So many turns in a row before the round has one.
_IN_A_ROW: Final = 3


class Turns(Generic[G]):
    """The groups that want a turn, and those that had one lately."""

    __slots__ = ("_in_a_row", "_rested", "_round", "_wanted")

    def __init__(self) -> None:
        self._rested: OrderedDict[G, None] = OrderedDict()
        """Those that want a turn and had none lately."""
        self._round: OrderedDict[G, bool] = OrderedDict()
        """Those that had one lately, the longest ago first; whether they want another."""
        self._wanted = 0
        self._in_a_row = 0

    def add(self, group: G) -> None:
        """Let a group have one more turn, unless it waits for one already."""
        if group in self._round:
            self._wanted += not self._round[group]
            self._round[group] = True
        else:
            self._rested[group] = None

    def drop(self, group: G) -> None:
        """Let a group have no turn for now."""
        self._rested.pop(group, None)
        if self._round.get(group):
            self._round[group] = False
            self._wanted -= 1

    def pop(self) -> G | None:
        """Return the group whose turn it is, which then waits for none; None if there is no such group."""
        if not self._rested or self._in_a_row == _IN_A_ROW:
            self._in_a_row = 0
            while self._round:
                group, wants = self._round.popitem(last=False)
                if wants:
                    self._wanted -= 1
                    self._round[group] = False
                    return group
        if not self._rested:
            return None
        self._in_a_row += 1
        group, _ = self._rested.popitem(last=False)
        self._round[group] = False
        return group

    def __len__(self) -> int:
        """Return how many groups wait for a turn."""
        return len(self._rested) + self._wanted

    @property
    def remembered(self) -> int:
        """Return how many groups are remembered, those that want no turn included."""
        return len(self._rested) + len(self._round)
