"""Evictions: whatever asks for one, it waits for the jobs of the worker and is then carried out."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.e2e.removal_commands import (
    FIRST,
    SECOND,
    Worker,
    assert_drained,
    no_operator,
    no_slurmrestd,
    note,
)

if TYPE_CHECKING:
    from tests.support.e2e.slurm_cluster import Site

BOTH = ("demo-0", "demo-1")
# Of two workers each: a sample in CI, and twenty drains where there is time for them.
ROUNDS = pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.long)])


@ROUNDS
def test_fresh_job_survives_the_drain_of_its_node(site: Site, rounds: int) -> None:
    """`kubectl drain` in the second in which a job starts waits for the job, and then completes by itself."""
    samples = []
    for _ in range(rounds):
        site.settled(2)
        with ExitStack() as stack:
            drains = []
            for name in BOTH:
                job = site.start_job(name)
                worker = Worker.of(site, job.pod)
                drains.append((job, worker, stack.enter_context(worker.drain())))
            for job, worker, draining in drains:
                job.until(job.drained, "Slurm gives the cordoned node no more jobs")
                worker.assert_stays()
                assert draining.poll() is None
                job.tell_to_end()
                samples.append(worker.released())
                job.assert_ended()
                assert_drained(draining)
                worker.cordon(undo=True)
    site.settled(2)
    note(site, "from a job's end until its worker may be evicted", samples)


@ROUNDS
def test_idle_worker_is_released_when_its_node_is_cordoned(site: Site, rounds: int) -> None:
    """The cordon of a node drains an idle worker and then ends its protection; uncordon restores both."""
    samples = []
    for _ in range(rounds):
        site.settled(2)
        for name in (FIRST, SECOND):
            worker = Worker.of(site, name)
            assert worker.protected()
            worker.cordon()
            samples.append(worker.released())
            worker.cordon(undo=True)
            site.until(worker.protected, "the worker is protected again")
    site.settled(2)
    note(site, "from the cordon of an idle worker until it may be evicted", samples)


def test_eviction_waits_while_idleness_cannot_be_confirmed(site: Site) -> None:
    """Without slurmrestd or the operator no worker is evicted; with both back every request is done."""
    site.settled(2)
    with ExitStack() as stack:
        with no_slurmrestd(site):
            first = site.start_job("demo-0")
            drained, evicted = Worker.of(site, FIRST), Worker.of(site, SECOND)
            draining = stack.enter_context(drained.drain())
            drained.assert_not_evicted()
            with no_operator(site):
                second = site.start_job("demo-1")
                for worker in (drained, evicted):
                    worker.assert_not_evicted()
            for job in (first, second):
                job.assert_unharmed()
                job.end()
            for worker in (drained, evicted):
                # They are idle, but that is not known.
                assert worker.evict() == 429
            assert draining.poll() is None
        site.until(evicted.goes_when_evicted, "the worker is evicted")
        assert_drained(draining)
    drained.cordon(undo=True)
    for worker in (drained, evicted):
        site.ready_again(worker.name, worker.uid)
    site.settled(2)


def test_eviction_waits_during_a_scale_in(site: Site) -> None:
    """While busy workers are scaled in, neither they nor those that stay can be evicted."""
    site.settled(2)
    jobs = [site.start_job(name) for name in BOTH]
    workers = [Worker.of(site, job.pod) for job in jobs]
    site.scale(1)
    site.until(lambda: any(job.drained() for job in jobs), "a busy worker takes no more jobs")
    for worker in workers:
        worker.assert_not_evicted()
    # A request to remove the worker that stays drains it as well.
    site.until(lambda: all(job.drained() for job in jobs), "both take no more jobs")
    for job, worker in zip(jobs, workers, strict=True):
        worker.assert_not_evicted()
        job.assert_unharmed()
        job.end()
    for worker in workers:
        site.until(worker.goes_when_evicted, "the worker is removed")
    site.settled(1)
    site.scale(2)
    site.settled(2)


def test_repeated_evictions_succeed(site: Site) -> None:
    """A bare eviction, repeated, removes an idle worker within seconds and a busy one after its job."""
    site.settled(2)
    job = site.start_job("demo-0")
    busy, idle = Worker.of(site, FIRST), Worker.of(site, SECOND)
    busy.assert_not_evicted()
    seconds = site.until(idle.goes_when_evicted, "the idle worker is evicted")
    site.figures.append(f"{seconds:6.1f} s  from the first bare eviction of an idle worker until it goes")
    job.until(job.drained, "the busy worker takes no more jobs")
    busy.assert_not_evicted()
    job.assert_unharmed()
    job.tell_to_end()
    seconds = site.until(busy.goes_when_evicted, "the worker is evicted after its job")
    job.assert_ended()
    site.figures.append(f"{seconds:6.1f} s  from a job's end until bare evictions of its worker succeed")
    for worker in (busy, idle):
        site.ready_again(worker.name, worker.uid)
    site.settled(2)
