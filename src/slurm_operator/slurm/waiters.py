"""Who waits for which wish: the nodes of a batch, each with the wish that counts and all who share it.

A caller that waits may give up. A wish for which no caller still waits is not sent: the state of the cluster
that it was made for may have changed since, and its outcome would reach no caller.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.slurm.wishes import Held, Hold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_operator.slurm.wishes import Outcome, Wish


class Wished:
    """One wish of a caller, and the outcome that it waits for; a caller that gives up cancels it."""

    __slots__ = ("outcome", "wish")

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome) -> None:
        """Give the caller its outcome, unless it has one or has given up."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Slot:
    """The wish that counts for one field of one node, and all who share it."""

    __slots__ = ("_sharers", "wish")

    def __init__(self, wish: Wish, sharers: Sequence[Wished]) -> None:
        self.wish = wish
        self._sharers = sharers

    @property
    def open(self) -> bool:
        """Return whether a caller still waits: without an outcome so far, and not given up."""
        return any(not one.outcome.done() for one in self._sharers)

    def settle(self, outcome: Outcome) -> None:
        """Answer all who share the wish, unless they have their answer."""
        for one in self._sharers:
            one.settle(outcome)


class Batch(dict[str, Slot]):
    """Nodes, each with the wish that counts for it."""

    def open(self, names: Iterable[str]) -> list[str]:
        """Return those of some nodes for which a caller still waits."""
        return [name for name in names if self[name].open]

    def settle(self, names: Iterable[str], outcome: Outcome) -> None:
        """Give this outcome to the callers that still wait for these nodes."""
        for name in names:
            self[name].settle(outcome)


def counting(collected: Mapping[str, Sequence[Wished]]) -> Batch:
    """Return for each node the last wish for which a caller waits; settle all other wishes as superseded."""
    batch = Batch()
    for name, wishes in collected.items():
        waiting = [one for one in wishes if not one.outcome.done()]
        if not waiting:
            continue
        last = waiting[-1].wish
        batch[name] = Slot(last, [one for one in waiting if one.wish == last])
        for one in waiting:
            if one.wish != last:
                instead = type(last).__name__.lower()
                one.settle(Held(Hold.SUPERSEDED, f"not sent: a later wish took its place, for {instead}"))
    return batch
