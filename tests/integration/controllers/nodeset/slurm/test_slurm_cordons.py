"""Nodes that take no new jobs because of a cordon in Kubernetes, or because a person said so in Slurm."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.models.kinds import Node
from tests.support.jobs.background_scenarios import EVERY_RELEASE, REAL
from tests.support.jobs.slurm_namespace import POOL

if TYPE_CHECKING:
    from tests.support.jobs.job_ledger import Ledger
    from tests.support.jobs.slurm_namespace import Site
    from tests.support.jobs.timings import Measured

pytestmark = REAL


@EVERY_RELEASE
async def test_kubectl_cordon(site: Site, ledger: Ledger) -> None:
    """The workers of a cordoned node drain for the reason it gives and stay; an uncordon takes that back."""
    node_name = f"{site.namespace}-rack"
    await site.nodes("rack", [node_name])
    await site.nodeset("rack", 2, pool="rack")
    await site.settled("rack", 2)
    names = ["rack-0", "rack-1"]
    await site.idle(names)
    uids = site.uids("rack")
    await ledger.start(["rack-0"])
    reason = {wellknown.ANNOTATION_NODE_CORDON_REASON: "fan 3 is loud"}
    await site.client.patch(Node, node_name, "", {"metadata": {"annotations": reason}}, type=PatchType.MERGE)
    await asyncio.to_thread(site.kube.kubectl, "cordon", node_name)
    for name in names:
        await site.drained(name, "slurm-operator: fan 3 is loud")
    ledger.check()
    await asyncio.to_thread(site.kube.kubectl, "uncordon", node_name)
    for name in names:
        await site.undrained(name)
    await site.until(lambda: not any(map(site.cordoned, names)), "no mark is left on the pods")
    assert site.uids("rack") == uids
    await ledger.settle()


async def test_a_drain_by_a_person_is_never_undone(site: Site, ledger: Ledger) -> None:
    """A node that a person has drained stays drained, whatever else happens, and is in nobody's way."""
    await site.nodeset("hands", 3)
    await site.settled("hands", 3)
    names = [f"hands-{number}" for number in range(3)]
    await site.idle(names)
    jobs = await ledger.start(["hands-0", "hands-1"])
    for name in ("hands-1", "hands-2"):
        await site.scontrol("update", f"NodeName={name}", "State=DRAIN", "Reason=bad DIMM")
    await site.scale("hands", 4)
    await site.settled("hands", 4)
    await site.seen_draining("hands-1", "hands-2")
    await site.seen_busy("hands-0", "hands-1")
    for name in ("hands-1", "hands-2"):
        await site.drained(name, "bad DIMM")
    await site.kill_operator()
    site.start_operator()
    # hands-2 is free and drained already, so it may go like any other; hands-1 has a job.
    await site.annotate("hands-0", {wellknown.ANNOTATION_POD_DELETION_COST: "10"})
    await site.scale("hands", 1)
    await site.left("hands", "hands-0", "hands-1")
    await site.blocked("hands", "JobsRunning", 1)
    await site.drained("hands-1", "bad DIMM")
    await ledger.end(jobs["hands-1"])
    await site.settled("hands", 1)
    await site.scale("hands", 3)
    await site.settled("hands", 3)
    for name in ("hands-1", "hands-2"):
        await site.drained(name, "bad DIMM")
    await ledger.settle()


async def test_a_cordon_by_a_person_is_kept(site: Site, ledger: Ledger) -> None:
    """A pod that a person has cordoned drains and stays so until that person takes the annotation away."""
    node_name = f"{site.namespace}-desk"
    await site.nodes("desk", [node_name])
    await site.nodeset("desk", 2, pool="desk")
    await site.settled("desk", 2)
    names = ["desk-0", "desk-1"]
    await site.idle(names)
    await ledger.start(["desk-0"])
    await site.annotate("desk-0", {wellknown.ANNOTATION_POD_CORDON: "true"})
    ours = f"slurm-operator: NodeSet ({site.namespace}/desk) has this node in a pod that was cordoned"
    await site.drained("desk-0", ours)
    await asyncio.to_thread(site.kube.kubectl, "cordon", node_name)
    await site.drained("desk-1")
    await asyncio.to_thread(site.kube.kubectl, "uncordon", node_name)
    await site.undrained("desk-1")
    await site.drained("desk-0", ours)
    assert site.cordoned("desk-0")
    await site.annotate("desk-0", {wellknown.ANNOTATION_POD_CORDON: None})
    await site.undrained("desk-0")
    await ledger.settle()


async def test_workers_follow_the_nodes(site: Site, ledger: Ledger, measured: Measured) -> None:
    """In DaemonSet mode a node that comes gets a worker, and one that leaves keeps it until its job ends."""
    node_names = [f"{site.namespace}-d{number}" for number in range(3)]
    await site.nodes("follow", node_names[:2])
    await site.nodeset("follow", pool="follow", scalingMode="DaemonSet")
    await site.settled("follow", 2)
    await site.idle(node_names[:2])
    await site.nodes("follow", node_names[2:])
    await site.settled("follow", 3)
    await site.idle(node_names)
    assert {pod.spec.node_name for pod in site.pods("follow").values()} == {*node_names}
    jobs = await ledger.start(node_names[:1])
    await asyncio.to_thread(site.kube.kubectl, "label", "node", node_names[0], f"{POOL}-")
    await site.blocked("follow", "JobsRunning", 1)
    await site.drained(node_names[0])
    await asyncio.to_thread(site.kube.kubectl, "label", "node", node_names[1], f"{POOL}-")
    await site.until(
        lambda: (
            {pod.spec.node_name for pod in site.pods("follow").values()} == {node_names[0], node_names[2]}
        ),
        "the worker of a node without jobs goes at once",
    )
    (name,) = (name for name, pod in site.pods("follow").items() if pod.spec.node_name == node_names[0])
    await ledger.end(jobs[node_names[0]])
    await site.settled("follow", 1)
    site.outlived(name, ledger, jobs[node_names[0]], measured, "Kubernetes node no longer fits")
    await asyncio.to_thread(site.kube.kubectl, "label", "node", node_names[0], f"{POOL}=follow")
    await site.settled("follow", 2)
    await site.idle([node_names[0], node_names[2]])
    await ledger.settle()
