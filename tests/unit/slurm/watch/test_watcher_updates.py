"""What a watch tells its receivers, and when, on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model.records import Ping, Reservation
from slurm_operator.slurm.model.view import Absent, AnswerReason, NodeDelta, Unknown
from slurm_operator.slurm.watch.watcher import SlurmWatch, WatchTiming
from tests.support.slurm.memory_cluster import Cluster, now, watching
from tests.support.slurm.views import drained_node, node
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from slurm_operator.slurm.model.view import ViewUpdate


@virtual_time
async def test_a_slower_ping_is_no_news() -> None:
    """How long a slurmctld took to answer is not told; that it stopped answering is."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.controllers = (Ping(hostname="box", responding=True, primary=True, latency=9000),)
        await asyncio.sleep(30.0)
        assert watched.updates == []
        cluster.controllers = (Ping(hostname="box"), Ping(hostname="backup", responding=True))
        await watched.until(lambda: bool(watched.updates))
        assert watched.changed() == [[]]
        assert {ping.hostname: ping.responding for ping in watched.watch.view.controllers} == {
            "box": False,
            "backup": True,
        }


@virtual_time
async def test_a_node_is_told_again_when_its_jobs_are_known() -> None:
    """If the jobs cannot be listed, a drained node is told at once and once more when they can."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.failures["jobs"] = RestUnreachable("cut off")
        cluster.put(drained_node("n1"))
        begun = now()
        await watched.until(lambda: watched.changed() == [["n1"]])
        assert watched.watch.view.drained("n1", now(), newer_than=begun).reason is AnswerReason.DRAIN_PENDING
        cluster.put(node("n2"))
        await watched.until(lambda: watched.changed() == [["n1"], ["n2"]])
        cluster.failures.clear()
        await watched.until(lambda: len(watched.updates) == 3)
        assert watched.changed() == [["n1"], ["n2"], ["n1"]]
        assert watched.watch.view.drained("n1", now(), newer_than=begun).drained


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize(("slow", "cost"), [("nodes", 0.0), ("jobs", 10.0)])
def test_a_node_is_told_again_when_its_list_was_too_old_for_the_writer(
    slow: str, cost: float, *, failing: bool
) -> None:
    """A list that was under way during a write shows it, but counts only once it was asked for afterwards."""

    @virtual_time
    async def run() -> None:
        cluster = Cluster(node("n1"))
        async with watching(cluster, WatchTiming(rest=20.0, cost=cost)) as watched:
            await watched.settle()
            cluster.seconds[slow] = 0.5
            cluster.put(drained_node("n1"))
            asked = cluster.count(slow)
            await watched.until(lambda: cluster.count(slow) > asked)
            written = now()
            watched.watch.wake()
            await watched.until(lambda: watched.changed() == [["n1"]])
            first = watched.watch.view.drained("n1", now(), newer_than=written)
            assert (first.drained, first.reason) == (False, AnswerReason.DRAIN_PENDING)
            if failing:
                cluster.failures["nodes"] = RestUnreachable("cut off")
                await watched.until(lambda: watched.watch.view.failure is not None)
                cluster.failures.clear()
            await watched.until(lambda: watched.changed().count(["n1"]) == 2)
            assert watched.updates[-1].view.drained("n1", now(), newer_than=written).drained
            watched.watch.wake()
            await asyncio.sleep(30.0)
            assert watched.changed().count(["n1"]) == 2

    run()


@virtual_time
async def test_very_many_changes_are_told_in_parts() -> None:
    """Each node is told once, a few hundred at a time, and only the first part tells what else is new."""
    names = [f"n{index}" for index in range(1234)]
    cluster = Cluster()
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.put(*map(node, names))
        cluster.booked = [Reservation(name="maint")]
        cluster.touch("reservations")
        watched.watch.wake(reservations=True)
        await watched.until(lambda: sum(len(update.changes) for update in watched.updates) >= len(names))
        told = [change.name for update in watched.updates for change in update.changes]
        assert sorted(told) == sorted(names)
        assert max(len(update.changes) for update in watched.updates) < len(names)
        booked = [update for update in watched.updates if not update.previous.reservations]
        assert len(booked) == 1
        assert {update.view.reservations.keys() == {"maint"} for update in watched.updates} == {True}


@virtual_time
async def test_a_lost_node_is_told_twice() -> None:
    """A node that vanishes is told when it is missing and again when its absence is confirmed."""
    cluster = Cluster(*(node(f"n{index}") for index in range(10)))
    async with watching(cluster) as watched:
        await watched.settle()
        last = cluster.entries["n9"]
        cluster.drop("n9")
        await watched.until(lambda: len(watched.updates) == 1)
        assert isinstance(watched.watch.view.node("n9", now()), Unknown)
        await watched.until(lambda: len(watched.updates) == 2, limit=40.0)
        assert isinstance(watched.watch.view.node("n9", now()), Absent)
        told = [change for update in watched.updates for change in update.changes]
        assert told == [NodeDelta("n9", last, None)] * 2


@virtual_time
async def test_a_receiver_that_raises_stops_nobody() -> None:
    """A defect in one receiver keeps neither the others nor the watch; who unsubscribed hears nothing."""
    cluster = Cluster(node("n1"))
    watch = SlurmWatch(cluster)
    heard: list[ViewUpdate] = []
    left: list[ViewUpdate] = []

    def broken(update: ViewUpdate) -> None:
        raise RuntimeError(str(update.changes))

    watch.subscribe(broken)
    leave = watch.subscribe(left.append)
    watch.subscribe(heard.append)
    leave()
    leave()
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(1.0)
    cluster.put(node("n1", "MIXED"))
    await asyncio.sleep(20.0)
    assert len([update for update in heard if update.changes]) == 2
    assert left == []
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
