"""Fifty Slurm clusters, of which three are hostile; the times are for `bench.fairness`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from slurm_operator.slurm.decide.poll_schedule import WatchTiming
from slurm_operator.slurm.model import reply_limits
from slurm_operator.slurm.model.view import Known, Unknown
from slurm_operator.slurm.rest import thread_turns
from slurm_operator.slurm.rest.connections import ConnectionKey, Connections, ConnectionTarget
from slurm_operator.slurm.rest.reply_memory import SHARED
from slurm_operator.slurm.web_token import FixedToken
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd
from tests.support.slurm.oversized_replies import BOMBS

if TYPE_CHECKING:
    from slurm_operator.slurm.rest.connections import Connection

CLUSTERS = 50
ROUNDS = 5
DEADLINE = 120.0
# Short pauses, so that the hostile ones are asked all the time.
QUICK = WatchTiming(failure_base=0.05, failure_cap=0.1, gap=0.01)
SLOTS = 4


def connect(connections: Connections, number: int, server: HostileSlurmrestd) -> Connection:
    source = FixedToken("a-token")
    key = ConnectionKey("Cluster", "tenants", f"cluster-{number}")
    return connections.set(key, ConnectionTarget(server.url, source.fingerprint, source), QUICK)


async def refresh(connection: Connection, times: int) -> None:
    """Wait for so many views that are newer than the question for them, as a deletion does."""
    loop = asyncio.get_running_loop()
    for _ in range(times):
        await connection.watch.refreshed(loop.time(), loop.time() + DEADLINE)


async def test_hostile_clusters_occupy_nothing_of_the_others() -> None:
    """One drips, one answers 250 MB, one resets: all others are listed, and none of them waits for these."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(HostileSlurmrestd()) for _ in range(CLUSTERS)]
        for server in servers:
            server.add_nodes("n[1-20]")
        dripping, huge, resetting, *good = servers
        dripping.fail(Fault.DRIP, on="nodes")
        huge.raw["nodes"] = BOMBS["250 MB without a length"].pieces
        resetting.fault = Fault.RESET
        connections = Connections(reason_prefix="slurm-operator: ")
        stack.push_async_callback(connections.close)
        hostile = [connect(connections, number, server) for number, server in enumerate(servers[:3])]
        # The large one is under way before the others begin.
        await huge.asked("GET nodes")
        others = [connect(connections, number, server) for number, server in enumerate(good, 3)]
        refreshed = asyncio.gather(*(refresh(connection, ROUNDS) for connection in others))
        most_waiting = most_taken = 0
        while not refreshed.done():
            most_waiting = max(most_waiting, thread_turns._THREAD._work_queue.qsize())
            most_taken = max(most_taken, SHARED.used)
            await asyncio.sleep(0.005)
        await refreshed
        now = asyncio.get_running_loop().time()
        assert all(isinstance(connection.view.node("n1", now), Known) for connection in others)
        assert all(isinstance(connection.view.node("n1", now), Unknown) for connection in hostile)
        assert most_waiting <= len(servers)
        assert 0 <= most_taken <= reply_limits.MAX_READ_TOGETHER
        assert all(server.open_connections <= 2 * SLOTS for server in servers)
        async with asyncio.timeout(DEADLINE):
            while hostile[1].view.failure is None:  # noqa: ASYNC110 - a view has no event
                await asyncio.sleep(0.01)
        assert hostile[1].view.failure.kind == "ReplyTooLarge"
    assert SHARED.used == 0
