"""Workers that belong to nodes: one on each that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.e2e.removal_commands import Worker

if TYPE_CHECKING:
    from tests.support.e2e.slurm_cluster import Site

NAME = "slurm-worker-each"
LABEL = "tests.example.com/each"
WORKER = f"app.kubernetes.io/instance={NAME}"


def test_worker_comes_and_goes_with_its_node(site: Site) -> None:
    """A node that fits has a worker; it is not evicted while busy, and goes when the node fits no more."""
    site.settled(2)
    site.scale(1)
    site.settled(1)
    taken = {pod["spec"]["nodeName"] for pod in site.pods().values()}
    free = sorted({node["metadata"]["name"] for node in site.cluster.get("nodes")["items"]} - taken)
    template = {"spec": {"nodeSelector": {LABEL: "yes"}}}
    site.make_nodeset(NAME, {"scalingMode": "DaemonSet", "template": template})
    site.settled(0, NAME)
    site.cluster.kubectl("label", "node", *free, f"{LABEL}=yes")
    site.settled(2, NAME)
    jobs = {node: site.start_job(node) for node in free}
    found = {name: pod["spec"]["nodeName"] for name, pod in site.pods(WORKER).items()}
    assert found == {job.pod: node for node, job in jobs.items()}

    workers = [Worker.of(site, job.pod) for job in jobs.values()]
    # The second one must not pass for a spare of the first.
    for worker in workers:
        worker.assert_not_evicted()
    for job, worker in zip(jobs.values(), workers, strict=True):
        job.until(job.drained, "the worker takes no more jobs")
        worker.assert_not_evicted()
    evicted = workers.pop()
    jobs.pop(evicted.node).end()
    site.until(evicted.goes_when_evicted, "the worker is evicted after its job")

    site.cluster.kubectl("label", "node", *free, f"{LABEL}-")
    for job in jobs.values():
        job.assert_unharmed()
        job.end()
    site.until(lambda: not site.pods(WORKER), "the workers are gone")
    site.cluster.kubectl("delete", "nodeset", NAME)
    site.scale(2)
    site.settled(2)
