"""Whether a list of jobs from before the end of a job is enough, on virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.watch.watcher import WatchTiming
from tests.support.slurm.memory_cluster import EPOCH, Cluster, is_drained, now, watching
from tests.support.slurm.views import drained_node, job, node, number
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.slurm.model.records import Job, Node
    from tests.support.slurm.memory_cluster import Watched

DRAINED_AT = EPOCH - 100
TIMING = WatchTiming(uptime=1e6)


def draining(name: str, since: float = DRAINED_AT, *state: str) -> Node:
    return node(name, *(state or ("MIXED", "DRAIN")), alloc=2, reason_changed_at=number(since))


def drained(name: str, since: float = DRAINED_AT) -> Node:
    return drained_node(name, reason_changed_at=number(since))


class Draining(Cluster):
    """`n1` and `n2` drain, each with a job, beside nodes that are idle."""

    def __init__(self) -> None:
        super().__init__(*(node(f"n{index}") for index in range(3, 12)))
        self.name = self.jobs_name = self.states_name = "one"
        self.seconds |= {"nodes": 0.3, "jobs": 0.3}
        self.put(draining("n1"), draining("n2"))
        self.run(job(1, "n1"), job(2, "n2"))

    def end(self, *state: str, since: float = DRAINED_AT) -> None:
        """Let the job on `n1` end."""
        self.run(
            *(job(1, "n1", *(state or ("COMPLETED",))) if one.job_id == 1 else one for one in self.running)
        )
        self.put(drained("n1", since))


async def covered(cluster: Cluster, watched: Watched) -> None:
    """Wait until a list of jobs covers the drains."""
    await watched.settle()
    await watched.until(lambda: {"n1", "n2"} <= watched.watch.view.covered)
    asked = cluster.count("jobs")
    await watched.until(lambda: cluster.count("jobs") > asked)
    await asyncio.sleep(3.0)


async def lists_until_drained(cluster: Cluster, watched: Watched) -> int:
    """Return how many lists of jobs were asked for until `n1` was drained."""
    begun = now()
    await watched.until(partial(is_drained, watched.watch, "n1"))
    return len(cluster.times("jobs", begun))


@virtual_time
async def test_the_nodes_alone_show_that_a_job_has_ended() -> None:
    """The list of jobs from before has every job that can be on the node, and its only job has ended."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        begun = now()
        cluster.end()
        assert await lists_until_drained(cluster, watched) == 0
        assert now() - begun <= 1.0 + 0.3 + 0.2
        view = watched.watch.view
        assert view.drained("n1", now(), newer_than=begun).drained, "the drain is older than that"
        assert not view.drained("n1", now(), newer_than=now()).drained


def _left_out(cluster: Draining) -> None:
    cluster.states[1] = None


def _waits_anew(cluster: Draining) -> None:
    cluster.end("PENDING", "REQUEUED")
    cluster.running[0] = job(1, "", "PENDING", "REQUEUED")


def _unknown_word(cluster: Draining) -> None:
    cluster.states[1] = ("COMPLETED", "QUANTUM")


def _flag(cluster: Draining) -> None:
    cluster.states[1] = ("COMPLETED", "SPECIAL_EXIT")


def _states_of_another_cluster(cluster: Draining) -> None:
    cluster.states_name = "other"


def _no_states(cluster: Draining) -> None:
    cluster.failures["job_states"] = errors.BadReply("half an answer")


def _drained_anew(cluster: Draining) -> None:
    cluster.end(since=DRAINED_AT + 50)


def _drained_anew_with_a_job(cluster: Draining) -> None:
    cluster.put(draining("n1", DRAINED_AT + 50))


def _clock_went_back(cluster: Draining) -> None:
    cluster.clock_offset = -3600


def _another_slurmctld(cluster: Draining) -> None:
    # A node that is missing is a reason to ask for the uptime.
    cluster.drop("n3")
    cluster.uptime = -now()


def _suspicious(cluster: Draining) -> None:
    cluster.drop(*(f"n{index}" for index in range(3, 12)))


