"""Workers that belong to machines: one on each that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.site import Site

NAME = "slurm-worker-each"
LABEL = "tests.example.com/each"
WORKER = f"app.kubernetes.io/instance={NAME}"


def test_worker_comes_and_goes_with_its_machine(site: Site) -> None:
    """A machine that fits gets a worker; when it fits no more, its worker goes, after its last job."""
    site.settled(2)
    taken = {pod["spec"]["nodeName"] for pod in site.pods().values()}
    free = min({node["metadata"]["name"] for node in site.cluster.get("nodes")["items"]} - taken)
    template = {"spec": {"nodeSelector": {LABEL: "yes"}}}
    site.make_nodeset(NAME, {"scalingMode": "DaemonSet", "template": template})
    site.settled(0, NAME)
    site.cluster.kubectl("label", "node", free, f"{LABEL}=yes")
    site.settled(1, NAME)
    job = site.start_job(free)
    assert {name: pod["spec"]["nodeName"] for name, pod in site.pods(WORKER).items()} == {job.pod: free}
    site.cluster.kubectl("label", "node", free, f"{LABEL}-")
    site.until(job.drained, "the worker takes no more jobs")
    job.assert_unharmed()
    job.end()
    site.until(lambda: not site.pods(WORKER), "the worker is gone")
    site.cluster.kubectl("delete", "nodeset", NAME)
