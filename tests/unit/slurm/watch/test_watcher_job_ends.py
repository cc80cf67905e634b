"""How soon the watch lists the nodes after the end of a job on a draining node, on virtual time."""

from __future__ import annotations

import asyncio
import warnings
from functools import partial
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.model.view import AnswerReason
from tests.support.slurm.memory_cluster import Cluster, is_drained, now, steps, watching
from tests.support.slurm.views import drained_node, job, node, number
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurm_operator.slurm.model.records import JobStateList, Node
    from slurm_operator.slurm.model.view import ViewUpdate
    from tests.support.slurm.memory_cluster import Watched

# What slurmrestd takes for 5,000 nodes at 0.3 ms each, and for some jobs.
NODES, JOBS = 1.5, 0.5
DRAINED_AT = 1_600_000_000


def draining_node(name: str) -> Node:
    return node(name, "MIXED", "DRAIN", alloc=2, reason_changed_at=number(DRAINED_AT))


def busy(*names: str) -> Cluster:
    """Return a large cluster in which these nodes drain, each with a job."""
    cluster = Cluster(*(draining_node(name) for name in names))
    cluster.seconds |= {"nodes": NODES, "jobs": JOBS}
    cluster.run(*(job(job_id, name) for job_id, name in enumerate(names, 1)))
    return cluster


def end(cluster: Cluster, job_id: int, name: str, *, drained_at: float = DRAINED_AT) -> None:
    """Let a job end."""
    cluster.run(
        *(job(job_id, name, "COMPLETED") if other.job_id == job_id else other for other in cluster.running)
    )
    cluster.put(drained_node(name, reason_changed_at=number(drained_at)))


async def just_after_an_uptime(cluster: Cluster, watched: Watched) -> None:
    """Wait until slurmctld has been asked for its uptime, which is due each minute and comes first."""
    await watched.settle()
    asked = cluster.count("diag")
    await watched.until(lambda: cluster.count("diag") > asked)
    await asyncio.sleep(3.0)


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
            cluster.put(draining_node("n1"))
            cluster.run(job(1, "n1"))
            await asyncio.sleep(41.3)
            ended = now()
            end(cluster, 1, "n1")
            await watched.until(partial(is_drained, watched.watch, "n1"))
            assert now() - ended <= 1.0 + NODES + 0.2


@virtual_time
async def test_at_rest_no_states_are_asked_for() -> None:
    """Jobs on nodes that do not drain, and nodes that are drained, are no reason to ask for states."""
    cluster = Cluster(node("n1", "MIXED", alloc=2), drained_node("n2"))
    cluster.run(job(1, "n1"))
    async with watching(cluster) as watched:
        await watched.settle()
        await asyncio.sleep(120.0)
        assert cluster.count("job_states") == 0


@pytest.mark.parametrize("jobs", [0.1, 1.5, 5.0], ids="jobs take {} s".format)
def test_jobs_that_end_one_after_the_other_are_seen_within_five_seconds(jobs: float) -> None:
    """However many jobs end, only nodes are listed, and a quarter of that time passes without a list."""

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
            listed = cluster.count("jobs")
            await watched.until(lambda: cluster.count("jobs") > listed)
            await asyncio.sleep(jobs + 0.5)
            watched.watch.subscribe(note)
            begun = now()
            ended: dict[str, float] = {}
            for job_id, name in enumerate(names, 1):
                ended[name] = now()
                end(cluster, job_id, name)
                await asyncio.sleep(0.27)
            await watched.until(lambda: len(drained) == len(names))
            assert min(steps(cluster.times("nodes", begun))) >= 1.25 * NODES
            assert len(cluster.times("jobs", begun)) <= 1, "the one that is asked for by the clock"
            waited = sorted(drained[name] - ended[name] for name in names)
            assert waited[95] <= 5.0

    run()


class RefusingAfterStates(Cluster):
    """From the moment on at which all jobs have ended, requests fail before they are sent."""

    async def job_states(self, numbers: Collection[int]) -> JobStateList:
        found = await super().job_states(numbers)
        if not found.unfinished:
            self.refuses_at_once = errors.CircuitOpen("too many failures", retry_after=1.0)
        return found


@virtual_time
async def test_a_refusal_without_a_request_leaves_nothing_behind() -> None:
    """An open circuit refuses the list of nodes before the question for the jobs has begun."""
    cluster = RefusingAfterStates(draining_node("n1"))
    cluster.run(job(1, "n1"))
    async with watching(cluster) as watched:
        await just_after_an_uptime(cluster, watched)
        end(cluster, 1, "n1")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            await watched.until(lambda: watched.watch.view.failure is not None)
        assert [str(warning.message) for warning in warned] == []
        cluster.refuses_at_once = None
        await watched.until(partial(is_drained, watched.watch, "n1"))


@virtual_time
async def test_a_state_alone_frees_no_node() -> None:
    """Of a job that is said to have ended the node must look drained, too; it brings one list of nodes."""
    cluster = busy("n1")
    cluster.put(node("n1", "IDLE", "DRAIN", "COMPLETING"))
    async with watching(cluster) as watched:
        await watched.settle()
        lists = cluster.count("nodes")
        cluster.states = {1: ("COMPLETED",)}
        await asyncio.sleep(5.0)
        assert cluster.count("nodes") == lists + 1
        assert watched.watch.view.drained("n1", now()).reason is AnswerReason.JOBS_COMPLETING
        cluster.put(drained_node("n1"))
        await asyncio.sleep(30.0)
        assert watched.watch.view.drained("n1", now()).reason is AnswerReason.JOBS_RUNNING, (
            "it is in the list"
        )


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
