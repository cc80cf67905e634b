"""A connection that fails, and a sign that Slurm is back, on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from slurm_operator.slurm import errors
from slurm_operator.slurm.decide.circuit_breaker import BreakerState
from slurm_operator.slurm.rest.client import RestClient
from slurm_operator.slurm.rest.connections import Connection, ConnectionKey, ConnectionTarget
from slurm_operator.slurm.web_token import FixedToken
from tests.support.slurm.memory_cluster import Cluster, Watched, now, watching
from tests.support.slurm.views import node
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DOWN = errors.RestUnreachable("connection refused")
HOUR = 3600.0


def open_circuit(connection: Connection) -> None:
    """Let the breaker have its longest pause before it."""
    breaker = connection.rest.breaker
    while (breaker.wait(now()) or 0.0) < breaker.timing.cap:
        permit = breaker.admit(now() + (breaker.wait(now()) or 0.0))
        assert permit is not None
        breaker.failed(permit, now())


@asynccontextmanager
async def failing(cluster: Cluster, seconds: float = HOUR) -> AsyncIterator[tuple[Watched, Connection]]:
    """Hand out a connection that worked once and has been failing for so long."""
    token = FixedToken("a-token")
    target = ConnectionTarget("http://rest:6820", token.fingerprint, token)
    async with watching(cluster) as watched, RestClient(target.url, token) as rest:
        key = ConnectionKey("Controller", "lab", "slurm")
        connection = Connection(key, target, rest, watched.watch, "slurm-operator: ")
        await watched.settle()
        cluster.failures["nodes"] = DOWN
        await asyncio.sleep(seconds)
        yield watched, connection
        await connection.writer.close()


@virtual_time
async def test_a_sign_is_followed_by_a_request() -> None:
    """However long the pause was to be, the next request goes out within a second, and one is let through."""
    cluster = Cluster(node("n1"))
    async with failing(cluster) as (watched, connection):
        cluster.failures.clear()
        open_circuit(connection)
        begun = now()
        assert connection.retry()
        assert connection.rest.breaker.state(now()) is BreakerState.HALF_OPEN
        await watched.until(lambda: connection.view.failure is None, limit=1.1)
        assert len(cluster.times("nodes", begun)) == 1


@virtual_time
async def test_what_answers_after_a_sign_may_be_another_slurmctld() -> None:
    """After a short outage, too, everything is asked for again, and not only when its time has come."""
    cluster = Cluster(node("n1"))
    async with failing(cluster, seconds=15.0) as (watched, connection):
        cluster.failures.clear()
        begun = now()
        assert connection.retry()
        await watched.until(lambda: connection.view.failure is None, limit=1.1)
        assert {what for what in ("diag", "jobs", "reservations") if cluster.times(what, begun)} == {
            "diag",
            "jobs",
            "reservations",
        }


@virtual_time
async def test_a_sign_that_came_too_early_makes_the_pauses_short() -> None:
    """If the first request fails as well, the next ones follow in the pauses of a failure that is young."""
    cluster = Cluster(node("n1"))
    async with failing(cluster) as (_, connection):
        begun = now()
        assert connection.retry()
        await asyncio.sleep(HOUR)
        pauses = [later - earlier for earlier, later in pairwise(cluster.times("nodes", begun))]
        assert max(pauses[:3]) <= 8.1
        assert max(pauses) > 15.0


@virtual_time
async def test_signs_without_end_are_no_storm() -> None:
    """Of signs that come every second few are followed; the others end no pause."""
    cluster = Cluster(node("n1"))
    async with failing(cluster) as (_, connection):
        begun, followed = now(), []
        for _ in range(100):
            followed.append(connection.retry())
            await asyncio.sleep(1.0)
        assert sum(followed) == 20
        assert len(cluster.times("nodes", begun)) <= 4 * 20
        open_circuit(connection)
        assert connection.retry()
        open_circuit(connection)
        assert not connection.retry()
        assert connection.rest.breaker.state(now()) is BreakerState.OPEN


@virtual_time
async def test_what_works_needs_no_sign() -> None:
    """A connection that works goes on at its own pace."""
    cluster = Cluster(node("n1"))
    async with failing(cluster) as (watched, connection):
        cluster.failures.clear()
        await watched.until(lambda: connection.view.failure is None)
        begun = now()
        assert not connection.retry()
        await asyncio.sleep(1.0)
        assert cluster.times("nodes", begun + 0.1) == []
