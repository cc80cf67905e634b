"""Workers that come, go and change while jobs run: no job is ever killed for it."""

from __future__ import annotations

import json
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from scripts.demo_cluster import OPERATOR_NAMESPACE
from tests.support.e2e.slurm_cluster import rolled

if TYPE_CHECKING:
    from tests.support.e2e.slurm_cluster import Site

OPERATOR = "app.kubernetes.io/name=slurm-operator"


def changed(site: Site, value: str) -> None:
    site.patch({"slurmd": {"env": [{"name": "E2E", "value": value}]}})


def test_scaling_waits_for_jobs(site: Site) -> None:
    """Workers come at once; of those that are to go, idle ones go at once and busy ones after their jobs."""
    site.scale(3)
    site.settled(3)
    site.run_everywhere(3)
    jobs = [site.start_job("demo-1"), site.start_job("demo-2")]
    site.scale(1)
    site.until(lambda: len(site.pods()) == 2, "the idle worker is gone")
    site.until(lambda: any(job.drained() for job in jobs), "a busy worker takes no more jobs")
    for job in jobs:
        job.assert_unharmed()
        job.end()
    site.settled(1)
    site.scale(2)
    site.settled(2)


def test_update_waits_for_jobs(site: Site) -> None:
    """A changed template replaces the idle worker at once and the busy one when its job has ended."""
    site.settled(2)
    job = site.start_job()
    before = site.uids()
    changed(site, "rolled")
    rolled(site, job, before)


def test_deletion_waits_for_jobs(site: Site) -> None:
    """A NodeSet that is deleted goes when the last job on it has ended."""
    site.settled(2)
    name = "slurm-worker-spare"
    site.make_nodeset(name, {"replicas": 1, "template": {"spec": {"hostname": "spare-"}}})
    site.settled(1, name)
    job = site.start_job("spare-0")
    site.cluster.kubectl("delete", "nodeset", name, "--wait=false")
    site.until(job.drained, "the worker takes no more jobs")
    job.assert_unharmed()
    job.end()
    site.until(lambda: "slurm-worker-spare-0" not in site.pods(), "the worker is gone")
    site.until(
        lambda: not site.cluster.kubectl("get", "nodeset", name, "--ignore-not-found"), "so is the NodeSet"
    )


# The same moments again: E2E_SEED=123 make test PYTEST_ARGS=tests/e2e
SEED = int(os.environ.get("E2E_SEED") or random.SystemRandom().randrange(10**6))
# A sample in CI, and ten where there is time for them.
KILLS = pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.long)])
THERE = ("--namespace", OPERATOR_NAMESPACE)


def operators(site: Site) -> dict[str, dict[str, Any]]:
    items = site.cluster.get("pods", f"--selector={OPERATOR}", *THERE)["items"]
    return {pod["metadata"]["name"]: pod for pod in items}


def leader(site: Site) -> str:
    """Return the operator that holds the Lease, if there is such a pod; else nothing."""
    lease = site.cluster.get("lease", "slurm-operator", *THERE)
    holder: str = (lease["spec"].get("holderIdentity") or "").partition("_")[0]
    return holder if holder in operators(site) else ""


def crash(site: Site, *, release: bool) -> None:
    """Kill the operator that leads; `release` spares the next one the time until the Lease expires."""
    name = leader(site)
    assert site.kill(operators(site)[name], "slurm-operator")
    if release:
        # Nobody can mind: its holder is dead.
        free = json.dumps({"spec": {"holderIdentity": ""}})
        site.cluster.kubectl(*THERE, "patch", "lease", "slurm-operator", "--type=merge", f"--patch={free}")
    # Kubernetes would wait longer each time before it starts the same container again.
    site.cluster.kubectl(*THERE, "delete", "pod", name, "--grace-period=0", "--force", "--wait=false")


@KILLS
def test_operators_that_die_at_work_kill_no_job(site: Site, kills: int) -> None:
    """Operators that are killed while they scale and update, several in a row, lose no job and no change."""
    chance = random.Random(SEED)  # noqa: S311 - to choose moments
    site.figures.append(f"          {kills} operators were killed with E2E_SEED={SEED}")
    site.settled(2)
    job = site.start_job("demo-0")
    for number in range(kills):
        site.until(lambda: leader(site), "an operator leads")
        if number % 2:
            changed(site, f"killed {number}")
        else:
            site.scale(chance.choice((1, 3)))
        # Each dies at another point of its work.
        time.sleep(chance.uniform(0, 3))
        crash(site, release=number != kills // 2)
    site.until(lambda: leader(site), "an operator leads")
    site.scale(2)
    changed(site, "last")
    site.until(job.drained, "the busy worker is waited for")
    job.assert_unharmed()
    job.end()
    site.settled(2)
    site.run_everywhere(2)
    told = [pod["spec"]["containers"][0]["env"] for pod in site.pods().values()]
    assert all({"name": "E2E", "value": "last"} in variables for variables in told)
