"""A view over a slurmrestd that lies, breaks off, hangs and babbles: never wrong, and soon well again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.belief import Trust
from slurm_operator.slurm.view import Absent, Known, Unknown
from slurm_operator.slurm.watch import WatchTiming
from tests.integration.slurm.hostile import Fault, HostileSlurmrestd, job
from tests.integration.slurm.watching import Watching, watching

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

HASTY = WatchTiming(
    busy=0.02,
    rest=0.03,
    doubt=0.02,
    gap=0.005,
    jobs=0.05,
    reservations=0.2,
    ping=0.1,
    uptime=0.2,
    whole=0.2,
    failure_base=0.02,
    failure_cap=0.05,
    stale_after=0.4,
    jobs_stale_after=2.0,
    call=5.0,
    cost=0.0,
)
# A name never seen is absent soon; a lie would have to go on for longer than any test lasts.
TRUST = Trust(lists=3, seconds=0.1, wide_lists=10, wide_seconds=60.0, grace=0.0)
PATIENT = Trust(lists=3, seconds=60.0, wide_lists=10, wide_seconds=60.0, grace=0.0)

WORKERS = tuple(f"w{index:02}" for index in range(12))
NAMES = ("drained", "running", "suspended", *WORKERS, "finished")
# Whatever else is said about them, these have no work and cannot get any.
FREE = {"drained", "finished"}


@pytest.fixture
def cluster(hostile: HostileSlurmrestd) -> HostileSlurmrestd:
    """Fill the server with a cluster in which two of the nodes are drained."""
    hostile.add_nodes("drained", "IDLE", "DRAIN", "DYNAMIC_NORM")
    hostile.add_nodes("running", "MIXED", "DRAIN", "DYNAMIC_NORM", alloc_cpus=2)
    hostile.add_nodes("suspended", "MIXED", "DRAIN", "DYNAMIC_NORM")
    hostile.add_nodes(f"w[00-{len(WORKERS) - 1:02}]")
    hostile.add_nodes("finished", "DOWN", "DRAIN", "DYNAMIC_NORM")
    hostile.jobs[1] = job(1, "running")
    hostile.jobs[2] = job(2, "suspended", "SUSPENDED")
    hostile.jobs[3] = job(3, "finished", "COMPLETED")
    return hostile


def never_wrong(running: Watching) -> bool:
    """Tell whether nothing that is said could cost a job."""
    drained = {name for name in NAMES if running.verdict(name).drained}
    absent = {name for name in NAMES if isinstance(running.answer(name), Absent)}
    return drained <= FREE and not absent


def well(running: Watching) -> bool:
    """Tell whether everything that can be known is known."""
    known = all(isinstance(running.answer(name), Known) for name in NAMES)
    return known and {name for name in NAMES if running.verdict(name).drained} == FREE


def watch(server: HostileSlurmrestd, trust: Trust = TRUST) -> AbstractAsyncContextManager[Watching]:
    return watching(
        server.url, lambda: "a-token", timing=HASTY, trust=trust, request=0.3, settled=trust is TRUST
    )


@pytest.mark.parametrize("fault", Fault)
async def test_a_fault_in_every_answer(cluster: HostileSlurmrestd, fault: Fault) -> None:
    """While every answer is spoiled nothing wrong is said; afterwards all is known, without a restart."""
    async with watch(cluster) as running:
        # The real Slurm says MIXED; what is known of the jobs must be enough.
        cluster.nodes.change("suspended", state=["IDLE", "DRAIN", "DYNAMIC_NORM"])
        await running.until(lambda: well(running))
        cluster.fault = fault
        await running.always(lambda: never_wrong(running), rounds=4)
        cluster.fault = None
        await running.until(lambda: well(running) and running.view.failure is None)
        await running.until(lambda: isinstance(running.answer("never"), Absent))
        assert never_wrong(running)


@pytest.mark.parametrize("fault", Fault)
async def test_a_fault_from_the_start(cluster: HostileSlurmrestd, fault: Fault) -> None:
    """A watch that begins during a fault says nothing wrong either, and gets well when the fault ends."""
    cluster.fault = fault
    async with watch(cluster, PATIENT) as running:
        await running.always(lambda: never_wrong(running), rounds=3)
        cluster.fault = None
        await running.until(lambda: well(running) and running.view.failure is None)
        assert isinstance(running.answer("never"), Unknown)


@pytest.mark.parametrize("endpoint", ["jobs", "diag", "ping", "reservations"])
@pytest.mark.parametrize("fault", [Fault.EMPTY, Fault.HALF, Fault.UNKNOWN_WORDS, Fault.TRUNCATED, Fault.HANG])
async def test_a_fault_in_one_kind_of_answer(cluster: HostileSlurmrestd, fault: Fault, endpoint: str) -> None:
    """When only one kind of answer is spoiled, nothing wrong is said either, and the nodes stay known."""
    async with watch(cluster) as running:
        await running.until(lambda: well(running))
        cluster.fail(fault, on=endpoint)
        # A node whose job has just ended by its own state; only the jobs can tell.
        cluster.nodes.change("running", state=["IDLE", "DRAIN", "DYNAMIC_NORM"], alloc_cpus=0)
        await running.always(lambda: never_wrong(running), rounds=5)
        assert isinstance(running.answer(WORKERS[0]), Known) or fault is Fault.HANG
        cluster.jobs.change(1, job_state=["COMPLETED"])
        cluster.fault = None
        await running.until(lambda: running.verdict("running").drained)


@pytest.mark.parametrize("fault", [Fault.EMPTY, Fault.HALF])
async def test_a_short_list_is_suspicious(cluster: HostileSlurmrestd, fault: Fault) -> None:
    """An empty list, or half of one, makes all nodes unknown, those it still shows included."""
    async with watch(cluster) as running:
        cluster.fail(fault, on="nodes")
        await running.until(lambda: running.view.suspicion is not None)
        answers = {running.answer(name) for name in NAMES}
        assert len(answers) == 1
        assert {type(answer) for answer in answers} == {Unknown}
        assert running.view.suspicion is not None
        assert "missing" in running.view.suspicion
        cluster.fault = None
        await running.until(lambda: well(running))


async def test_a_server_that_goes_away_and_comes_back(cluster: HostileSlurmrestd) -> None:
    """A server that refuses connections for a while costs nothing but that while."""
    async with watch(cluster) as running:
        for _ in range(3):
            await cluster.stop()
            await running.until(lambda: isinstance(running.answer("drained"), Unknown))
            await cluster.start()
            await running.until(lambda: well(running))