@pytest.mark.parametrize(
    "change",
    [
        _left_out,
        _waits_anew,
        _unknown_word,
        _flag,
        _states_of_another_cluster,
        _no_states,
        _drained_anew,
        _clock_went_back,
        _another_slurmctld,
    ],
)
def test_in_doubt_the_jobs_are_listed_again(change: Callable[[Draining], None]) -> None:
    """Then only a whole list of jobs that was asked for after the nodes frees the node, as ever."""

    @virtual_time
    async def run() -> None:
        cluster = Draining()
        async with watching(cluster, TIMING) as watched:
            await covered(cluster, watched)
            cluster.end()
            change(cluster)
            assert await lists_until_drained(cluster, watched) > 0
            view = watched.watch.view
            assert view.jobs_listed_at is not None
            assert view.jobs_listed_at > max(at for at in cluster.times("nodes") if at < view.jobs_listed_at)

    run()


@pytest.mark.parametrize("other", [None, ("PENDING", "REQUEUED"), ("COMPLETED", "QUANTUM")])
def test_of_half_an_answer_only_that_half_counts(other: tuple[str, ...] | None) -> None:
    """One of two nodes is drained by the states of its jobs, and the other waits for a list of jobs."""

    @virtual_time
    async def run() -> None:
        cluster = Draining()
        cluster.seconds["jobs"] = 3.0
        async with watching(cluster, TIMING) as watched:
            await covered(cluster, watched)
            cluster.end()
            cluster.put(drained("n2"))
            cluster.states[2] = other
            jobs = cluster.count("jobs")
            await watched.until(lambda: cluster.count("jobs") > jobs)
            assert is_drained(watched.watch, "n1")
            assert not is_drained(watched.watch, "n2")
            await asyncio.sleep(20.0)
            assert not is_drained(watched.watch, "n2"), "the list of jobs has it as running"

    run()


@virtual_time
async def test_a_new_drain_is_covered_by_a_whole_list() -> None:
    """That no job has changed since the last list says nothing about what had changed before that."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.put(draining("n4"))
        watched.watch.wake()
        await asyncio.sleep(2.0)
        assert "n4" in watched.watch.view.covered
        assert [asked.since for asked in cluster.asked if asked.what == "jobs"][-1] is None


@virtual_time
async def test_a_covered_drain_counts_with_the_next_list_of_nodes() -> None:
    """If the first one was too old for the writer, no other list of jobs is waited for."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        lists, jobs = cluster.count("nodes"), cluster.count("jobs")
        cluster.put(drained("n5"))
        await watched.until(lambda: cluster.count("nodes") > lists)
        written = now()
        watched.watch.wake()
        heard: list[float] = []
        watched.watch.subscribe(
            lambda update: heard.extend(
                now()
                for change in update.changes
                if change.name == "n5" and update.view.drained("n5", now(), written).drained
            )
        )
        await watched.until(lambda: bool(heard))
        assert heard[0] - written <= 1.5
        assert cluster.count("jobs") == jobs + 1


@virtual_time
async def test_a_job_whose_end_slurm_does_not_report_is_looked_for_at_once() -> None:
    """However long the list of jobs takes, it comes with the list of nodes, and is read to its end."""
    cluster = Draining()
    cluster.seconds["jobs"] = 3.0
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        begun = now()
        cluster.end()
        cluster.states[1] = None
        assert await lists_until_drained(cluster, watched) == 1
        assert now() - begun <= 1.0 + 0.3 + 3.0 + 0.5


@pytest.mark.parametrize(
    "change", [_drained_anew_with_a_job, _clock_went_back, _another_slurmctld, _suspicious]
)
def test_a_doubt_from_before_the_end_remains(change: Callable[[Draining], None]) -> None:
    """What is covered no more is covered again only by another list of jobs."""

    @virtual_time
    async def run() -> None:
        cluster = Draining()
        async with watching(cluster, TIMING) as watched:
            await covered(cluster, watched)
            change(cluster)
            cluster.seconds["jobs"] = 20.0
            watched.watch.wake()
            await asyncio.sleep(5.0)
            assert "n1" not in watched.watch.view.covered

    run()


