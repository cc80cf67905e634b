"""An autoscaled NodeSet on real nodes, and what Slurm and Kubernetes say about it."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scripts.demo_cluster import is_ready
from tests.support.e2e.slurm_cluster import SBATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.e2e.slurm_cluster import Site

NAME = "slurm-worker-elastic"
POD = f"app.kubernetes.io/name=slurmd,app.kubernetes.io/instance={NAME}"
MOST = 3
IDLE_SECONDS = 10
SCALING = {
    "minReplicas": 0,
    "maxReplicas": MOST,
    "idleSeconds": IDLE_SECONDS,
    "resumeTimeoutSeconds": 120,
    "suspendTimeoutSeconds": 15,
}
SPEC: dict[str, Any] = {
    "replicas": 1,
    "autoscaling": SCALING,
    "extraConf": "CPUs=1 RealMemory=64 Features=fast",
    "partition": {"enabled": True, "config": "State=UP"},
    "template": {"spec": {"hostname": "elastic-", "terminationGracePeriodSeconds": 10}},
}
# A job that ends when its test says so.
HELD = "until [ -e /run/end-$SLURM_JOB_ID ]; do sleep 0.2; done"


def states(site: Site, partition: str = "elastic") -> dict[str, str]:
    """Return the state of each node of the NodeSet, as sinfo shows it."""
    told = site.cluster.slurm("sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N %t")
    return dict(line.split() for line in told.splitlines() if line.strip())


def powered_down(site: Site) -> bool:
    """Return whether Slurm has all nodes, powered down, and no pod is left."""
    found = states(site)
    return len(found) == MOST and set(found.values()) == {"idle~"} and not site.pods(POD)


@contextmanager
def elastic(site: Site, spec: dict[str, Any], workers: int = 2) -> Iterator[None]:
    """Make room for three more workers and a NodeSet of them; remove it, and give the room back."""
    site.settled(workers)
    site.scale(0)
    site.until(lambda: not site.pods(), "no worker is left")
    site.make_nodeset(NAME, spec)
    try:
        yield
    finally:
        # A job that a failed test left would keep its worker.
        site.cluster.slurm("scancel", "--user=root")
        site.cluster.kubectl("delete", "nodeset", NAME, "--timeout=100s")
        site.until(
            lambda: "CLOUD" not in site.cluster.slurm("scontrol", "show", "nodes"), "no record is left"
        )
        site.scale(workers)
        site.settled(workers)


def submit(site: Site, *options: str, partition: str = "elastic") -> str:
    """Submit a job to the autoscaled partition, and return its number."""
    line = site.cluster.slurm(*SBATCH, f"--partition={partition}", *options)
    return line.strip().partition(";")[0]


def told(site: Site, job: str, field: str = "JobState") -> str:
    """Return what slurmctld says of a job."""
    text = site.cluster.slurm("scontrol", "--oneliner", "show", "job", job)
    return text.partition(f"{field}=")[2].split()[0]


def completed(site: Site, job: str) -> float:
    """Wait until a job has run, and return for how many seconds."""
    return site.until(lambda: told(site, job) == "COMPLETED", f"job {job} has run")


def let_end(site: Site, job: str, ordinal: int) -> None:
    """Tell a held job to end, and wait until it has: in its first run."""
    touch = ("touch", f"/run/end-{job}")
    site.cluster.kubectl("exec", f"{NAME}-{ordinal}", "--container=slurmd", "--", *touch)
    completed(site, job)
    assert told(site, job, "Restarts") == "0"


def condition(site: Site) -> str:
    """Return what the NodeSet says about power saving."""
    found = site.nodeset(NAME)["status"]["conditions"]
    return next((str(one["message"]) for one in found if one["type"] == "Autoscaling"), "")


def timeline(site: Site, job: str, began: float) -> str:
    """Follow a job of all nodes until it has run, and say when each step was first seen.

    One look takes about a second, so a step may have been up to that much earlier.
    """
    seen: dict[str, float] = {}

    def look() -> bool:
        shown, pods, state = [*states(site).values()], [*site.pods(POD).values()], told(site, job)
        now = time.monotonic() - began
        up = len(shown) == MOST and all(one in {"mix", "alloc", "idle", "comp"} for one in shown)
        steps = {
            "powering up": any(one.endswith("#") for one in shown) or up,
            "pods created": len(pods) == MOST,
            "ready": len(pods) == MOST and all(map(is_ready, pods)),
            "registered": up,
            "running": state in {"RUNNING", "COMPLETING", "COMPLETED"},
            "completed": state == "COMPLETED",
        }
        for step, reached in steps.items():
            if reached:
                seen.setdefault(step, now)
        return state == "COMPLETED"

    site.until(look, f"job {job} has run on all workers")
    return ", ".join(f"{step} {seconds:.1f} s" for step, seconds in seen.items())


def without_autoscaling(crd: dict[str, Any]) -> str:
    """Return the CRD of NodeSets without `autoscaling`, which the one of Slinky slurm-operator lacks."""
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("autoscaling", None)
    crd["metadata"].pop("resourceVersion", None)
    return json.dumps(crd)
