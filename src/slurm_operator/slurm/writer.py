"""Changes to nodes: many wishes, few requests.

A caller wishes for a change to a node and waits for the outcome. Wishes are collected for a few milliseconds.
Of several for the same field of the same node the last one counts for which a caller still waits; a different
wish for that field ends as superseded. Then those that need an update (`wishes.decide`) are grouped by equal
updates and sent as bulk requests with folded hostlists: a thousand drains with one reason are one request.

Each field has a lane of its own, so that a drain does not queue behind a thousand comments, which differ and
cannot be sent together. In a lane one batch follows the other; what is wished for meanwhile is the next
batch. That keeps the order of what is written.

A change of state could overwrite a reason that an administrator has just set, and Slurm has no conditional
write that would prevent it. So the nodes are listed once more after the batch was closed, and the decision is
made on that list. Only drains do without it if the view is no older than a quarter of a second: they take
nothing away, and a thousand of them are then one request. No change of state is sent more than a second after
it was decided. What remains is a race of about that second. If a node was written after the view was taken,
the nodes are listed again in any case, since the view does not show that write yet. A wish that all its
callers have given up is not sent, whether its batch is under way or not.

An update that Slurm has accepted is *done* without reading it back; the watch is woken and its next list
shows it. After a refusal it is unknown which nodes were changed: some are, when one name does not exist. Then
the nodes are listed again, and each one is as wished, or gone, or still to be changed. The latter are tried
again in halves, so that one bad node does not block the others, within a fixed number of requests.

Every wait ends: requests and polls have their deadlines, a batch has one too, and `close` answers all others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.slurm.lane import Lane, WriterTiming, closed
from slurm_operator.slurm.wishes import (
    UNDRAINED,
    Comment,
    Drain,
    Features,
    Field,
    State,
    Topology,
    Undrain,
    field_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.slurm.lane import Nodes, Watch
    from slurm_operator.slurm.wishes import Outcome, Wish

__all__ = ["NodeWriter", "WriterTiming"]


class NodeWriter:
    """Writes to the nodes of one cluster, for all callers."""

    def __init__(
        self, rest: Nodes, watch: Watch, *, reason_prefix: str, timing: WriterTiming | None = None
    ) -> None:
        # Of the four requests that a client has under way at once, looks included: one is left for a poll.
        urgent, other = asyncio.Semaphore(2), asyncio.Semaphore(1)
        self._lanes = {
            field: Lane(
                field,
                rest,
                watch,
                urgent if field is Field.STATE else other,
                reason_prefix,
                timing or WriterTiming(),
            )
            for field in Field
        }
        self._closed = False

    async def write(self, wishes: Mapping[str, Wish]) -> dict[str, Outcome]:
        """Wish for something of each node and return the outcomes; never raises for what Slurm does."""
        if self._closed:
            return dict.fromkeys(wishes, closed())
        wished = {name: self._lanes[field_of(wish)].add(name, wish) for name, wish in wishes.items()}
        try:
            if wished:
                await asyncio.wait([one.outcome for one in wished.values()])
        finally:
            for one in wished.values():
                one.outcome.cancel()
        return {name: one.outcome.result() for name, one in wished.items()}

    async def drain(self, name: str, reason: str) -> Outcome:
        """Let a node take no new work."""
        return await self._write_one(name, Drain(reason))

    async def undrain(self, name: str, reason: str = UNDRAINED) -> Outcome:
        """Take back a drain of ours."""
        return await self._write_one(name, Undrain(reason))

    async def set_state(self, name: str, state: str, reason: str = "") -> Outcome:
        """Put a node into a state."""
        return await self._write_one(name, State(state, reason))

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
        """End what is under way; all open wishes end as `Failed`, with `Unavailable`."""
        self._closed = True
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))

    async def _write_one(self, name: str, wish: Wish) -> Outcome:
        return (await self.write({name: wish}))[name]