@virtual_time
async def test_a_node_that_was_resumed_between_two_drains_may_have_another_job() -> None:
    """A job that came in between is in no list; the node looks idle, and the list of jobs has it."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.run(job(1, "n1", "COMPLETED"), job(2, "n2"), job(3, "n1", "SUSPENDED"))
        cluster.put(drained("n1", DRAINED_AT + 50))
        await asyncio.sleep(20.0)
        assert not is_drained(watched.watch, "n1")


@virtual_time
async def test_a_drained_node_that_was_resumed_between_two_drains_may_have_a_job() -> None:
    """It looks drained in both lists of nodes, and only another list of jobs shows the job that came."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.end()
        await lists_until_drained(cluster, watched)
        await asyncio.sleep(5.0)
        cluster.run(job(1, "n1", "COMPLETED"), job(2, "n2"), job(3, "n1", "SUSPENDED"))
        cluster.put(drained("n1", DRAINED_AT + 50))
        lists = cluster.count("nodes")
        await watched.until(lambda: cluster.count("nodes") > lists)
        await asyncio.sleep(0.4)
        assert not is_drained(watched.watch, "n1"), "the list of jobs is older than the drain"
        await asyncio.sleep(20.0)
        assert not is_drained(watched.watch, "n1")
        assert watched.watch.view.jobs.by_node["n1"].jobs == (3,)


@pytest.mark.parametrize("since", [0, 1])
def test_a_list_of_jobs_from_the_second_of_the_drain_covers_nothing(since: int) -> None:
    """In that second the node may have been resumed, got a job and been drained anew."""

    @virtual_time
    async def run() -> None:
        cluster = Draining()
        cluster.seconds |= {"nodes": 0.0, "jobs": 0.0}
        async with watching(cluster, TIMING) as watched:
            await covered(cluster, watched)
            await watched.until(lambda: now() % 1.0 < 0.05)
            cluster.put(draining("n4", cluster.clock - since))
            cluster.run(*cluster.running, job(4, "n4"))
            watched.watch.wake()
            await asyncio.sleep(0.5)
            assert ("n4" in watched.watch.view.covered) == bool(since)

    run()


@virtual_time
async def test_a_drain_without_a_moment_is_not_covered() -> None:
    """Nor is a node that was not draining when the jobs were asked for, or is being resumed."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        cluster.put(node("n4", "MIXED", "DRAIN", alloc=2), draining("n5", 5, "MIXED", "DRAIN", "UNDRAIN"))
        watched.watch.wake()
        await asyncio.sleep(5.0)
        assert watched.watch.view.covered == {"n1", "n2"}


@pytest.mark.parametrize("others", [[job(7, "n["), job(8, "n8")], []], ids=["unplaced", "vanished"])
def test_a_list_of_jobs_that_is_in_doubt_covers_nothing(others: list[Job]) -> None:
    """A job that may be anywhere, or that was left out of a list, may be on any node."""

    @virtual_time
    async def run() -> None:
        cluster = Draining()
        cluster.run(*cluster.running, job(8, "n8"))
        async with watching(cluster, TIMING) as watched:
            await covered(cluster, watched)
            cluster.run(job(1, "n1"), job(2, "n2"), *others)
            cluster.put(draining("n4"))
            watched.watch.wake()
            await asyncio.sleep(1.5)
            assert watched.watch.view.covered == set()

    run()


@virtual_time
async def test_while_a_job_is_in_doubt_no_state_counts() -> None:
    """A list that left one job out may have been half of one."""
    cluster = Draining()
    cluster.run(*cluster.running, job(8, "n8"))
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.run(job(1, "n1"), job(2, "n2"))
        cluster.put(draining("n4"))
        watched.watch.wake()
        await watched.until(lambda: watched.watch.view.covered == set())
        cluster.seconds["jobs"] = 20.0
        cluster.states[1] = ("COMPLETED",)
        await asyncio.sleep(3.0)
        assert watched.watch.view.jobs.by_node["n1"].jobs == (1,)


@virtual_time
async def test_a_failed_list_of_jobs_ends_what_the_one_before_covered() -> None:
    """A job list that cannot be read may be that of another slurmctld."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.failures["jobs"] = errors.BadReply("half a reply")
        await watched.until(lambda: watched.watch.view.jobs_failure is not None)
        cluster.end()
        await asyncio.sleep(30.0)
        assert not is_drained(watched.watch, "n1")
        cluster.failures.clear()
        await watched.until(partial(is_drained, watched.watch, "n1"))


