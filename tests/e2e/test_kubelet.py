"""Kubelets and daemons that hang, and nodes that are called otherwise than Kubernetes calls them."""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.console import Stopwatch
from scripts.demo_cluster import (
    KUBEBOX_VALUES,
    RELEASE,
    Cluster,
    await_slurm,
    images,
    install_operator,
    install_slurm,
    is_ready,
    real_box,
)
from tests.support.e2e.removal_commands import FIRST, SECOND, Worker, assert_drained
from tests.support.e2e.slurm_cluster import Job, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "canary"
# A liveness probe once restarted a container, and all jobs in it, after 60 s without an answer.
HANG_SECONDS = 90.0
HOST_NETWORK = "slurm-worker-host"
OTHER_NAME = "other.example.com"


def slurm_name(worker: Worker) -> str:
    """Return the name of a worker of the first NodeSet in Slurm."""
    return worker.name.removeprefix(f"{RELEASE}-worker-")


def others(site: Site, node: str) -> int:
    """Return how many pods of a node are not workers; they leave it when its kubelet is silent."""
    pods = site.cluster.get("pods", "--all-namespaces", f"--field-selector=spec.nodeName={node}")["items"]
    return sum(pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") != "slurmd" for pod in pods)


def put_canary(site: Site, worker: Worker) -> None:
    """Start a pod beside a worker that tolerates a silent kubelet for as long as pods usually do."""
    image = site.cluster.get("pod", worker.name)["spec"]["containers"][0]["image"]
    container = {"name": "wait", "image": image, "command": ["sleep", "infinity"]}
    content = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": CANARY},
        "spec": {
            "nodeName": worker.node,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }
    site.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(content))
    site.until(lambda: is_ready(site.cluster.get("pod", CANARY)), "the canary runs")


def canary_goes(site: Site) -> bool:
    """Return whether Kubernetes has begun to remove pods from the node with the silent kubelet."""
    return "deletionTimestamp" in site.cluster.get("pod", CANARY)["metadata"]


@contextmanager
def silent_kubelet(site: Site, node: str) -> Iterator[None]:
    """Freeze the kubelet of a node; its containers run on."""
    site.box.pause(f"{node}.kubelet")
    try:
        yield
    finally:
        site.box.resume(f"{node}.kubelet")


@contextmanager
def hung_slurmd(site: Site, pod: dict[str, Any]) -> Iterator[None]:
    """Freeze the slurmd of a pod; job steps run on."""
    assert site.kill(pod, "slurmd", signal.SIGSTOP)
    try:
        yield
    finally:
        assert site.kill(pod, "slurmd", signal.SIGCONT)


def restarts(pod: dict[str, Any]) -> dict[str, int]:
    return {one["name"]: one["restartCount"] for one in pod["status"]["containerStatuses"]}


def assert_survives(site: Site, job: Job, worker: Worker) -> None:
    """Wait until a kubelet that was silent is heard again, and check that its worker has not noticed."""
    site.until(lambda: CANARY not in site.pods(""), "the kubelet is back and has ended the canary")
    site.until(lambda: is_ready(worker.pod() or {}), "the worker is ready again")
    worker.assert_stays()
    site.until(job.runs, "slurmctld answers")
    job.assert_unharmed()


def test_jobs_survive_a_hung_slurmd_and_a_silent_kubelet(site: Site) -> None:
    """A slurmd that hangs for 90 s is not restarted; a worker whose kubelet is silent is not deleted."""
    site.settled(2)
    quiet, other = sorted(
        (Worker.of(site, name) for name in (FIRST, SECOND)), key=lambda one: others(site, one.node)
    )
    quiet_job, other_job = (site.start_job(slurm_name(worker)) for worker in (quiet, other))
    before = site.cluster.get("pod", other.name)
    put_canary(site, quiet)
    with hung_slurmd(site, before), silent_kubelet(site, quiet.node):
        began = time.monotonic()
        site.until(lambda: not is_ready(other.pod() or {}), "the pod with the hung slurmd is not ready")
        # The budget must hold for pods that are not ready as well.
        other.assert_not_evicted()
        site.until(lambda: canary_goes(site), "Kubernetes removes pods from the silent node")
        quiet.assert_stays()
        site.until(lambda: time.monotonic() > began + HANG_SECONDS, "the probes have had their time")
        assert restarts(other.pod() or before) == restarts(before)
    assert_survives(site, quiet_job, quiet)

    def drained() -> bool:
        # Like kubectl drain: the webhook that records the request may have been on the silent node.
        other.assert_not_evicted()
        return other_job.drained()

    other_job.until(drained, "the evicted worker takes no more jobs")
    for worker, job in ((quiet, quiet_job), (other, other_job)):
        worker.assert_stays()
        job.end()
    assert restarts(site.cluster.get("pod", quiet.name))["slurmd"] == 0
    site.until(other.goes_when_evicted, "the worker is evicted after its job")
    site.ready_again(other.name, other.uid)
    site.settled(2)


def test_host_may_have_another_name(site: Site) -> None:
    """A worker in the network of a host with another name runs jobs, and a drain waits for them."""
    site.settled(2)
    taken = {pod["spec"]["nodeName"] for pod in site.pods().values()}
    node = min({one["metadata"]["name"] for one in site.cluster.get("nodes")["items"]} - taken)
    template = {
        "spec": {
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "nodeSelector": {"kubernetes.io/hostname": node},
        }
    }
    site.box.set_hostname(node, OTHER_NAME)
    try:
        site.make_nodeset(HOST_NETWORK, {"replicas": 1, "template": template})
        site.settled(1, HOST_NETWORK)
        job = site.start_job(node)
        worker = Worker.of(site, job.pod)
        with worker.drain() as draining:
            job.until(job.drained, "Slurm gives the cordoned node no more jobs")
            worker.assert_stays()
            assert draining.poll() is None
            job.end()
            assert_drained(draining)
        worker.cordon(undo=True)
        site.settled(1, HOST_NETWORK)
        site.cluster.kubectl("delete", "nodeset", HOST_NETWORK, "--timeout=100s")
        site.until(lambda: worker.name not in site.pods(), "the worker is gone")
    finally:
        site.box.set_hostname(node, node)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("kube_programs")
def test_job_survives_a_kubelet_that_is_silent_for_five_minutes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """With the times of a usual Kubernetes, pods leave a silent node after 300 s, but not a worker."""
    say = Stopwatch(sys.stderr)
    with real_box(None, images(say), say) as box:
        cluster = Cluster(box.kubeconfig, tmp_path_factory.mktemp("silent"), say)
        install_operator(cluster)
        install_slurm(cluster, "--values", str(KUBEBOX_VALUES), "--set", "nodesets.demo.replicas=2")
        await_slurm(cluster, say, 2)
        site = Site(box, cluster, "")
        site.settled(2)
        worker = min(
            (Worker.of(site, name) for name in (FIRST, SECOND)), key=lambda one: others(site, one.node)
        )
        job = site.start_job(slurm_name(worker))
        put_canary(site, worker)
        began = time.monotonic()
        with silent_kubelet(site, worker.node):
            while not canary_goes(site):
                assert time.monotonic() < began + 900.0
                worker.assert_stays()
                time.sleep(5.0)
            assert time.monotonic() > began + 300.0
        assert_survives(site, job, worker)
        job.end()
