"""Deletions that ask no budget: by hand, by the scheduler, by a taint, with the NodeSet.

Each is refused while the worker may run a job, and carried out by the operator when it is idle.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.errors import BoxError
from slurm_operator.api import wellknown
from tests.support.e2e.removal_commands import FIRST, SECOND, Worker
from tests.support.job_killed import JobKilled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.e2e.slurm_cluster import Site

EXTRA, EXTRA_POD, EXTRA_NODE = "slurm-worker-extra", "slurm-worker-extra-0", "extra-0"
IMPORTANT = "e2e-important"
AWAY = "e2e=away:NoExecute"
ON_DELETE, ROLLING = {"type": "OnDelete"}, {"type": "RollingUpdate"}


def refused(worker: Worker) -> str:
    """Ask to delete a protected worker, and return the reason of the refusal."""
    try:
        said = worker.delete()
    except BoxError as error:
        return str(error)
    raise JobKilled(f"{worker.name} was deleted: {said}")


def test_deletion_by_hand_waits_for_jobs(site: Site) -> None:
    """`kubectl delete pod` is refused with a hint, and done when idle; so it updates `OnDelete` workers."""
    site.settled(2)
    job = site.start_job("demo-0")
    busy, idle = Worker.of(site, FIRST), Worker.of(site, SECOND)
    environment = {"name": "E2E", "value": "on delete"}
    site.patch({"updateStrategy": ON_DELETE, "slurmd": {"env": [environment]}})
    why = refused(busy)
    busy.assert_stays()
    assert "once it is idle" in why
    assert wellknown.ANNOTATION_ALLOW_DELETION in why
    # The operator may do at once what was refused: that worker is idle.
    refused(idle)
    site.ready_again(idle.name, idle.uid)
    job.until(job.drained, "the busy worker takes no more jobs")
    busy.assert_stays()
    job.end()
    site.ready_again(busy.name, busy.uid)
    site.settled(2)
    told = [pod["spec"]["containers"][0]["env"] for pod in site.pods().values()]
    assert all(environment in variables for variables in told)
    site.patch({"updateStrategy": ROLLING})


def test_override_lets_a_pod_be_deleted_at_once(site: Site) -> None:
    """With the annotation that the refusal names, `kubectl delete pod` deletes a protected worker."""
    site.settled(2)
    worker = Worker.of(site, SECOND)
    assert worker.protected()
    site.cluster.kubectl("annotate", "pod", worker.name, f"{wellknown.ANNOTATION_ALLOW_DELETION}=true")
    worker.delete()
    assert not worker.stays()
    site.ready_again(worker.name, worker.uid)
    site.settled(2)


# ------------------------------------------------------------------------------------- a worker for each path


@pytest.fixture
def extra(site: Site) -> Worker:
    """Return the worker of a NodeSet of its own, which asks for more than half of the CPUs of a node."""
    site.settled(2)
    half = f"{_cpus(site) * 600:.0f}m"
    spec = {
        "replicas": 1,
        "template": {"spec": {"hostname": "extra-"}},
        "slurmd": {**site.nodeset()["spec"]["slurmd"], "resources": {"requests": {"cpu": half}}},
    }
    if not site.cluster.kubectl("get", "nodeset", EXTRA, "--ignore-not-found"):
        site.make_nodeset(EXTRA, spec)
    site.settled(1, EXTRA)
    return Worker.of(site, EXTRA_POD)


def _cpus(site: Site) -> float:
    """Return how many CPUs a node has for pods."""
    node = site.cluster.get("nodes")["items"][0]
    text = node["status"]["allocatable"]["cpu"]
    return float(text.removesuffix("m")) / 1000 if text.endswith("m") else float(text)


@pytest.fixture
def important(site: Site) -> Iterator[str]:
    """Make a high PriorityClass, and remove it with what uses it."""
    content = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": IMPORTANT},
        "value": 1_000_000,
    }
    site.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(content))
    yield IMPORTANT
    site.cluster.kubectl("delete", "pod", IMPORTANT, "--ignore-not-found", "--grace-period=1")
    site.cluster.kubectl("delete", "priorityclass", IMPORTANT)


def _rival(site: Site, worker: Worker) -> dict[str, Any]:
    """Return a pod that has no room on the node of a worker beside it."""
    running = site.cluster.get("pod", worker.name)["spec"]["containers"]
    slurmd = next(one for one in running if one["name"] == "slurmd")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": IMPORTANT},
        "spec": {
            "priorityClassName": IMPORTANT,
            "nodeSelector": {"kubernetes.io/hostname": worker.node},
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "rival",
                    "image": slurmd["image"],
                    "command": ["sleep", "infinity"],
                    "resources": {"requests": slurmd["resources"]["requests"]},
                }
            ],
        },
    }


def test_preemption_waits_for_jobs(site: Site, extra: Worker, important: str) -> None:
    """A pod of higher priority gets the place of a busy worker when its job has ended."""
    job = site.start_job(EXTRA_NODE)
    site.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(_rival(site, extra)))
    job.until(job.drained, "the worker that is to be preempted takes no more jobs")
    extra.assert_stays()
    job.end()
    site.until(lambda: not extra.stays(), "the worker is removed")
    site.until(lambda: _runs(site, important), "the pod of higher priority runs")


def _runs(site: Site, name: str) -> bool:
    return bool(site.cluster.get("pod", name)["status"].get("phase") == "Running")


def test_taint_waits_for_jobs(site: Site, extra: Worker) -> None:
    """A `NoExecute` taint set by a person removes a busy worker when its job has ended."""
    job = site.start_job(EXTRA_NODE)
    site.cluster.kubectl("taint", "node", extra.node, AWAY)
    try:
        job.until(job.drained, "the worker on the tainted node takes no more jobs")
        extra.assert_stays()
        job.end()
        site.until(lambda: not extra.stays(), "the worker is removed")
    finally:
        site.cluster.kubectl("taint", "node", extra.node, f"{AWAY}-")


def test_deleted_nodeset_leaves_its_workers_or_waits_for_them(site: Site, extra: Worker) -> None:
    """`--cascade=orphan` leaves workers that a new NodeSet adopts; `--cascade=foreground` waits for jobs."""
    job = site.start_job(EXTRA_NODE)
    nodeset = site.nodeset(EXTRA)
    site.cluster.kubectl("delete", "nodeset", EXTRA, "--cascade=orphan", "--timeout=100s")
    job.assert_unharmed()
    extra.assert_stays()
    assert not site.cluster.get("pod", EXTRA_POD)["metadata"].get("ownerReferences")
    site.make_nodeset(EXTRA, nodeset["spec"])
    site.settled(1, EXTRA)
    extra.assert_stays()
    site.cluster.kubectl("delete", "nodeset", EXTRA, "--cascade=foreground", "--wait=false")
    job.until(job.drained, "the worker takes no more jobs")
    extra.assert_stays()
    job.end()
    site.until(lambda: EXTRA_POD not in site.pods(), "the worker is gone")
    site.until(
        lambda: not site.cluster.kubectl("get", "nodeset", EXTRA, "--ignore-not-found"), "so is the NodeSet"
    )
