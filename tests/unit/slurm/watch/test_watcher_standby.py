"""Clusters with several slurmctlds: whether another one responds is seen within seconds, on virtual time."""

from __future__ import annotations

import asyncio

from slurm_operator.slurm.model.records import Ping
from tests.support.slurm.memory_cluster import Cluster, now, watching
from tests.support.slurm.views import node
from tests.support.virtual_time import virtual_time


def pair(*silent: int) -> tuple[Ping, ...]:
    return tuple(
        Ping(hostname=f"slurm-controller-{number}", responding=number not in silent, primary=not number)
        for number in range(2)
    )


class Reluctant(Cluster):
    """A cluster whose answer to a ping takes a moment to be given up."""

    under_way = 0

    async def ping(self) -> tuple[Ping, ...]:
        self.under_way += 1
        try:
            return await super().ping()
        finally:
            await asyncio.sleep(0.01)
            self.under_way -= 1


@virtual_time
async def test_standbys_are_pinged_every_two_seconds() -> None:
    """Where another slurmctld may take over, that is asked for often and told at once; else it is not."""
    alone, cluster = Cluster(node("n1")), Cluster(node("n1"))
    cluster.controllers = pair()
    async with watching(alone), watching(cluster) as watched:
        await watched.settle()
        start = now()
        cluster.controllers = pair(0)
        await watched.until(lambda: bool(watched.updates), 2.1)
        assert watched.updates[0].view.controllers == pair(0)
        await asyncio.sleep(20.0)
        assert len(cluster.times("ping", start)) >= 10
        assert len(alone.times("ping", start)) <= 3
        assert len(cluster.times("nodes", start)) <= 3
        assert len(watched.updates) == 1


@virtual_time
async def test_a_takeover_is_seen_while_a_list_hangs() -> None:
    """Pings go on while the list of nodes waits for a slurmctld that has died."""
    cluster = Cluster(node("n1"))
    cluster.controllers = pair()
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.seconds["nodes"] = 50.0
        watched.watch.wake()
        await asyncio.sleep(1.0)
        cluster.controllers = pair(0)
        await watched.until(lambda: bool(watched.updates), 2.1)
        assert watched.updates[0].changes == ()
        assert watched.watch.view.controllers == pair(0)


@virtual_time
async def test_an_answer_that_was_overtaken_counts_for_nothing() -> None:
    """A ping that took long does not undo what one that was sent later has said."""
    cluster = Cluster(node("n1"))
    cluster.controllers = pair()
    async with watching(cluster) as watched:
        await watched.settle()
        pings, cluster.seconds["ping"] = cluster.count("ping"), 18.0
        await watched.until(lambda: cluster.count("ping") > pings, 2.1)
        sent = now()
        cluster.controllers, cluster.seconds["ping"] = pair(0), 0.0
        await watched.until(lambda: watched.watch.view.controllers == pair(0), 17.0)
        cluster.seconds["ping"] = 600.0  # nobody else may repair it
        await asyncio.sleep(sent + 19.0 - now())
        assert watched.watch.view.controllers == pair(0)


@virtual_time
async def test_a_watch_that_ends_leaves_no_request_behind() -> None:
    """When the watch has ended, so has the ping that was under way, however long it takes to give up."""
    cluster = Reluctant(node("n1"))
    cluster.controllers = pair()
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.seconds["ping"] = 18.0
        await watched.until(lambda: cluster.under_way > 0, 2.1)
    assert cluster.under_way == 0
