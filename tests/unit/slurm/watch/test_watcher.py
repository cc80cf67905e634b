"""When the watch asks for what, on virtual time."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from slurm_operator.slurm.errors import Refused, RestUnreachable, Unavailable
from slurm_operator.slurm.model.records import Reservation
from slurm_operator.slurm.model.view import Absent, AnswerReason, Known, Unknown
from slurm_operator.slurm.watch.watcher import WatchTiming
from tests.support.slurm.memory_cluster import Cluster, is_drained, now, steps, watching
from tests.support.slurm.views import drained_node, job, node
from tests.support.virtual_time import virtual_time


@virtual_time
async def test_the_first_round_asks_for_everything() -> None:
    """After one round the view has nodes, jobs, reservations, controllers and uptime, and is told."""
    cluster = Cluster(node("n1"), node("n2", "MIXED"))
    cluster.run(job(7, "n2"))
    cluster.booked = [Reservation(name="maint")]
    async with watching(cluster) as watched:
        await watched.until(lambda: bool(watched.updates))
        view = watched.watch.view
        assert view.nodes.keys() == {"n1", "n2"}
        assert view.latest_end("n2") == 13_600
        assert view.reservations.keys() == {"maint"}
        assert [ping.hostname for ping in view.controllers] == ["box"]
        assert view.version == "26.05.5"
        assert view.uptime(0.0) == 86_400.0
        assert watched.changed() == [["n1", "n2"]]
        assert watched.updates[0].previous.listed_at is None


@virtual_time
async def test_at_rest_it_asks_for_changes_and_tells_nothing() -> None:
    """At rest nodes are polled each 10 s for changes, each 30 s as a whole, and nobody is told."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        begun = now()
        await asyncio.sleep(300.0)
        times = cluster.times("nodes", begun)
        whole = [
            asked for asked in cluster.asked if asked.what == "nodes" and asked.at > begun and not asked.since
        ]
        assert set(steps(times)) == {10.0}
        assert len(whole) == 10
        assert set(steps(cluster.times("jobs", begun))) == {30.0}
        assert set(steps(cluster.times("diag", begun))) == {60.0}
        assert watched.updates == []
        assert isinstance(watched.watch.view.node("n1", now()), Known)


