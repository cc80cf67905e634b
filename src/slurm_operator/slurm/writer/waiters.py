"""Who waits for which change: the nodes of a batch, each with the change that counts and all who share it.

A caller that waits may give up. A change for which no caller still waits is not sent: the state of the
cluster that it was made for may have changed since, and its outcome would reach no caller.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.slurm.decide.node_changes import NotSent, NotSentReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_operator.slurm.decide.node_changes import NodeChange, Outcome


class RequestedChange:
    """One change that a caller requested, and its outcome; a caller that gives up cancels it."""

    __slots__ = ("change", "outcome")

    def __init__(self, change: NodeChange) -> None:
        self.change = change
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome) -> None:
        """Give the caller its outcome, unless it has one or has given up."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class PendingChange:
    """The change that counts for one field of one node, and all who share it."""

    __slots__ = ("_sharers", "change")

    def __init__(self, change: NodeChange, sharers: Sequence[RequestedChange]) -> None:
        self.change = change
        self._sharers = sharers

    @property
    def open(self) -> bool:
        """Return whether a caller still waits: without an outcome so far, and not given up."""
        return any(not one.outcome.done() for one in self._sharers)

    def settle(self, outcome: Outcome) -> None:
        """Answer all who share the change, unless they have their answer."""
        for one in self._sharers:
            one.settle(outcome)


class Batch(dict[str, PendingChange]):
    """Nodes, each with the change that counts for it."""

    def open(self, names: Iterable[str]) -> list[str]:
        """Return those of some nodes for which a caller still waits."""
        return [name for name in names if self[name].open]

    def settle(self, names: Iterable[str], outcome: Outcome) -> None:
        """Give this outcome to the callers that still wait for these nodes."""
        for name in names:
            self[name].settle(outcome)


def counting(collected: Mapping[str, Sequence[RequestedChange]]) -> Batch:
    """Return for each node the last change for which a caller waits; settle all others as superseded."""
    batch = Batch()
    for name, changes in collected.items():
        waiting = [one for one in changes if not one.outcome.done()]
        if not waiting:
            continue
        last = waiting[-1].change
        batch[name] = PendingChange(last, [one for one in waiting if one.change == last])
        for one in waiting:
            if one.change != last:
                instead = type(last).__name__.lower()
                one.settle(
                    NotSent(NotSentReason.SUPERSEDED, f"not sent: superseded by a later change: {instead}")
                )
    return batch