@virtual_time
async def test_two_jobs_on_a_node_must_both_have_ended() -> None:
    """The node is drained after the second, and a job on another node is not affected."""
    cluster = Draining()
    cluster.run(*cluster.running, job(3, "n[1-2]"))
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.states[1] = ("COMPLETED",)
        await asyncio.sleep(2.5)
        cluster.states[3] = ("FAILED",)
        cluster.put(drained("n1"))
        assert await lists_until_drained(cluster, watched) == 0
        assert watched.watch.view.jobs.by_node["n2"].jobs == (2,)


@virtual_time
async def test_a_job_that_the_node_does_not_show_holds_it() -> None:
    """A node that looks drained while one of its jobs has not ended is not drained, whatever else ended."""
    cluster = Draining()
    cluster.run(*cluster.running, job(3, "n1", "SUSPENDED"))
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.end()
        await asyncio.sleep(20.0)
        assert not is_drained(watched.watch, "n1")
        cluster.run(job(2, "n2"), job(3, "n1", "COMPLETED"))
        cluster.touch("nodes")
        await watched.until(partial(is_drained, watched.watch, "n1"), limit=11.0)


@virtual_time
async def test_half_a_list_of_nodes_frees_no_node() -> None:
    """The end of the job is known, but the nodes cannot be listed; when they can, the jobs are, too."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.failures["nodes"] = errors.BadReply("half a reply")
        cluster.end()
        await asyncio.sleep(20.0)
        assert not is_drained(watched.watch, "n1")
        cluster.failures.clear()
        assert await lists_until_drained(cluster, watched) == 1


@virtual_time
async def test_a_view_says_when_its_lists_had_arrived() -> None:
    """Until the round is over it says nothing, and an answer of "unchanged" changes nothing."""
    cluster = Draining()
    cluster.seconds |= {"nodes": 2.0, "jobs": 3.0}
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        lists, jobs = cluster.count("nodes"), cluster.count("jobs")
        cluster.states[1] = None
        cluster.end()
        await watched.until(lambda: cluster.count("nodes") > lists)
        before = watched.watch.view.answered_at
        await watched.until(lambda: cluster.count("jobs") > jobs)
        assert before is not None
        assert watched.watch.view.answered_at is None
        await watched.until(lambda: watched.watch.view.answered_at is not None)
        view = watched.watch.view
        assert view.answered_at == pytest.approx((view.listed_at or 0.0) + 5.0, abs=0.1)
        asked = cluster.count("nodes")
        await watched.until(lambda: watched.watch.view.confirmed != view.confirmed)
        await asyncio.sleep(0.5)
        assert cluster.count("nodes") == asked + 1
        assert watched.watch.view.listed_at == view.listed_at
        assert watched.watch.view.answered_at == view.answered_at


@virtual_time
async def test_a_list_of_jobs_that_comes_with_a_suspicious_list_of_nodes_covers_nothing() -> None:
    """What leaves out most of the nodes for a minute may leave out a job as well."""
    cluster = Draining()
    async with watching(cluster, TIMING) as watched:
        await covered(cluster, watched)
        cluster.run(job(2, "n2"))
        cluster.drop(*(f"n{index}" for index in range(3, 12)))
        await watched.until(lambda: watched.watch.view.jobs.by_node.keys() == {"n2"})
        cluster.touch("jobs")
        jobs = cluster.count("jobs")
        await watched.until(lambda: cluster.count("jobs") > jobs)
        await asyncio.sleep(1.0)
        assert watched.watch.view.suspicion is not None
        assert watched.watch.view.covered == set()
        cluster.put(*(node(f"n{index}") for index in range(3, 12)), drained("n1"))
        cluster.run(job(1, "n1"), job(2, "n2"))
        await watched.until(lambda: watched.watch.view.suspicion is None)
        await asyncio.sleep(1.0)
        assert not is_drained(watched.watch, "n1")
