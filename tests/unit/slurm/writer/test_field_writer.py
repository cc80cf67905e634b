"""Wishes that are given up: what nobody waits for any more is not sent, on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from slurm_operator.slurm.decide.node_changes import Done, Drain
from slurm_operator.slurm.rest.exchange import WithdrawnError
from slurm_operator.slurm.writer.node_writer import NodeWriter, WriterTiming
from tests.support.slurm.memory_cluster import Cluster, watching
from tests.support.slurm.views import node
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.slurm.decide.node_changes import NodeChange
    from slurm_operator.slurm.model.records import NodeUpdate
    from tests.support.slurm.memory_cluster import Watched

# Of different updates two are sent at a time, each of them takes a second to reach Slurm.
TRAVEL = 1.0
NAMES = [f"n{number}" for number in range(6)]


class Writable(Cluster):
    """A cluster that also takes updates, after the time that they travel."""

    def __init__(self) -> None:
        super().__init__(*(node(name) for name in NAMES))
        self.begun: list[str] = []
        self.sent: list[str] = []

    async def update_nodes(self, hostlist: str, update: NodeUpdate, wanted: Callable[[], bool]) -> None:
        assert update.reason
        self.begun.append(hostlist)
        await asyncio.sleep(TRAVEL)
        if not wanted():
            raise WithdrawnError
        self.sent.append(hostlist)


class Writing:
    """A writer with its cluster."""

    def __init__(self, cluster: Writable, writer: NodeWriter, watched: Watched) -> None:
        self.cluster = cluster
        self.writer = writer
        self._watched = watched

    async def begin(self, changes: dict[str, NodeChange], begun: int) -> asyncio.Task[object]:
        """Wish for something, and wait until so many requests in all are on their way."""
        waiting: asyncio.Task[object] = asyncio.create_task(self.writer.write(changes))
        await self._watched.until(lambda: len(self.cluster.begun) >= begun)
        return waiting


@asynccontextmanager
async def writing() -> AsyncIterator[Writing]:
    """Run a writer whose decisions do not grow old."""
    cluster = Writable()
    async with watching(cluster) as watched:
        await watched.settle()
        timing = WriterTiming(valid=1e6)
        writer = NodeWriter(cluster, watched.watch, reason_prefix="slurm-operator: ", timing=timing)
        yield Writing(cluster, writer, watched)
        await writer.close()


async def give_up(waiting: asyncio.Task[object]) -> None:
    waiting.cancel()
    await asyncio.wait({waiting})


@virtual_time
async def test_what_was_given_up_while_its_batch_is_under_way_is_not_sent() -> None:
    """Of six different updates two are on their way when everybody gives up: none of them arrives."""
    async with writing() as slurm:
        waiting = await slurm.begin({name: Drain(name) for name in NAMES}, begun=2)
        await give_up(waiting)
        await asyncio.sleep(60.0)
        assert slurm.cluster.sent == []
        assert slurm.cluster.begun == ["n0", "n1"]


@virtual_time
async def test_a_wish_that_somebody_shares_is_sent() -> None:
    """Who gives up does not take the wish of another along, also in the middle of a batch."""
    async with writing() as slurm:
        both: dict[str, NodeChange] = {name: Drain(name) for name in NAMES}
        other = asyncio.create_task(slurm.writer.write({"n5": Drain("n5")}))
        waiting = await slurm.begin(both, begun=2)
        await give_up(waiting)
        assert await other == {"n5": Done()}
        assert slurm.cluster.sent == ["n5"]


@virtual_time
async def test_a_request_is_sent_without_those_who_gave_up() -> None:
    """One request for many nodes begins again for those that are still wanted."""
    async with writing() as slurm:
        some: dict[str, NodeChange] = {name: Drain("why") for name in NAMES}
        others = asyncio.create_task(slurm.writer.write({name: some[name] for name in NAMES[:3]}))
        waiting = await slurm.begin({name: some[name] for name in NAMES[3:]}, begun=1)
        await give_up(waiting)
        assert set((await others).values()) == {Done()}
        assert slurm.cluster.begun == ["n[0-5]", "n[0-2]"]
        assert slurm.cluster.sent == ["n[0-2]"]


@virtual_time
async def test_nothing_is_asked_for_what_was_given_up() -> None:
    """A batch for which nobody waits does not look at the nodes either."""
    async with writing() as slurm:
        cluster = slurm.cluster
        waiting = asyncio.create_task(slurm.writer.undrain("n0"))
        await asyncio.sleep(0)
        await give_up(waiting)
        asked = cluster.count("nodes")
        await asyncio.sleep(1.0)
        assert cluster.count("nodes") == asked
        assert cluster.begun == []
