"""Another slurmctld, another clock, another order of the answers: what the watch asks, and what it says."""

from __future__ import annotations

import asyncio

import pytest

from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model.records import Reservation
from slurm_operator.slurm.model.view import AnswerReason, Unknown
from slurm_operator.slurm.watch.watcher import WatchTiming
from tests.support.slurm.memory_cluster import Cluster, now, watching
from tests.support.slurm.views import drained_node, job, node
from tests.support.virtual_time import virtual_time


@virtual_time
async def test_a_woken_watch_asks_for_what_a_drain_needs() -> None:
    """After a write the nodes are listed, and the jobs if a node begins to drain or looks drained."""
    cluster = Cluster(node("n1"))
    async with watching(cluster, WatchTiming(ping=1e6, uptime=1e6, reservations=1e6)) as watched:
        await watched.settle()
        cluster.asked.clear()
        cluster.put(node("n1", "MIXED"))
        watched.watch.wake()
        await watched.until(lambda: bool(watched.updates), limit=1.0)
        assert [asked.what for asked in cluster.asked] == ["nodes"]
        cluster.asked.clear()
        watched.updates.clear()
        cluster.put(node("n1", "MIXED", "DRAIN"))
        watched.watch.wake()
        await watched.until(lambda: bool(watched.updates), limit=1.0)
        assert [asked.what for asked in cluster.asked] == ["nodes", "jobs"]
        cluster.asked.clear()
        cluster.put(drained_node("n1"))
        written = now()
        watched.watch.wake()
        await watched.until(lambda: watched.watch.view.drained("n1", now(), written).drained, limit=1.0)
        assert [asked.what for asked in cluster.asked] == ["nodes", "jobs"]


@virtual_time
async def test_a_reservation_that_was_written_is_listed_as_soon_as_a_slow_list_allows() -> None:
    """A list that takes long is not asked for again at once, but what was written is not forgotten either."""
    cluster = Cluster(node("n1"))
    cluster.seconds["reservations"] = 1.0
    async with watching(cluster, WatchTiming(reservations=1e6)) as watched:
        await watched.settle()
        watched.watch.wake(reservations=True)
        asked = cluster.count("reservations")
        await watched.until(lambda: cluster.count("reservations") > asked, limit=2.0)
        await asyncio.sleep(3.0)
        cluster.booked = [Reservation(name="maint")]
        cluster.touch("reservations")
        watched.watch.wake(reservations=True)
        await watched.until(lambda: "maint" in watched.watch.view.reservations, limit=15.0)
        assert cluster.count("reservations") == asked + 2


@pytest.mark.parametrize("failing", [False, True])
def test_a_reservation_that_was_written_is_seen_at_once(*, failing: bool) -> None:
    """Who writes a reservation wakes the watch for it, and is not forgotten when the first attempt fails."""

    @virtual_time
    async def run() -> None:
        cluster = Cluster(node("n1"))
        async with watching(cluster, WatchTiming(reservations=1e6)) as watched:
            await watched.settle()
            cluster.booked = [Reservation(name="maint")]
            cluster.touch("reservations")
            watched.watch.wake()
            await asyncio.sleep(5.0)
            assert not watched.watch.view.reservations
            if failing:
                cluster.failures["nodes"] = RestUnreachable("cut off")
            watched.watch.wake(reservations=True)
            await asyncio.sleep(0.5)
            cluster.failures.clear()
            await watched.until(lambda: "maint" in watched.watch.view.reservations, limit=2.0)

    run()