@virtual_time
async def test_a_draining_node_is_polled_often_and_its_jobs_once() -> None:
    """While a node drains the nodes are polled each 2 s; the jobs are asked for when it looks drained."""
    cluster = Cluster(node("n1", "MIXED", alloc=2))
    cluster.run(job(7, "n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.put(node("n1", "MIXED", "DRAIN", alloc=2))
        await watched.until(lambda: bool(watched.updates))
        begun = now()
        await asyncio.sleep(20.0)
        assert set(steps(cluster.times("nodes", begun))) == {2.0}
        assert len(cluster.times("jobs", begun)) <= 1
        polls, asked = cluster.count("nodes"), cluster.count("jobs")
        cluster.run(job(7, "n1", "COMPLETED"))
        cluster.put(drained_node("n1"))
        watched.updates.clear()
        await watched.until(lambda: bool(watched.updates))
        assert (cluster.count("nodes") - polls, cluster.count("jobs") - asked) == (1, 1)
        assert watched.changed() == [["n1"]]
        assert watched.updates[0].view.drained("n1", now(), newer_than=begun).reason is AnswerReason.DRAINED


@virtual_time
async def test_nodes_that_were_drained_long_ago_cost_nothing() -> None:
    """A node that somebody drained for weeks is at rest: no fast polls, no jobs each time."""
    cluster = Cluster(drained_node("n1"), node("n2", "DOWN", "DRAIN"))
    async with watching(cluster) as watched:
        await watched.settle()
        begun = now()
        await asyncio.sleep(120.0)
        assert set(steps(cluster.times("nodes", begun))) == {10.0}
        assert set(steps(cluster.times("jobs", begun))) == {30.0}


@virtual_time
async def test_a_contested_node_has_its_jobs_asked_for() -> None:
    """A node that looks idle while a job lists it is not drained, and its jobs are asked for often."""
    cluster = Cluster(drained_node("n1"))
    cluster.run(job(7, "n1", "SUSPENDED"))
    async with watching(cluster) as watched:
        await watched.settle()
        assert watched.watch.view.drained("n1", now()).reason is AnswerReason.JOBS_RUNNING
        cluster.run(job(7, "n1", "COMPLETED"))
        rounds = cluster.count("nodes")
        await watched.until(lambda: watched.watch.view.drained("n1", now()).drained)
        assert cluster.count("nodes") - rounds == 1
        assert watched.changed() == [["n1"]]


@virtual_time
async def test_wakes_are_joined() -> None:
    """However often it is woken, one round follows, of the whole list, and a lively time of fast polls."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        rounds, begun = cluster.count("nodes"), now()
        for _ in range(100):
            watched.watch.wake()
        await asyncio.sleep(1.0)
        assert cluster.count("nodes") - rounds == 1
        assert [asked.since for asked in cluster.asked if asked.what == "nodes"][-1] is None
        await asyncio.sleep(40.0)
        times = cluster.times("nodes", begun)
        assert steps(times)[:4] == [2.0] * 4
        assert steps(times)[-1] == 10.0


@virtual_time
async def test_a_wake_during_a_round_starts_another() -> None:
    """What was written while a list was under way is seen by the next one, not left for later."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.seconds["nodes"] = 1.0
        rounds = cluster.count("nodes")
        await watched.until(lambda: cluster.count("nodes") > rounds)
        watched.watch.wake()
        written = now()
        view = await watched.watch.refreshed(written, written + 5.0)
        assert view.listed_at is not None
        assert view.listed_at > written
        assert cluster.count("nodes") - rounds == 2


@virtual_time
async def test_a_refreshed_view_can_tell_whether_a_node_is_drained() -> None:
    """A view that somebody waits for has jobs of a few seconds at most, if any node seems drained."""
    cluster = Cluster(drained_node("n1"), node("n2"))
    async with watching(cluster) as watched:
        await watched.settle()
        await watched.until(lambda: now() - (watched.watch.view.jobs_listed_at or 0.0) > 6.0)
        begun = now()
        view = await watched.watch.refreshed(begun, begun + 5.0)
        assert view.drained("n1", now(), newer_than=begun).drained
        asked = cluster.count("jobs")
        await asyncio.sleep(3.0)
        await watched.watch.refreshed(now(), now() + 5.0)
        assert cluster.count("jobs") == asked
        cluster.put(drained_node("n2"))
        begun = now()
        view = await watched.watch.refreshed(begun, begun + 5.0)
        assert view.drained("n2", now(), newer_than=begun).drained


@virtual_time
async def test_a_list_that_removals_wait_for_comes_sooner_than_one_after_a_write() -> None:
    """One thread of slurmrestd is busy for four fifths of the time then, and for half of it otherwise."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.seconds["nodes"] = 2.0
        begun = now()
        for _ in range(4):
            await watched.watch.refreshed(now(), now() + 15.0)
        assert steps(cluster.times("nodes", begun))[-3:] == pytest.approx([2.5] * 3, abs=0.01)
        for _ in range(100):
            watched.watch.wake()
            await asyncio.sleep(0.2)
        assert steps(cluster.times("nodes", begun))[-2:] == pytest.approx([4.0] * 2, abs=0.01)


@virtual_time
async def test_jobs_that_could_not_be_listed_are_asked_for_with_a_refreshed_view() -> None:
    """However young the last list of jobs is, after a failure whoever waits for a view gets another."""
    cluster = Cluster(drained_node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.failures["jobs"] = RestUnreachable("cut off")
        watched.watch.wake()
        await watched.until(lambda: watched.watch.view.jobs_failure is not None)
        cluster.failures.clear()
        view = await watched.watch.refreshed(now(), now() + 5.0)
        assert view.jobs_failure is None


@virtual_time
async def test_a_slow_list_is_asked_for_more_often_while_a_node_drains() -> None:
    """Polling takes a tenth of Slurm's time at rest, and a fifth while the end of a job is waited for."""
    cluster = Cluster(node("n1"))
    cluster.seconds["nodes"] = 0.5
    async with watching(cluster, WatchTiming(rest=2.0)) as watched:
        await watched.settle()
        begun = now()
        await asyncio.sleep(40.0)
        assert set(steps(cluster.times("nodes", begun))) == {5.5}
        cluster.put(node("n1", "MIXED", "DRAIN", alloc=2))
        await watched.until(lambda: bool(watched.updates))
        begun = now()
        await asyncio.sleep(40.0)
        assert set(steps(cluster.times("nodes", begun))) == {3.0}


@virtual_time
async def test_jobs_that_are_slow_to_list_come_with_the_nodes_that_need_them() -> None:
    """When jobs end one after the other, each poll of the nodes has its list of jobs, however large."""
    names = [f"n{index}" for index in range(5)]
    cluster = Cluster(*(node(name, "MIXED", "DRAIN", alloc=2) for name in names))
    cluster.seconds["nodes"] = cluster.seconds["jobs"] = 0.3
    async with watching(cluster) as watched:
        await watched.settle()
        for name in names:
            ended = now()
            cluster.put(drained_node(name))
            await watched.until(partial(is_drained, watched.watch, name))
            assert now() - ended < 3.5


@virtual_time
async def test_a_job_that_vanishes_is_soon_believed_gone() -> None:
    """A job that a list leaves out is asked for again at once, for its node waits."""
    cluster = Cluster(node("n1", "MIXED"))
    cluster.run(job(7, "n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.run()
        asked = cluster.count("jobs")
        await watched.until(lambda: cluster.count("jobs") > asked)
        assert "n1" in watched.watch.view.jobs.by_node
        await watched.until(lambda: "n1" not in watched.watch.view.jobs.by_node, limit=31.0)


@virtual_time
async def test_refreshed_gives_up_at_its_deadline() -> None:
    """Whoever waits for a newer view gets Unavailable with the cause at the deadline, and not later."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.failures["nodes"] = RestUnreachable("connection refused")
        begun = now()
        with pytest.raises(Unavailable, match="connection refused"):
            await watched.watch.refreshed(begun, begun + 7.0)
        assert now() == pytest.approx(begun + 7.0)


@virtual_time
async def test_a_refused_question_for_changes_becomes_one_for_all() -> None:
    """Where Slurm refuses to say what changed (24.11), the whole list is asked for in the same round."""
    cluster = Cluster(node("n1"))
    cluster.refuses_changes = Refused("Unable to query partitions", status=500)
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.seconds["nodes"] = 1.0
        cluster.put(node("n1", "MIXED"))
        await watched.until(lambda: bool(watched.updates))
        assert watched.changed() == [["n1"]]
        refused, whole = [asked for asked in cluster.asked if asked.what == "nodes"][-2:]
        assert refused.since is not None
        assert whole.since is None
        assert whole.at == pytest.approx(refused.at + 1.0)
        assert watched.updates[0].view.listed_at == whole.at
        assert watched.updates[0].view.failure is None


@virtual_time
async def test_a_clock_that_goes_back_is_not_unchanged_for_ever() -> None:
    """If slurmctld's clock goes back, "unchanged" is relative to a future; the next whole list ends that."""
    cluster = Cluster(node("n1"))
    async with watching(cluster, WatchTiming(uptime=1e6)) as watched:
        await watched.settle()
        cluster.clock_offset = -3600
        cluster.put(node("n1", "MIXED"))
        asked = cluster.count("diag")
        await watched.until(lambda: bool(watched.updates), limit=65.0)
        assert watched.changed() == [["n1"]]
        assert cluster.count("diag") == asked + 1
        watched.updates.clear()
        cluster.put(node("n1", "ALLOCATED"))
        await watched.until(lambda: bool(watched.updates), limit=11.0)


@virtual_time
async def test_deleted_on_purpose() -> None:
    """Nodes that the operator deleted are absent with the next list, which comes at once."""
    cluster = Cluster(*(node(f"n{index}") for index in range(4)))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.drop("n2", "n3")
        watched.watch.deleted(["n2", "n3"])
        await watched.until(lambda: bool(watched.updates), limit=1.0)
        view = watched.watch.view
        assert isinstance(view.node("n2", now()), Absent)
        assert isinstance(view.node("n0", now()), Known)


@virtual_time
async def test_a_list_may_come_before_the_answer_to_a_deletion() -> None:
    """It shows that most nodes are gone, and nobody has to confirm that; one that was kept is in doubt."""
    cluster = Cluster(*(node(f"n{index}") for index in range(4)))
    async with watching(cluster) as watched:
        await watched.settle()
        for name in ("n1", "n2", "n3"):
            watched.watch.deleting(name)
        cluster.drop("n2", "n3")
        watched.watch.wake()
        await watched.until(lambda: bool(watched.updates), limit=1.0)
        view = watched.watch.view
        assert view.suspicion is None
        assert isinstance(view.node("n2", now()), Absent)
        watched.updates.clear()
        watched.watch.deleting("n1")
        watched.watch.deleted(["n2", "n3"], kept=["n1"])
        cluster.drop("n1")
        await watched.until(lambda: bool(watched.updates), limit=1.0)
        assert isinstance(watched.watch.view.node("n1", now()), Unknown)


@virtual_time
async def test_nobody_waits_for_a_watch_that_is_closed() -> None:
    """Who waits for a list hears at once that there will be none; so does who comes later."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        cluster.seconds["nodes"] = 50.0
        begun = now()
        waiting = asyncio.create_task(watched.watch.refreshed(begun, begun + 15.0))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        watched.watch.close()
        for refreshed in (waiting, watched.watch.refreshed(begun - 1e6, begun + 15.0)):
            with pytest.raises(Unavailable, match="closed"):
                await refreshed
        assert now() == begun + 1.0
        assert watched.watch.closed
