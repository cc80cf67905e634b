"""A view over a slurmrestd that lies, breaks off, hangs and babbles: never wrong, and soon well again.

Each case has a server and a watch of its own. They mostly wait, so several of them run at the same time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import product
from typing import TYPE_CHECKING, TypeVar

import pytest

from slurm_operator.slurm.decide.node_list_trust import TrustRules
from slurm_operator.slurm.model.view import Absent, Known, Unknown
from slurm_operator.slurm.watch.watcher import WatchTiming
from tests.support.slurm.fast_watch import Watching, watching
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd, job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

T = TypeVar("T")

AT_ONCE = 8
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
TRUST = TrustRules(lists=3, seconds=0.1, wide_lists=10, wide_seconds=60.0, grace=0.0)
PATIENT = TrustRules(lists=3, seconds=60.0, wide_lists=10, wide_seconds=60.0, grace=0.0)

WORKERS = tuple(f"w{index:02}" for index in range(12))
NAMES = ("drained", "running", "suspended", *WORKERS, "finished")
# Whatever else is said about them, these have no work and cannot get any.
FREE = {"drained", "finished"}


def fill(server: HostileSlurmrestd) -> None:
    """Fill a server with a cluster in which two of the nodes are drained."""
    server.add_nodes("drained", "IDLE", "DRAIN", "DYNAMIC_NORM")
    server.add_nodes("running", "MIXED", "DRAIN", "DYNAMIC_NORM", alloc_cpus=2)
    server.add_nodes("suspended", "MIXED", "DRAIN", "DYNAMIC_NORM")
    server.add_nodes(f"w[00-{len(WORKERS) - 1:02}]")
    server.add_nodes("finished", "DOWN", "DRAIN", "DYNAMIC_NORM")
    server.jobs[1] = job(1, "running")
    server.jobs[2] = job(2, "suspended", "SUSPENDED")
    server.jobs[3] = job(3, "finished", "COMPLETED")


def never_wrong(running: Watching) -> bool:
    """Return whether nothing that is said could cost a job."""
    drained = {name for name in NAMES if running.verdict(name).drained}
    absent = {name for name in NAMES if isinstance(running.answer(name), Absent)}
    return drained <= FREE and not absent


def well(running: Watching) -> bool:
    """Return whether everything that can be known is known."""
    known = all(isinstance(running.answer(name), Known) for name in NAMES)
    return known and {name for name in NAMES if running.verdict(name).drained} == FREE


@asynccontextmanager
async def watched(
    trust: TrustRules = TRUST, fault: Fault | None = None
) -> AsyncIterator[tuple[HostileSlurmrestd, Watching]]:
    """Run a server, with a fault from the start if one is given, and a watch of it."""
    async with HostileSlurmrestd() as server:
        fill(server)
        server.fault = fault
        settled = trust is TRUST
        async with watching(
            server.url, lambda: "a-token", timing=HASTY, trust=trust, request=0.3, settled=settled
        ) as running:
            yield server, running


async def each(cases: Iterable[T], attempt: Callable[[T], Awaitable[None]]) -> None:
    """Try all cases, several at a time; a failure names its case."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(case: T) -> None:
        async with places:
            try:
                await attempt(case)
            except (AssertionError, TimeoutError) as error:
                error.add_note(f"in the case of {case!r}")
                raise

    async with asyncio.TaskGroup() as group:
        for case in cases:
            group.create_task(one(case))


async def test_a_fault_in_every_answer() -> None:
    """While every answer is spoiled nothing wrong is said; afterwards all is known, without a restart."""

    async def attempt(fault: Fault) -> None:
        async with watched() as (server, running):
            # The real Slurm says MIXED; what is known of the jobs must be enough.
            server.nodes.change("suspended", state=["IDLE", "DRAIN", "DYNAMIC_NORM"])
            await running.until(lambda: well(running))
            server.fault = fault
            await running.always(lambda: never_wrong(running), rounds=4)
            server.fault = None
            await running.until(lambda: well(running) and running.view.failure is None)
            await running.until(lambda: isinstance(running.answer("never"), Absent))
            assert never_wrong(running)

    await each(Fault, attempt)


async def test_a_fault_from_the_start() -> None:
    """A watch that begins during a fault says nothing wrong either, and gets well when the fault ends."""

    async def attempt(fault: Fault) -> None:
        async with watched(PATIENT, fault) as (server, running):
            await running.always(lambda: never_wrong(running), rounds=3)
            server.fault = None
            await running.until(lambda: well(running) and running.view.failure is None)
            assert isinstance(running.answer("never"), Unknown)

    await each(Fault, attempt)


async def test_a_fault_in_one_kind_of_answer() -> None:
    """When only one kind of answer is spoiled, nothing wrong is said either, and the nodes stay known."""

    async def attempt(case: tuple[Fault, str]) -> None:
        fault, endpoint = case
        async with watched() as (server, running):
            await running.until(lambda: well(running))
            server.fail(fault, on=endpoint)
            # A node whose job has just ended by its own state; only the jobs can tell.
            server.nodes.change("running", state=["IDLE", "DRAIN", "DYNAMIC_NORM"], alloc_cpus=0)
            await running.always(lambda: never_wrong(running), rounds=5)
            await running.until(lambda: isinstance(running.answer(WORKERS[0]), Known))
            server.jobs.change(1, job_state=["COMPLETED"])
            server.fault = None
            await running.until(lambda: running.verdict("running").drained)

    faults = (Fault.EMPTY, Fault.HALF, Fault.UNKNOWN_WORDS, Fault.TRUNCATED, Fault.HANG)
    await each(product(faults, ("jobs", "jobs/state", "diag", "ping", "reservations")), attempt)


@pytest.mark.parametrize("fault", [Fault.EMPTY, Fault.HALF])
async def test_a_short_list_is_suspicious(fault: Fault) -> None:
    """An empty list, or half of one, makes all nodes unknown, those it still shows included."""
    async with watched() as (server, running):
        server.fail(fault, on="nodes")
        await running.until(lambda: running.view.suspicion is not None)
        answers = {running.answer(name) for name in NAMES}
        assert len(answers) == 1
        assert {type(answer) for answer in answers} == {Unknown}
        assert running.view.suspicion is not None
        assert "lacks" in running.view.suspicion
        server.fault = None
        await running.until(lambda: well(running))


async def test_a_server_that_goes_away_and_comes_back() -> None:
    """A server that refuses connections for a while costs nothing but that while."""
    async with watched() as (server, running):
        for _ in range(3):
            await server.stop()
            await running.until(lambda: isinstance(running.answer("drained"), Unknown))
            await server.start()
            await running.until(lambda: well(running))
