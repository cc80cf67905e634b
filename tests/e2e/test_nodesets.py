"""Workers that come, go and change while jobs run: no job is ever killed for it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from scripts.demo_cluster import OPERATOR_NAMESPACE

if TYPE_CHECKING:
    from tests.e2e.site import Job, Site

OPERATOR = "app.kubernetes.io/name=slurm-operator"


def drained(site: Site, job: Job) -> bool:
    state = site.cluster.slurm("sinfo", "--noheader", "--Node", f"--nodes={job.node}", "--format=%T").strip()
    return state.startswith("drain")


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
    site.until(lambda: any(drained(site, job) for job in jobs), "a busy worker takes no more jobs")
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
    before = {name: pod["metadata"]["uid"] for name, pod in site.pods().items()}
    changed(site, "rolled")
    idle = next(name for name in before if name != job.pod)
    site.ready_again(idle, before[idle])
    site.until(lambda: drained(site, job), "the busy worker takes no more jobs")
    job.assert_unharmed()
    assert site.uid(job.pod) == before[job.pod]
    job.end()
    site.ready_again(job.pod, before[job.pod])
    site.settled(2)


def test_drain_of_a_kubernetes_node_waits_for_jobs(site: Site) -> None:
    """`kubectl drain` cannot evict a worker while its job runs, and does afterwards."""
    site.settled(2)
    job = site.start_job()
    before = site.cluster.get("pod", job.pod)
    node = before["spec"]["nodeName"]
    selector = "--pod-selector=app.kubernetes.io/name=slurmd"
    site.until(
        lambda: job.pod in site.pods("nodeset.slinky.slurm.net/pod-protect=true"), "the pod is protected"
    )
    drain = ("drain", node, selector, "--force", "--delete-emptydir-data")
    with site.cluster.started("kubectl", *drain, "--timeout=600s") as draining:
        site.until(lambda: drained(site, job), "Slurm gives the cordoned node no more jobs")
        assert draining.poll() is None
        job.assert_unharmed()
        assert site.uid(job.pod) == before["metadata"]["uid"]
        job.end()
        said, _ = draining.communicate()
    assert draining.returncode == 0, said
    site.cluster.kubectl("uncordon", node)
    site.settled(2)


def test_deletion_waits_for_jobs(site: Site) -> None:
    """A NodeSet that is deleted goes when the last job on it has ended."""
    site.settled(2)
    other = site.nodeset()
    spec: dict[str, Any] = {**other["spec"], "replicas": 1}
    spec["template"] = {"spec": {**spec["template"]["spec"], "hostname": "spare-"}}
    identity = {"apiVersion": other["apiVersion"], "kind": "NodeSet"}
    name = "slurm-worker-spare"
    made = {**identity, "metadata": {"name": name}, "spec": spec}
    site.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(made))
    site.settled(1, name)
    job = site.start_job("spare-0")
    site.cluster.kubectl("delete", "nodeset", name, "--wait=false")
    site.until(lambda: drained(site, job), "the worker takes no more jobs")
    job.assert_unharmed()
    job.end()
    site.until(lambda: "slurm-worker-spare-0" not in site.pods(), "the worker is gone")
    site.until(
        lambda: not site.cluster.kubectl("get", "nodeset", name, "--ignore-not-found"), "so is the NodeSet"
    )


def leads(site: Site) -> bool:
    """Tell whether the operator that holds the lease is one that exists."""
    there = ("--namespace", OPERATOR_NAMESPACE)
    lease = site.cluster.get("lease", "slurm-operator", *there)
    alive = site.cluster.get("pods", f"--selector={OPERATOR}", *there)["items"]
    holder = lease["spec"].get("holderIdentity", "").partition("_")[0]
    return holder in {pod["metadata"]["name"] for pod in alive}


def test_operators_that_die_at_work_kill_no_job(site: Site) -> None:
    """Operators that are killed while they scale and update, one by one, lose no job and no change."""
    site.settled(2)
    job = site.start_job("demo-0")
    kill = ("--namespace", OPERATOR_NAMESPACE, "delete", "pod", f"--selector={OPERATOR}")
    for number in range(4):
        site.until(lambda: leads(site), "an operator leads")
        if number % 2:
            changed(site, f"killed {number}")
        else:
            site.scale(1 if number else 3)
        # Each dies at another point of its work.
        time.sleep(0.4 * number)
        site.cluster.kubectl(*kill, "--grace-period=0", "--force", "--wait=false")
        job.assert_unharmed()
    site.scale(2)
    site.until(lambda: drained(site, job), "the busy worker is waited for")
    job.assert_unharmed()
    job.end()
    site.settled(2)
    site.run_everywhere(2)
