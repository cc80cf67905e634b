"""Job details from a Slurm on loopback: which jobs are found, and what that takes of the event loop."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.slurm.rest.connections import ConnectionKey, Connections, ConnectionTarget
from slurm_operator.slurm.web_token import FixedToken
from slurm_operator.status_api.job_rows import JobDetailCache, JobFilter
from tests.support.slurm.hostile_replies import job
from tests.support.slurm.hostile_server import HostileSlurmrestd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = ConnectionKey("Controller", "slurm", "main")


@asynccontextmanager
async def asking(jobs: int) -> AsyncIterator[JobDetailCache]:
    """Run a Slurm with jobs on one node, and wait until the operator has listed them."""
    async with HostileSlurmrestd() as server:
        server.add_nodes("n1", "MIXED")
        for number in range(1, jobs + 1):
            server.jobs[number] = job(number, "n1")
        token = FixedToken("t")
        connections = Connections(reason_prefix=wellknown.REASON_PREFIX)
        connection = connections.set(KEY, ConnectionTarget(server.url, token.fingerprint, token))
        cache = JobDetailCache(connections, kept=3600)
        try:
            async with asyncio.timeout(30):
                while "n1" not in connection.view.jobs.by_node:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.05)
            yield cache
        finally:
            await cache.close()
            await connections.close()


async def test_all_jobs_on_a_node_are_found() -> None:
    """The row of a worker names only some of many jobs; those on its node are all of them."""
    async with asking(jobs=30) as cache:
        found = await cache.rows(KEY, JobFilter(node="n1"), {"n1": "pod-1"}, 1000)
        assert (found.matched, found.total) == (30, 30)
        assert {row.workers for row in found.jobs} == {("pod-1",)}
        assert (await cache.rows(KEY, JobFilter(node="n2"), {}, 1000)).matched == 0


async def test_many_clients_do_not_hold_up_the_event_loop() -> None:
    """However many ask at the same time for however many jobs, each turn of the event loop is short."""
    async with asking(jobs=8000) as cache:
        await cache.rows(KEY, JobFilter(), {}, 1000)
        asked = asyncio.gather(*(cache.rows(KEY, JobFilter(), {"n1": "pod-1"}, 1000) for _ in range(100)))
        longest = 0.0
        while not asked.done():
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)
        assert {one.matched for one in await asked} == {8000}
        # All of them take more than a second, and the server in this process takes some turns as well.
        assert longest < 0.4
