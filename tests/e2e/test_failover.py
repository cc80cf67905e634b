"""slurmctld that fails while another one stands by, and what users and jobs see of it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from scripts.demo_cluster import is_ready
from tests.e2e.site import SBATCH

if TYPE_CHECKING:
    from tests.e2e.site import Site

SLURMCTLD = "app.kubernetes.io/name=slurmctld"
ACTIVE = f"{SLURMCTLD},controller.slinky.slurm.net/active=true"
FIRST, SECOND = "slurm-controller-0", "slurm-controller-1"


def submit(pair: Site) -> str:
    """Submit a job that ends at once, and return its number."""
    return pair.cluster.slurm("timeout", "60", *SBATCH, "--wrap=true").strip()


def leads(pair: Site, name: str) -> bool:
    """Tell whether clients are led to one slurmctld and to no other."""
    return set(pair.pods(ACTIVE)) == {name} and is_ready(pair.pods(SLURMCTLD)[name])


def test_crashed_slurmctld_is_back(pair: Site) -> None:
    """A slurmctld that is killed is started again in its pod; its job runs on, and jobs are taken again."""
    pair.until(lambda: leads(pair, FIRST), "the first slurmctld is in charge")
    job = pair.start_job()
    job.written_down(FIRST)
    assert pair.kill(pair.pods(SLURMCTLD)[FIRST], "slurmctld")
    seconds = pair.until(lambda: submit(pair), "jobs are taken again")
    pair.figures.append(f"{seconds:6.1f} s  from kill -9 of slurmctld until sbatch works")
    pair.until(job.runs, "the new slurmctld knows the job")
    job.assert_unharmed()
    job.end()


def test_standby_takes_over(pair: Site) -> None:
    """A slurmctld that stands by goes on with the queue when the first one hangs, and gives it back later."""
    pair.until(lambda: leads(pair, FIRST), "the first slurmctld is in charge")
    job = pair.start_job()
    job.written_down(FIRST)
    first = pair.pods(SLURMCTLD)[FIRST]
    assert pair.kill(first, "slurmctld", signal.SIGSTOP)
    seconds = pair.until(lambda: submit(pair), "jobs are taken again")
    assert leads(pair, SECOND)
    pair.figures.append(f"{seconds:6.1f} s  from the hang of slurmctld until sbatch works with its standby")
    job.assert_unharmed()
    later = pair.start_job()
    # Unless its kubelet has done so by now.
    pair.kill(first, "slurmctld")
    seconds = pair.until(lambda: leads(pair, FIRST), "the first slurmctld is in charge again")
    pair.figures.append(f"{seconds:6.1f} s  from the end of that slurmctld until it is in charge again")
    for each in (job, later):
        pair.until(each.runs, "the first slurmctld knows the job")
        each.assert_unharmed()
        each.end()