@virtual_time
async def test_jobs_that_were_listed_before_a_node_looked_drained_do_not_count() -> None:
    """A job may have started after the jobs were listed: a node that came to look drained since is not."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.failures["jobs"] = RestUnreachable("cut off")
        cluster.put(drained_node("n1"))
        cluster.run(job(7, "n1", "SUSPENDED"))
        await watched.until(lambda: bool(watched.updates))
        found = watched.watch.view.drained("n1", now())
        assert (found.drained, found.reason) == (False, AnswerReason.JOBS_UNKNOWN)
        assert "cut off" in found.message
        cluster.failures.clear()
        await watched.until(
            lambda: watched.watch.view.drained("n1", now()).reason is AnswerReason.JOBS_RUNNING
        )


@virtual_time
async def test_a_verdict_rests_on_a_whole_list_of_jobs() -> None:
    """A clock that went back a little hides a job behind "unchanged": to decide, all jobs are listed."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        jobs = cluster.count("jobs")
        await watched.until(lambda: cluster.count("jobs") > jobs)
        cluster.clock_offset = -15
        cluster.run(job(7, "n1", "SUSPENDED"))
        await asyncio.sleep(16.0)
        cluster.put(drained_node("n1"))
        watched.watch.wake()
        written = now()
        await watched.until(lambda: (watched.watch.view.jobs_listed_at or 0.0) >= written, limit=1.0)
        assert watched.watch.view.drained("n1", now()).reason is AnswerReason.JOBS_RUNNING


@virtual_time
async def test_a_clock_that_went_back_makes_everything_be_listed_anew() -> None:
    """What the nodes show of another clock goes for jobs and reservations too: they are listed as a whole."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.clock_offset = -3600
        cluster.run(job(7, "n1"))
        cluster.asked.clear()
        watched.watch.wake()
        await watched.until(lambda: "n1" in watched.watch.view.jobs.by_node, limit=1.0)
        lists = [asked for asked in cluster.asked if asked.what in {"nodes", "jobs", "reservations"}]
        assert [(asked.what, asked.since) for asked in lists] == [
            ("nodes", None),
            ("jobs", None),
            ("reservations", None),
        ]


@virtual_time
async def test_unchanged_does_not_keep_a_list_alive_for_longer_than_it_may_be_old() -> None:
    """However long a clock is behind, what is said about a node is from a list of the last half minute."""
    cluster = Cluster(drained_node("n1"))
    async with watching(cluster, WatchTiming(whole=1e6)) as watched:
        await watched.settle()
        cluster.clock_offset = -3600
        cluster.put(node("n1", "ALLOCATED"))
        await watched.until(lambda: not watched.watch.view.drained("n1", now()).drained, limit=31.0)


@virtual_time
async def test_a_standby_that_takes_over_is_another_slurmctld() -> None:
    """A slurmctld that was up for longer than the one before proves no absence in its first minute either."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.uptime += 86_400.0
        asked = cluster.count("diag")
        await watched.until(lambda: cluster.count("diag") > asked)
        await asyncio.sleep(0.1)
        answer = watched.watch.view.node("n2", now())
        assert isinstance(answer, Unknown)
        assert answer.reason is AnswerReason.CONTROLLER_JUST_STARTED
        await watched.until(lambda: watched.watch.view.complete, limit=120.0)


@virtual_time
async def test_wakes_without_end_leave_slurmctld_half_of_its_time() -> None:
    """A list that takes long is not asked for without a pause, however often somebody wakes the watch."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.seconds["nodes"] = 2.0
        begun = now()
        while now() < begun + 60.0:
            watched.watch.wake()
            await asyncio.sleep(0.05)
        assert 10 <= len(cluster.times("nodes", begun)) <= 16


@pytest.mark.parametrize("hanging", ["ping", "reservations", "diag"])
def test_a_side_question_that_hangs_does_not_make_the_view_stale(hanging: str) -> None:
    """What is asked beside the nodes and jobs is given up early: the nodes stay known all the time."""

    @virtual_time
    async def run() -> None:
        cluster = Cluster(node("n1"))
        async with watching(cluster) as watched:
            await watched.settle()
            cluster.seconds[hanging] = 1e9
            asked, end = cluster.count(hanging), now() + 300.0
            while now() < end:
                assert not watched.watch.view.stale(now())
                await asyncio.sleep(0.1)
            assert cluster.count(hanging) > asked

    run()
