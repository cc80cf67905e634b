"""Machines that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scripts.demo_cluster import await_slurm, is_ready

if TYPE_CHECKING:
    from tests.e2e.site import Site


def restarts(pod: dict[str, Any]) -> int:
    return sum(container["restartCount"] for container in pod["status"]["containerStatuses"])


def test_worker_comes_back_with_its_machine(site: Site) -> None:
    """A machine that failed brings its worker back when it boots, and jobs elsewhere never noticed."""
    site.settled(2)
    job = site.start_job()
    # slurmctld may be on the machine that fails.
    job.written_down("slurm-controller-0")
    pods = site.pods()
    lost = next(name for name in pods if name != job.pod)
    node = pods[lost]["spec"]["nodeName"]
    site.box.stop(node, kill=True)
    site.until(lambda: not is_ready(site.cluster.get("node", node)), "Kubernetes sees that the node failed")
    site.box.start(node)
    site.until(lambda: is_ready(site.cluster.get("node", node)), "the node is back")

    def restarted() -> bool:
        # Until its kubelet has looked, a pod is reported as it was before.
        found = site.cluster.get("pod", lost)
        return is_ready(found) and restarts(found) > restarts(pods[lost])

    site.until(restarted, "the worker runs again")
    await_slurm(site.cluster, lambda _line: None, 2)
    site.until(job.runs, "slurmctld says that the other job runs")
    job.assert_unharmed()
    job.end()
    site.settled(2)
    site.run_everywhere(2)
