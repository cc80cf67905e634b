"""Changes to nodes: many changes, few requests.

A caller requests a change of a node and waits for the outcome. Changes are collected for a few milliseconds.
Of several for the same field of the same node the last one counts for which a caller still waits; a different
change of that field ends as superseded. Then those that need an update (`node_changes.decide`) are grouped by
equal
updates and sent as bulk requests with folded hostlists: a thousand drains with one reason are one request.

Each field has a writer of its own, so that a drain does not queue behind a thousand comments, which differ
and cannot be sent together. In it one batch follows the other; what is requested meanwhile is the next
batch. That keeps the order of what is written.

A change of state could overwrite a reason that an administrator has just set, and Slurm has no conditional
write that would prevent it. So the nodes are listed once more after the batch was closed, and the decision is
made on that list. Only drains do without it if the view is no older than a quarter of a second: they take
nothing away, and a thousand of them are then one request. No change of state is sent more than a second after
it was decided. What remains is a race of about that second. If a node was written after the view was listed,
the nodes are listed again in any case, since the view does not show that write yet. A change that all its
callers have given up is not sent, whether its batch is under way or not.

An update that Slurm has accepted is *done* without reading it back; the watch is woken and its next list
shows it. After a refusal it is unknown which nodes were changed: some are, when one name does not exist. Then
the nodes are listed again, and each one is as requested, gone, or still to be changed. The latter are tried
again in halves, so that one bad node does not block the others, within a fixed number of requests.

Every wait ends: requests and polls have their deadlines, a batch has one too, and `close` answers all others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.slurm.decide.node_changes import (
    UNDRAINED,
    Comment,
    Drain,
    Features,
    NodeField,
    SetState,
    Topology,
    Undrain,
    field_of,
)
from slurm_operator.slurm.writer.field_writer import FieldWriter, WriterTiming, closed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.slurm.decide.node_changes import NodeChange, Outcome
    from slurm_operator.slurm.writer.field_writer import NodeApi, ViewSource

__all__ = ["NodeWriter", "WriterTiming"]


class NodeWriter:
    """Writes to the nodes of one cluster, for all callers."""

    def __init__(
        self, rest: NodeApi, watch: ViewSource, *, reason_prefix: str, timing: WriterTiming | None = None
    ) -> None:
        # Of the four requests that a client has under way at once, lists included: one is left for a poll.
        urgent, other = asyncio.Semaphore(2), asyncio.Semaphore(1)
        self._field_writers = {
            field: FieldWriter(
                field,
                rest,
                watch,
                urgent if field is NodeField.STATE else other,
                reason_prefix,
                timing or WriterTiming(),
            )
            for field in NodeField
        }
        self._closed = False

    async def write(self, changes: Mapping[str, NodeChange]) -> dict[str, Outcome]:
        """Request a change of each node and return the outcomes; never raises for what Slurm does."""
        if self._closed:
            return dict.fromkeys(changes, closed())
        requested = {
            name: self._field_writers[field_of(change)].add(name, change) for name, change in changes.items()
        }
        try:
            if requested:
                await asyncio.wait([one.outcome for one in requested.values()])
        finally:
            for one in requested.values():
                one.outcome.cancel()
        return {name: one.outcome.result() for name, one in requested.items()}

    async def drain(self, name: str, reason: str) -> Outcome:
        """Let a node take no new work."""
        return await self._write_one(name, Drain(reason))

    async def undrain(self, name: str, reason: str = UNDRAINED) -> Outcome:
        """Take back a drain of ours."""
        return await self._write_one(name, Undrain(reason))

    async def set_state(self, name: str, state: str, reason: str = "") -> Outcome:
        """Put a node into a state."""
        return await self._write_one(name, SetState(state, reason))

    async def set_comment(self, name: str, text: str) -> Outcome:
        """Give a node a comment."""
        return await self._write_one(name, Comment(text))

    async def set_topology(self, name: str, text: str) -> Outcome:
        """Give a node its place in the topology."""
        return await self._write_one(name, Topology(text))

    async def set_features(self, name: str, features: Iterable[str], *, prefix: str = "") -> Outcome:
        """Give a node these features in place of all that start with the prefix."""
        return await self._write_one(name, Features(tuple(features), prefix))

    async def close(self) -> None:
        """End what is under way; all open changes end as `Failed`, with `Unavailable`."""
        self._closed = True
        await asyncio.gather(*(writer.close() for writer in self._field_writers.values()))

    async def _write_one(self, name: str, change: NodeChange) -> Outcome:
        return (await self.write({name: change}))[name]
