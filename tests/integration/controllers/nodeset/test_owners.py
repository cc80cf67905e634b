"""Whose a pod is: adoption, orphans, and the end of a NodeSet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Controller, NodeSet
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.kube.models.kinds import Pod
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

DRAIN = "nodeset.slinky.slurm.net/drain"


def owner(pod: Pod) -> str:
    """Return the UID of whoever controls a pod, or nothing."""
    return pod.controller_owner.uid if pod.controller_owner else ""


async def gone(stage: Stage, name: str = "blue") -> bool:
    """Return whether a NodeSet is gone."""
    return await stage.get(NodeSet, name) is None


async def test_orphans_are_adopted_by_a_new_nodeset_of_their_name(stage: Stage) -> None:
    """Deleted with --cascade=orphan, the workers run on, and the next NodeSet of that name adopts them."""
    await stage.operator()
    await stage.nodeset(replicas=2)
    before = await stage.until_pods("blue-0", "blue-1")
    await stage.ready()
    await stage.client.delete(NodeSet, "blue", stage.namespace, propagation="Orphan")
    await eventually(lambda: gone(stage), "the NodeSet is gone")
    orphans = await stage.until(lambda pods: not any(map(owner, pods.values())), "nobody owns the pods")
    assert {*orphans} == {*before}
    await stage.nodeset(replicas=2)
    uid = (await stage.there(NodeSet, "blue")).metadata.uid
    after = await stage.until(
        lambda pods: {owner(pod) for pod in pods.values()} == {uid}, "the pods have the new owner"
    )
    await stage.ready()
    assert {pod.metadata.uid for pod in after.values()} == {pod.metadata.uid for pod in before.values()}


async def test_a_pod_with_other_labels_is_let_go(stage: Stage) -> None:
    """A worker that somebody gives to another instance is not ours any more; its name is said to be taken."""
    await stage.operator()
    await stage.nodeset(replicas=2)
    await stage.until_pods("blue-0", "blue-1")
    await stage.ready()
    await stage.patch(Pod, "blue-0", {"metadata": {"labels": {"app.kubernetes.io/instance": "mine"}}})

    async def free() -> bool:
        return owner(await stage.there(Pod, "blue-0")) == ""

    await eventually(free, "nobody owns it")
    await stage.says(NodeSet, "blue", "NameTaken", "Degraded")
    await stage.patch(Pod, "blue-0", {"metadata": {"labels": {"app.kubernetes.io/instance": "blue"}}})
    await eventually(lambda: _owned(stage, "blue-0"), "it is adopted again")
    await stage.ready()


@pytest.mark.usefixtures("slurm_cluster")
async def test_a_nodeset_goes_when_its_nodes_are_drained(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """Deleting a NodeSet drains its nodes; it and its busy pods stay until the jobs are done."""
    hostile.add_nodes("blue-[0-1]", "IDLE", "DYNAMIC_NORM")
    await stage.operator()
    await stage.nodeset(replicas=2)
    await stage.until_pods("blue-0", "blue-1")
    await stage.ready()
    busy = {"state": ["MIXED", "DYNAMIC_NORM"], "alloc_cpus": 2}
    hostile.nodes["blue-1"] = hostile.nodes["blue-1"] | busy
    await stage.until(
        lambda pods: pods["blue-1"].condition("SlurmNodeStateMixed") is not None, "the work is seen"
    )
    await stage.delete(NodeSet, "blue")
    await stage.until_pods("blue-1")

    async def counted() -> bool:
        ready = await stage.condition(NodeSet, "blue")
        return ready is not None and (ready.reason, ready.message) == ("Deleting", messages.pods_remain(1))

    await eventually(counted, "the status counts what is left")
    assert "DRAIN" in hostile.nodes["blue-1"]["state"]
    done = {"state": ["IDLE", "DRAIN", "DYNAMIC_NORM"], "alloc_cpus": 0}
    hostile.nodes["blue-1"] = hostile.nodes["blue-1"] | done
    await eventually(lambda: gone(stage), "the NodeSet is gone")


async def test_the_annotation_lets_a_nodeset_go_at_once(stage: Stage) -> None:
    """Without Slurm a NodeSet that is deleted stays with its pods, until somebody says that they may go."""
    await stage.operator()
    await stage.nodeset(replicas=1)
    await stage.until_pods("blue-0")
    await stage.ready()
    assert DRAIN in (await stage.there(NodeSet, "blue")).metadata.finalizers
    await stage.delete(NodeSet, "blue")
    await stage.says(NodeSet, "blue", "Deleting")
    await stage.until_pods("blue-0")
    annotation = {"nodeset.slinky.slurm.net/skip-drain": "true"}
    await stage.patch(NodeSet, "blue", {"metadata": {"annotations": annotation}})
    await eventually(lambda: gone(stage), "the NodeSet is gone")
    await stage.until_pods()


async def test_a_controller_that_goes_too_lets_its_nodesets_go(stage: Stage) -> None:
    """When the Controller is deleted as well there is no Slurm left to ask, and nothing is waited for."""
    await stage.operator()
    await stage.nodeset(replicas=1)
    await stage.until_pods("blue-0")
    await stage.ready()
    await stage.delete(NodeSet, "blue")
    await stage.says(NodeSet, "blue", "Deleting")
    await stage.delete(Controller, "slurm")
    await eventually(lambda: gone(stage), "the NodeSet is gone")


async def _owned(stage: Stage, name: str) -> bool:
    return owner(await stage.there(Pod, name)) == (await stage.there(NodeSet, "blue")).metadata.uid
