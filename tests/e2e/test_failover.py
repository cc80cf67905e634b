"""slurmctld that fails while another one stands by, and what users and jobs see of it."""

from __future__ import annotations

import re
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from scripts.demo_cluster import is_ready
from tests.support.e2e.slurm_cluster import SBATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.e2e.slurm_cluster import Site

SLURMCTLD = "app.kubernetes.io/name=slurmctld"
ACTIVE = f"{SLURMCTLD},controller.slinky.slurm.net/active=true"
FIRST, SECOND = "slurm-controller-0", "slurm-controller-1"


def submit(pair: Site) -> str:
    """Submit a job that ends at once, and return its number."""
    return pair.cluster.slurm("timeout", "60", *SBATCH, "--wrap=true").strip()


def leads(pair: Site, name: str) -> bool:
    """Return whether clients are led to one slurmctld and to no other."""
    return set(pair.pods(ACTIVE)) == {name} and is_ready(pair.pods(SLURMCTLD)[name])


@contextmanager
def full_nodes(pair: Site) -> Iterator[None]:
    """Let no node take a pod more; those that are there run on."""
    pair.cluster.kubectl("taint", "nodes", "--all", "e2e=full:NoSchedule")
    try:
        yield
    finally:
        pair.cluster.kubectl("taint", "nodes", "--all", "e2e-")


def waits_for_a_node(pair: Site, name: str, old: str) -> bool:
    """Return whether a pod has been recreated and has no address."""
    found = pair.cluster.get("pod", name)
    return found["metadata"]["uid"] != old and not found["status"].get("podIP")


def timed(pair: Site, *command: str) -> float:
    """Run a command of Slurm, and return how long it took."""
    began = time.monotonic()
    pair.cluster.slurm("timeout", "60", *command)
    return time.monotonic() - began


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


@pytest.mark.long
def test_first_slurmctld_has_nowhere_to_run(pair: Site) -> None:
    """While the first slurmctld waits for a node, its standby serves, and then gives back a whole queue."""
    pair.until(lambda: leads(pair, FIRST), "the first slurmctld is in charge")
    job = pair.start_job()
    job.written_down(FIRST)
    uid = pair.uid(FIRST)
    with full_nodes(pair):
        pair.cluster.kubectl("delete", "pod", FIRST, "--wait=false")
        pair.until(lambda: waits_for_a_node(pair, FIRST, uid), "the first slurmctld waits for a node")
        pair.until(lambda: submit(pair), "jobs are taken again")
        pair.until(lambda: SECOND in pair.pods(ACTIVE), "clients are led to the standby")
        conf = pair.cluster.get("configmap", "slurm-config")["data"]["slurm.conf"]
        for address in re.findall(r"^SlurmctldHost=.*\((.*)\)$", conf, re.MULTILINE):
            # Every command looks up all of them, and tries for long before it goes on without one.
            assert pair.cluster.slurm("getent", "hosts", address)
        for command in (("sinfo",), (*SBATCH, "--wrap=true")):
            seconds = timed(pair, *command)
            pair.figures.append(f"{seconds:6.1f} s  {command[0]} while the first slurmctld waits for a node")
        later = pair.start_job()
        later.written_down(SECOND)
        job.assert_unharmed()
        assert waits_for_a_node(pair, FIRST, uid)
    seconds = pair.until(lambda: leads(pair, FIRST), "the first slurmctld is in charge again")
    pair.figures.append(f"{seconds:6.1f} s  from a free node until the first slurmctld is in charge again")
    for each in (job, later):
        pair.until(each.runs, "the first slurmctld knows the job")
        each.assert_unharmed()
        each.end()
