"""How soon the watch lists the nodes after the end of a job on a draining node, on virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.model.view import AnswerReason
from tests.support.slurm.memory_cluster import Cluster, now, watching
from tests.support.slurm.views import drained_node, job, node
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from slurm_operator.slurm.model.view import ViewUpdate
    from slurm_operator.slurm.watch.watcher import SlurmWatch

# What slurmrestd takes for 5,000 nodes at 0.3 ms each, and for some jobs.
NODES, JOBS = 1.5, 0.5


def is_drained(watch: SlurmWatch, name: str) -> bool:
    return watch.view.drained(name, now()).drained


def steps(times: list[float]) -> list[float]:
    return [round(later - earlier, 3) for earlier, later in pairwise(times)]


def busy(*names: str) -> Cluster:
    """Return a large cluster in which these nodes drain, each with a job."""
    cluster = Cluster(*(node(name, "MIXED", "DRAIN", alloc=2) for name in names))
    cluster.seconds |= {"nodes": NODES, "jobs": JOBS}
    cluster.run(*(job(number, name) for number, name in enumerate(names, 1)))
    return cluster


def end(cluster: Cluster, number: int, name: str) -> None:
    """Let a job end."""
    cluster.run(
        *(job(number, name, "COMPLETED") if other.job_id == number else other for other in cluster.running)
    )
    cluster.put(drained_node(name))


@virtual_time
async def test_the_end_of_a_job_is_listed_at_once() -> None:
    """While a job runs its state is asked for each second and the nodes rarely; its end brings a list."""
    cluster = busy("n1")
    async with watching(cluster) as watched:
        await watched.settle()
        begun = now()
        await asyncio.sleep(60.0)
        assert min(steps(cluster.times("nodes", begun))) >= 10.0
        between = steps(cluster.times("job_states", begun))
        assert min(between) == 1.0
        assert len(between) > 40
        for _ in range(5):
            cluster.put(node("n1", "MIXED", "DRAIN", alloc=2))
            cluster.run(job(1, "n1"))
            await asyncio.sleep(41.3)
            ended = now()
            end(cluster, 1, "n1")
            await watched.until(partial(is_drained, watched.watch, "n1"))
            assert now() - ended <= 1.0 + 2 * NODES + JOBS + 0.1


@virtual_time
async def test_at_rest_no_states_are_asked_for() -> None:
    """Jobs on nodes that do not drain, and nodes that are drained, are no reason to ask for states."""
    cluster = Cluster(node("n1", "MIXED", alloc=2), drained_node("n2"))
    cluster.run(job(1, "n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        await asyncio.sleep(120.0)
        assert cluster.count("job_states") == 0


@pytest.mark.parametrize("jobs", [0.1, 0.5, 1.2, 1.5], ids="jobs take {} s".format)
def test_jobs_that_end_one_after_the_other_are_seen_within_five_seconds(jobs: float) -> None:
    """However many jobs end, the lists that show it are followed by a quarter of their time without one."""

    @virtual_time
    async def run() -> None:
        names = [f"n{index}" for index in range(100)]
        cluster = busy(*names)
        cluster.seconds["jobs"] = jobs
        drained: dict[str, float] = {}
        async with watching(cluster) as watched:

            def note(update: ViewUpdate) -> None:
                for name in names:
                    if update.view.drained(name, now()).drained:
                        drained.setdefault(name, now())

            await watched.settle()
            watched.watch.subscribe(note)
            begun = now()
            ended: dict[str, float] = {}
            for number, name in enumerate(names, 1):
                ended[name] = now()
                end(cluster, number, name)
                await asyncio.sleep(0.37)
            await watched.until(lambda: len(drained) == len(names))
            least = max(NODES, jobs) + 0.25 * (NODES + jobs)
            assert min(steps(cluster.times("nodes", begun))) >= round(least, 3)
            waited = sorted(drained[name] - ended[name] for name in names)
            assert waited[95] <= 5.0

    run()


@virtual_time
async def test_after_the_end_of_a_job_both_lists_are_asked_for_at_once() -> None:
    """The node was known to drain, so no job can have come to it since."""
    cluster = busy("n1")
    async with watching(cluster) as watched:
        await watched.settle()
        await asyncio.sleep(35.0)
        begun = now()
        end(cluster, 1, "n1")
        await watched.until(partial(is_drained, watched.watch, "n1"))
        assert cluster.times("jobs", begun) == cluster.times("nodes", begun)
        assert len(cluster.times("jobs", begun)) == 1


@virtual_time
async def test_a_node_that_was_not_known_to_drain_waits_for_newer_jobs() -> None:
    """Before the drain a job may have come to it that a list of the same moment does not have."""
    cluster = busy("n1")
    cluster.put(node("n2"))
    async with watching(cluster) as watched:
        await watched.settle()
        await asyncio.sleep(35.0)
        begun = now()
        end(cluster, 1, "n1")
        cluster.put(drained_node("n2"))
        await watched.until(partial(is_drained, watched.watch, "n2"))
        nodes, jobs = cluster.times("nodes", begun), cluster.times("jobs", begun)
        assert jobs[-1] - nodes[-1] == pytest.approx(NODES)
        assert watched.watch.view.jobs_listed_at == jobs[-1]


@virtual_time
async def test_a_job_that_only_the_list_of_jobs_still_has_is_looked_for_again() -> None:
    """Of two lists of one moment the jobs may be the older, so they are listed once more."""
    cluster = busy("n1")
    async with watching(cluster) as watched:
        await watched.settle()
        await asyncio.sleep(35.0)
        cluster.put(drained_node("n1"))
        cluster.said_to_have_ended = {1}
        await watched.until(lambda: len({*cluster.times("nodes")} & {*cluster.times("jobs")}) == 1)
        begun = now()
        await asyncio.sleep(0.5 * NODES)
        end(cluster, 1, "n1")
        await watched.until(partial(is_drained, watched.watch, "n1"))
        assert now() - begun <= NODES + JOBS + 0.1


@pytest.mark.parametrize("what", ["nodes", "jobs"])
def test_half_of_the_two_lists_frees_no_node(what: str) -> None:
    """If one of the lists fails, the node is not drained until both have come."""

    @virtual_time
    async def run() -> None:
        cluster = busy("n1")
        async with watching(cluster) as watched:
            await watched.settle()
            await asyncio.sleep(35.0)
            cluster.failures[what] = errors.BadReply("half a reply")
            end(cluster, 1, "n1")
            await asyncio.sleep(60.0)
            assert not is_drained(watched.watch, "n1")
            del cluster.failures[what]
            await watched.until(partial(is_drained, watched.watch, "n1"))

    run()


@virtual_time
async def test_a_state_decides_nothing() -> None:
    """A job that is said to have ended while the list of jobs has it holds its node, and brings one list."""
    cluster = busy("n1")
    cluster.put(node("n1", "IDLE", "DRAIN", "COMPLETING"))
    async with watching(cluster) as watched:
        await watched.settle()
        lists = cluster.count("nodes")
        cluster.said_to_have_ended = {1}
        await asyncio.sleep(5.0)
        assert cluster.count("nodes") == lists + 1
        assert watched.watch.view.drained("n1", now()).reason is AnswerReason.JOBS_COMPLETING
        cluster.put(drained_node("n1"))
        await asyncio.sleep(30.0)
        assert watched.watch.view.drained("n1", now()).reason is AnswerReason.JOBS_RUNNING


@pytest.mark.parametrize(
    "failure",
    [
        errors.Unsupported("Slurm 23.02 cannot do this"),
        errors.Refused("no", status=422),
        errors.BadReply("half a reply"),
        errors.TokenRefused("no"),
        errors.RestUnreachable("no answer"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_without_states_the_nodes_are_listed_as_before(failure: errors.SlurmError) -> None:
    """If states cannot be had, polling takes a fifth of the time, and a minute later it is tried again."""

    @virtual_time
    async def run() -> None:
        cluster = busy("n1")
        cluster.failures["job_states"] = failure
        async with watching(cluster) as watched:
            await watched.settle()
            begun = now()
            await asyncio.sleep(110.0)
            usual = {5 * NODES + NODES, 5 * NODES + NODES + JOBS}
            assert {step for step in steps(cluster.times("nodes", begun)) if step < 12.0} <= usual
            assert len(cluster.times("job_states", begun)) in (1, 2)
            assert watched.watch.view.failure is None
            assert watched.watch.view.jobs_failure is None

    run()


@virtual_time
async def test_a_hanging_question_for_states_holds_up_no_list() -> None:
    """A server that never answers it is given up after two seconds, and the nodes stay fresh."""
    cluster = busy("n1")
    cluster.seconds["job_states"] = 1000.0
    async with watching(cluster) as watched:
        await watched.settle()
        begun = now()
        await asyncio.sleep(110.0)
        assert max(steps(cluster.times("nodes", begun))) <= 12.0 + NODES
        watched.watch.wake()
        await asyncio.sleep(2.0 + 2 * NODES)
        assert not watched.watch.view.stale(now())


@virtual_time
async def test_jobs_are_listed_when_nodes_begin_to_drain() -> None:
    """A job that started after the last list of jobs can be asked about once its node drains."""
    cluster = Cluster(node("n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        await watched.until(lambda: now() - (watched.watch.view.jobs_listed_at or 0.0) < 1.0)
        await asyncio.sleep(2.0)
        cluster.run(job(1, "n1"))
        cluster.put(node("n1", "MIXED", "DRAIN", alloc=2))
        watched.watch.wake()
        await asyncio.sleep(3.0)
        assert cluster.count("job_states") > 0
        lists = cluster.count("jobs")
        await asyncio.sleep(20.0)
        assert cluster.count("jobs") == lists
