"""Nodes that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scripts.demo_cluster import await_slurm, is_ready

if TYPE_CHECKING:
    from tests.support.e2e.slurm_cluster import Site


def restarts(pod: dict[str, Any]) -> int:
    return sum(container["restartCount"] for container in pod["status"]["containerStatuses"])


def beside_database(site: Site, pods: dict[str, dict[str, Any]]) -> str:
    """Return a worker, the one on the node of the database if there is one."""
    (database,) = site.pods("app.kubernetes.io/name=mariadb").values()
    node = database["spec"]["nodeName"]
    return next((name for name, pod in pods.items() if pod["spec"]["nodeName"] == node), min(pods))


def test_worker_comes_back_with_its_node(site: Site) -> None:
    """A node that failed brings its worker back when it boots, and jobs elsewhere are not disturbed."""
    site.settled(2)
    pods = site.pods()
    # The node with the database must not fail: slurmdbd may wait for a quarter of an hour on the connection
    # to a database that ended without closing it (docs/operations/node-failure.md), and records no job.
    kept = beside_database(site, pods)
    job = site.start_job(pods[kept]["spec"]["hostname"])
    # slurmctld may be on the node that fails.
    job.written_down("slurm-controller-0")
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
