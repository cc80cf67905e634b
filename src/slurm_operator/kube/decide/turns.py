"""Which group (a namespace) is next where many want the same thing, a worker or a slot for a request.

Groups that want it take turns. A group that has had a turn is in the round from then on, behind all that had
theirs before. When it comes to the front it has another turn if it wants one; else it is forgotten. A group
that is not in the round, because it wanted nothing for as long as a round takes, goes before the round: a
change in a quiet namespace does not wait until a hundred busy ones have had their turns. So does a group in
the round for which that was asked, but once in a round only: who asks for it always has twice the turns.

Of four turns at least one is for the round, so groups that go before it, however many, do not stop the
others: where `n` groups wait, each has a turn within `4 n` turns. What is remembered of groups that want
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

    __slots__ = ("_before", "_in_a_row", "_jumped", "_round", "_wanted")

    def __init__(self) -> None:
        self._before: OrderedDict[G, None] = OrderedDict()
        """Those that want a turn and go before the round."""
        self._round: OrderedDict[G, bool] = OrderedDict()
        """Those that had one lately, the longest ago first; whether they want another."""
        self._jumped: set[G] = set()
        """Those that left their place in the round for a turn before it."""
        self._wanted = 0
        self._in_a_row = 0

    def add(self, group: G, *, before: bool = False) -> None:
        """Let a group have one more turn, unless it waits for one already; before the round if it may."""
        wanted = self._round.get(group)
        if wanted is None:
            self._before[group] = None
        elif before and group not in self._jumped:
            self._wanted -= wanted
            del self._round[group]
            self._jumped.add(group)
            self._before[group] = None
        else:
            self._wanted += not wanted
            self._round[group] = True

    def drop(self, group: G) -> None:
        """Let a group have no turn for now."""
        if group in self._before:
            del self._before[group]
        elif self._round.get(group):
            self._wanted -= 1
        else:
            return
        self._round[group] = False

    def pop(self) -> G | None:
        """Return the group whose turn it is, which then waits for none; None if there is no such group."""
        if not self._before or self._in_a_row == _IN_A_ROW:
            self._in_a_row = 0
            while self._round:
                group, wanted = self._round.popitem(last=False)
                self._jumped.discard(group)
                if wanted:
                    self._wanted -= 1
                    self._round[group] = False
                    return group
        if not self._before:
            return None
        self._in_a_row += 1
        group, _ = self._before.popitem(last=False)
        self._round[group] = False
        return group

    def __len__(self) -> int:
        """Return how many groups wait for a turn."""
        return len(self._before) + self._wanted

    @property
    def remembered(self) -> int:
        """Return how many groups are remembered, those that want no turn included."""
        return len(self._before) + len(self._round)
