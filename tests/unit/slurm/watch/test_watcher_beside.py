"""How soon the ends of jobs are seen while the list of the jobs on nodes that begin to drain is read."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.watch.watcher import WatchTiming
from tests.support.slurm.memory_cluster import Asked, Cluster, Watched, is_drained, now, watching
from tests.support.slurm.views import drained_node, job, node, number
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.slurm.model.records import JobList, Node, NodeList
    from slurm_operator.slurm.model.view import ViewUpdate

# What slurmrestd takes for 5,000 nodes at 0.3 ms each, and for as many jobs.
NODES, JOBS = 1.5, 2.0
TIMING = WatchTiming(uptime=1e6)
NAMES = [f"n{index}" for index in range(1, 101)]


class Wave(Cluster):
    """A hundred nodes with a job each, beside nodes that are idle."""

    def __init__(self, *, jobs_take: float = JOBS) -> None:
        super().__init__(*(node(name, "MIXED", alloc=2) for name in NAMES))
        self.put(*(node(f"idle{index}") for index in range(100)))
        self.run(*(job(job_id, name) for job_id, name in enumerate(NAMES, 1)))
        self.name = "one"
        self.seconds |= {"nodes": NODES, "jobs": jobs_take}

    async def jobs(self, since: int | None = None) -> JobList | None:
        """Say at once that nothing has changed."""
        if since is not None and since > self.changed["jobs"]:
            self.asked.append(Asked("jobs", now(), since))
            return None
        return await super().jobs(since)

    def drain(self, *names: str) -> None:
        """Let nodes drain from now on."""
        self.put(*(self._draining(name) for name in names))

    def _draining(self, name: str) -> Node:
        return node(name, "MIXED", "DRAIN", alloc=2, reason_changed_at=number(self.clock))

    def end(self, name: str) -> None:
        """Let the job on a draining node end."""
        since = self.entries[name].reason_changed_at.value or 0.0
        over = NAMES.index(name) + 1
        self.run(*(job(over, name, "COMPLETED") if one.job_id == over else one for one in self.running))
        self.put(drained_node(name, reason_changed_at=number(since)))


@asynccontextmanager
async def draining(cluster: Wave, *names: str) -> AsyncIterator[tuple[Watched, float]]:
    """Watch a cluster in which nodes begin to drain, from the moment at which the watch is woken."""
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        cluster.drain(*names)
        await asyncio.sleep(1.0)
        watched.watch.wake()
        yield watched, now()


@virtual_time
async def test_the_first_ends_of_jobs_are_seen_within_five_seconds() -> None:
    """Jobs that end while the jobs on new draining nodes are listed do not wait for another two lists."""
    cluster = Wave()
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        cluster.drain(*NAMES)
        begun, ended, drained = now(), dict[str, float](), dict[str, float]()

        def note(update: ViewUpdate) -> None:
            for name in NAMES:
                if update.view.drained(name, now()).drained:
                    drained.setdefault(name, now())

        watched.watch.subscribe(note)
        watched.watch.wake()
        for name in NAMES:
            await asyncio.sleep(0.1)
            ended[name] = now()
            cluster.end(name)
        await watched.until(lambda: len(drained) == len(NAMES))
        waited = sorted(drained[name] - ended[name] for name in NAMES)
        assert waited[94] <= 5.0
        assert len(cluster.times("jobs", begun)) == 1


@virtual_time
async def test_what_is_read_meanwhile_counts() -> None:
    """A job that ended after the first list of nodes, and before the second, frees its node at once."""
    cluster = Wave()
    async with draining(cluster, "n1", "n2") as (watched, begun):
        await asyncio.sleep(0.5)
        cluster.end("n1")
        await watched.until(lambda: is_drained(watched.watch, "n1"))
        assert now() - begun <= NODES + JOBS + 0.2
        assert not is_drained(watched.watch, "n2")


@virtual_time
async def test_jobs_that_had_not_changed_take_long_all_the_same() -> None:
    """That nothing had changed was said at once; how long a list takes, only the last one tells."""
    cluster = Wave()
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        await watched.until(
            lambda: [one for one in cluster.asked if one.what == "jobs"][-1].since is not None
        )
        cluster.drain("n1")
        begun = now()
        watched.watch.wake()
        await watched.until(lambda: bool(cluster.times("jobs", begun)))
        await asyncio.sleep(0.1)
        assert len(cluster.times("nodes", begun)) == 2


@virtual_time
async def test_more_jobs_than_ever_take_long_the_first_time() -> None:
    """The last list was short; the nodes are listed when this one has taken half a second."""
    cluster = Wave(jobs_take=0.1)
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        cluster.seconds["jobs"] = JOBS
        cluster.drain("n1")
        begun = now()
        watched.watch.wake()
        await watched.until(lambda: "n1" in watched.watch.view.covered)
        [jobs], [_, nodes] = cluster.times("jobs", begun), cluster.times("nodes", begun)
        assert nodes - jobs == pytest.approx(0.5, abs=0.05)


@virtual_time
async def test_a_short_list_of_jobs_is_read_alone() -> None:
    """The next list of nodes comes soon then."""
    cluster = Wave(jobs_take=0.3)
    async with draining(cluster, "n1") as (watched, begun):
        await watched.until(lambda: bool(cluster.times("jobs", begun)))
        await asyncio.sleep(0.1)
        assert len(cluster.times("nodes", begun)) == 1


@virtual_time
async def test_long_lists_are_read_one_after_the_other() -> None:
    """Both of them together could need too much memory."""
    cluster = Wave()
    cluster.run(*cluster.running, *(job(number, "", "PENDING") for number in range(1000, 18_000)))
    async with draining(cluster, "n1") as (watched, begun):
        await watched.until(lambda: bool(cluster.times("jobs", begun)))
        await asyncio.sleep(0.1)
        assert len(cluster.times("nodes", begun)) == 1


def _drained_anew(cluster: Wave) -> None:
    cluster.drain("n1")
    cluster.end("n1")


def _clock_went_back(cluster: Wave) -> None:
    cluster.end("n1")
    cluster.clock_offset = -3600


def _ended(cluster: Wave) -> None:
    cluster.end("n1")


def _nothing(_: Wave) -> None:
    pass


def _another_cluster(cluster: Wave) -> None:
    cluster.name = cluster.jobs_name = "other"


def _the_nodes_fail(cluster: Wave) -> None:
    cluster.failures["nodes"] = errors.BadReply("half an answer")


def _the_jobs_fail(cluster: Wave) -> None:
    cluster.failures["jobs"] = errors.BadReply("half an answer")


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        (_drained_anew, _nothing),
        (_clock_went_back, _nothing),
        (_ended, _another_cluster),
        (_ended, _the_nodes_fail),
        (_ended, _the_jobs_fail),
    ],
)
def test_in_doubt_no_node_is_drained_by_what_is_read_meanwhile(
    before: Callable[[Wave], None], meanwhile: Callable[[Wave], None]
) -> None:
    """What the second list of nodes shows may be of another drain, or of another slurmctld."""

    @virtual_time
    async def run() -> None:
        cluster = Wave()
        async with draining(cluster, "n1", "n2") as (watched, begun):
            # Each answer tells of the moment of its request; that of the first list of nodes is over.
            await watched.until(lambda: bool(cluster.times("nodes", begun)))
            before(cluster)
            await watched.until(lambda: bool(cluster.times("jobs", begun)))
            await asyncio.sleep(0.1)
            assert len(cluster.times("nodes", begun)) == 2
            meanwhile(cluster)
            over = cluster.times("jobs", begun)[0] + JOBS + 0.3
            while now() <= over:
                assert not is_drained(watched.watch, "n1")
                await asyncio.sleep(0.05)
            cluster.failures.clear()
            await watched.until(lambda: is_drained(watched.watch, "n1"))
            assert len(cluster.times("nodes", begun)) > 2

    run()


@virtual_time
async def test_a_drain_that_only_the_second_list_shows_is_not_covered() -> None:
    """The jobs were requested before it, so they are listed once more, in the next round."""
    cluster = Wave()
    async with draining(cluster, "n1") as (watched, begun):
        await asyncio.sleep(0.5)
        cluster.drain("n3")
        await watched.until(lambda: "n1" in watched.watch.view.covered)
        assert "n3" not in watched.watch.view.covered
        assert len(cluster.times("jobs", begun)) == 1
        await watched.until(lambda: "n3" in watched.watch.view.covered)
        assert len(cluster.times("jobs", begun)) == 2


@virtual_time
async def test_the_jobs_are_requested_first() -> None:
    """About what only the second list of nodes shows, they say nothing."""
    cluster = Wave()
    async with draining(cluster, "n1") as (watched, begun):
        await watched.until(lambda: "n1" in watched.watch.view.covered)
        [jobs], [_, nodes] = cluster.times("jobs", begun), cluster.times("nodes", begun)[:2]
        assert jobs < nodes <= jobs + 0.01
        assert (watched.watch.view.jobs_listed_at or 0.0) < (watched.watch.view.listed_at or 0.0)


class Restarting(Wave):
    """Its slurmctld is replaced by one whose clock is behind, just after the jobs were requested."""

    def __init__(self) -> None:
        super().__init__()
        self.restarts = False

    async def nodes(self, since: int | None = None) -> NodeList | None:
        if self.restarts and self.asked[-1].what == "jobs":
            self.restarts, self.clock_offset = False, -30
        return await super().nodes(since)


@virtual_time
async def test_the_jobs_of_another_slurmctld_are_not_used() -> None:
    """Nothing of that list is certain, and the next one is requested in the next round."""
    cluster = Restarting()
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        cluster.drain("n1")
        await asyncio.sleep(1.0)
        begun, listed_at = now(), watched.watch.view.jobs_listed_at
        watched.watch.wake()
        cluster.restarts = True
        await watched.until(lambda: bool(cluster.times("jobs", begun)))
        over = cluster.times("jobs", begun)[0] + JOBS + 0.1
        while now() <= over:
            assert watched.watch.view.covered == set()
            assert watched.watch.view.jobs_listed_at == listed_at
            await asyncio.sleep(0.05)
        nodes = len(cluster.times("nodes", begun))
        await watched.until(lambda: len(cluster.times("jobs", begun)) == 2)
        assert len(cluster.times("nodes", begun)) <= nodes + 2, "one round later, with one beside the jobs"


@virtual_time
async def test_a_node_that_no_list_of_jobs_covers_is_not_delayed() -> None:
    """An idle node that began to drain with busy ones needs these jobs, and no other list of them."""
    cluster = Wave()
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        cluster.drain("n1")
        cluster.put(node("idle1", "IDLE", "DRAIN"))
        begun, told = now(), list[str]()
        watched.watch.subscribe(lambda update: told.extend(change.name for change in update.changes))
        watched.watch.wake()
        await watched.until(lambda: is_drained(watched.watch, "idle1"))
        assert now() - begun <= NODES + JOBS + 0.2
        await asyncio.sleep(0.1)
        assert "idle1" in told
        assert len(cluster.times("jobs", begun)) == 1
        assert len(cluster.times("nodes", begun)) == 2


@virtual_time
async def test_nodes_are_listed_as_often_as_fits_into_a_list_of_jobs() -> None:
    """With jobs that take five times as long, the last list of nodes has just come when theirs comes."""
    cluster = Wave(jobs_take=5 * NODES)
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        # Such a list takes half of the time of slurmrestd at most.
        await watched.until(lambda: now() - max(cluster.times("jobs")) >= 12 * NODES)
        cluster.drain("n1", "n2")
        await asyncio.sleep(1.0)
        begun = now()
        watched.watch.wake()
        await watched.until(lambda: bool(cluster.times("jobs", begun)))
        [listed] = cluster.times("jobs", begun)
        await asyncio.sleep(3.5 * NODES)
        cluster.end("n1")
        await watched.until(lambda: is_drained(watched.watch, "n1"))
        assert now() - listed <= 5 * NODES + 0.2
        assert len(cluster.times("nodes", listed)) == 5
        assert not is_drained(watched.watch, "n2")


@virtual_time
async def test_a_drain_that_one_of_these_lists_does_not_show_is_not_covered() -> None:
    """Between two lists that show the same drain the node was resumed and may have got another job."""
    cluster = Wave(jobs_take=5 * NODES)
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        # Such a list takes half of the time of slurmrestd at most.
        await watched.until(lambda: now() - max(cluster.times("jobs")) >= 12 * NODES)
        cluster.drain("n1")
        await asyncio.sleep(1.0)
        begun, draining = now(), cluster.entries["n1"]
        watched.watch.wake()
        await watched.until(lambda: len(cluster.times("nodes", begun)) == 3)
        cluster.put(node("n1", "MIXED", alloc=2))
        await watched.until(lambda: len(cluster.times("nodes", begun)) == 4)
        await asyncio.sleep(0.1)
        cluster.put(draining)
        await watched.until(lambda: len(cluster.times("nodes", begun)) == 6)
        cluster.end("n1")
        over = cluster.times("jobs", begun)[0] + 5 * NODES + 0.5
        while now() <= over:
            assert "n1" not in watched.watch.view.covered
            assert not is_drained(watched.watch, "n1")
            await asyncio.sleep(0.05)


@virtual_time
async def test_an_idle_node_that_is_drained_again_meanwhile_needs_other_jobs() -> None:
    """These jobs were requested before its second drain: one may have come in between that they lack."""
    cluster = Wave(jobs_take=3 * NODES)
    async with watching(cluster, TIMING) as watched:
        await watched.settle()
        cluster.drain("n1")
        cluster.put(node("idle1", "IDLE", "DRAIN", reason_changed_at=number(cluster.clock)))
        await asyncio.sleep(1.0)
        begun = now()
        watched.watch.wake()
        await watched.until(lambda: len(cluster.times("nodes", begun)) == 2)
        await asyncio.sleep(0.1)
        cluster.put(node("idle1", "IDLE", "DRAIN", reason_changed_at=number(cluster.clock)))
        [jobs] = cluster.times("jobs", begun)
        while len(cluster.times("jobs", begun)) == 1:
            assert now() < jobs + 3 * NODES or not is_drained(watched.watch, "idle1")
            await asyncio.sleep(0.05)
        await watched.until(lambda: is_drained(watched.watch, "idle1"))
        assert len(cluster.times("jobs", begun)) == 2
