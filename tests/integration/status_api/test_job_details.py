"""The details of jobs: asked of Slurm when a client asks, and kept for a while."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import wellknown
from slurm_operator.slurm.rest.connections import ConnectionKey, Connections, ConnectionTarget
from slurm_operator.slurm.web_token import FixedToken
from slurm_operator.status_api.job_rows import KEPT_SECONDS, JobDetailCache, JobFilter
from tests.support.slurm.hostile_replies import job
from tests.support.slurm.hostile_server import HostileSlurmrestd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.status_rows import ClusterJobs

KEY = ConnectionKey("Controller", "slurm", "main")


class Asked:
    """A cache and the Slurm behind it."""

    def __init__(self, server: HostileSlurmrestd, cache: JobDetailCache) -> None:
        self.server = server
        self._cache = cache

    async def jobs(self) -> ClusterJobs:
        """Ask for all jobs."""
        return await self._cache.rows(KEY, JobFilter(), {}, 1000)

    async def jobs_before_and_after_one_more(self) -> tuple[int, int]:
        """Return how many jobs are shown before and after another one is submitted."""
        before = await self.jobs()
        self.server.jobs[8] = job(8, "", "PENDING")
        return before.total, (await self.jobs()).total


@asynccontextmanager
async def asking(kept: float) -> AsyncIterator[Asked]:
    """Run a Slurm with one job, and ask it by a cache that keeps replies for so many seconds."""
    async with HostileSlurmrestd() as server:
        server.jobs[7] = job(7, "")
        token = FixedToken("t")
        connections = Connections(reason_prefix=wellknown.REASON_PREFIX)
        connections.set(KEY, ConnectionTarget(server.url, token.fingerprint, token))
        cache = JobDetailCache(connections, kept=kept)
        try:
            yield Asked(server, cache)
        finally:
            await cache.close()
            await connections.close()


@pytest.mark.parametrize(("kept", "seen"), [(3600.0, (1, 1)), (0.0, (1, 2))])
async def test_a_reply_is_kept_for_a_while(kept: float, seen: tuple[int, int]) -> None:
    """Within that time Slurm is not asked again; after it, it is."""
    async with asking(kept) as asked:
        assert await asked.jobs_before_and_after_one_more() == seen


def test_the_time_is_that_of_the_documentation() -> None:
    """docs/reference/status-api.md says how old details may be."""
    assert KEPT_SECONDS == 5.0
