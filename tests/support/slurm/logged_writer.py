"""A writer with its watch on some slurmrestd, and a log of the requests it makes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_operator.slurm.errors import Unsupported
from slurm_operator.slurm.model.answers import Known
from slurm_operator.slurm.rest.client import RestClient, RestTiming
from slurm_operator.slurm.watch.watcher import SlurmWatch, WatchTiming
from slurm_operator.slurm.writer.node_writer import NodeWriter, WriterTiming

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.slurm.model.records import Node
    from slurm_operator.slurm.model.view import ClusterView
    from slurm_operator.slurm.rest.client import CallInfo

PREFIX = "slurm-operator: "
DEADLINE = 60.0
ANY = "any-token"
# No poll comes by itself during a test: all are asked for by the writer, or because it has woken the watch.
# Nor is any view new enough, unless the test says so: how long ago it was taken is for the machine to decide.
LOOKING = WriterTiming(fresh=0.0)
TRUSTING = WriterTiming(fresh=3600.0)
RARELY = WatchTiming(busy=3600.0, rest=3600.0, doubt=3600.0, gap=0.001, stale_after=7200.0)


@dataclass
class Writing:
    """What a test of the writer works with."""

    rest: RestClient
    watch: SlurmWatch
    writer: NodeWriter
    requests: list[CallInfo] = field(default_factory=list)

    def operations(self) -> list[str]:
        """Return what has been asked about nodes, and forget it."""
        sent = [info.operation for info in self.requests if info.outcome != Unsupported.kind]
        self.requests.clear()
        return [operation for operation in sent if operation in {"nodes", "update_nodes"}]

    async def shown(self, condition: Callable[[ClusterView], bool]) -> ClusterView:
        """Wait until a view meets a condition."""
        met = asyncio.Event()
        stop = self.watch.subscribe(lambda update: met.set() if condition(update.view) else None)
        try:
            if not condition(self.watch.view):
                async with asyncio.timeout(DEADLINE):
                    await met.wait()
        finally:
            stop()
        return self.watch.view

    async def now(self) -> ClusterView:
        """Return a view taken now."""
        now = asyncio.get_running_loop().time()
        return await self.watch.refreshed(now, now + DEADLINE)

    async def node(self, name: str) -> Node:
        """Return a node as it is now."""
        answer = (await self.now()).node(name, asyncio.get_running_loop().time())
        assert isinstance(answer, Known), answer
        return answer.node


@asynccontextmanager
async def writing(
    url: str,
    token: str = ANY,
    rest_timing: RestTiming | None = None,
    timing: WriterTiming = LOOKING,
) -> AsyncIterator[Writing]:
    """Connect to a slurmrestd and wait for the first view."""
    requests: list[CallInfo] = []
    async with RestClient(url, lambda: token, timing=rest_timing, observe=requests.append) as rest:
        watch = SlurmWatch(rest, timing=RARELY)
        writer = NodeWriter(rest, watch, reason_prefix=PREFIX, timing=timing)
        task = asyncio.create_task(watch.run())
        try:
            connected = Writing(rest, watch, writer, requests)
            await connected.shown(lambda view: bool(view.nodes))
            connected.operations()
            yield connected
        finally:
            await writer.close()
            task.cancel()
            await asyncio.wait({task})
