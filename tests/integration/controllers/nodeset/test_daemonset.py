"""One worker on each Kubernetes node that matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import NodeSet
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.models.kinds import Pod
    from tests.support.controllers.kubernetes_nodes import NodePool
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

HOSTNAME = "nodeset.slinky.slurm.net/hostname-override"
TAINTED = {"spec": {"taints": [{"key": "held", "value": "back", "effect": "NoSchedule"}]}}


def daemons(node_pool: NodePool, **labels: str) -> dict[str, Any]:
    """Return the spec of a NodeSet with a worker on each node of the pool that has these labels."""
    return {
        "scalingMode": "DaemonSet",
        "template": {"spec": {"nodeSelector": node_pool.selector | labels}},
    }


def places(pods: dict[str, Pod]) -> set[str]:
    """Return the names of the Kubernetes nodes under pods."""
    return {pod.target_node for pod in pods.values()}


@pytest.mark.usefixtures("slurm_cluster")
async def test_workers_follow_the_nodes(
    stage: Stage, node_pool: NodePool, hostile: HostileSlurmrestd
) -> None:
    """A node that comes or is labelled gets its worker at once; one that no longer fits loses it."""
    first = await node_pool.add(node_pool.name(1), colour="blue")
    second = await node_pool.add(node_pool.name(2))
    await stage.operator()
    await stage.nodeset(**daemons(node_pool, colour="blue"))
    pods = await stage.until(lambda pods: places(pods) == {first}, "the first Kubernetes node has a worker")
    (pod,) = pods.values()
    assert pod.spec.hostname == first
    await stage.ready()
    await node_pool.patch(second, {"metadata": {"labels": {"colour": "blue"}}})
    await stage.until(lambda pods: places(pods) == {first, second}, "the second has one, too")
    third = await node_pool.add(
        node_pool.name(3), colour="blue", annotations={HOSTNAME: f"other-{node_pool.pool}"}
    )
    pods = await stage.until(lambda pods: places(pods) == {first, second, third}, "and the third")
    assert {pod.spec.hostname for pod in pods.values()} == {first, second, f"other-{node_pool.pool}"}
    hostile.add_nodes(f"{first},{second},other-{node_pool.pool}", "IDLE", "DYNAMIC_NORM")
    await stage.counts(desired=3, available_replicas=3)
    await node_pool.patch(second, {"metadata": {"labels": {"colour": "red"}}})
    await stage.until(lambda pods: places(pods) == {first, third}, "the red Kubernetes node lost its worker")
    assert "DRAIN" in hostile.nodes[second]["state"]
    assert hostile.nodes[second]["reason"].startswith("slurm-operator: ")


@pytest.mark.usefixtures("slurm_cluster")
async def test_a_cordon_drains_the_worker_and_keeps_it(
    stage: Stage, node_pool: NodePool, hostile: HostileSlurmrestd
) -> None:
    """`kubectl cordon` drains the node in Slurm with the reason that is given; uncordon takes it back."""
    first = await node_pool.add(node_pool.name(1))
    hostile.add_nodes(first, "IDLE", "DYNAMIC_NORM")
    await stage.operator()
    await stage.nodeset(**daemons(node_pool))
    before = await stage.until(lambda pods: places(pods) == {first}, "there is a worker")
    await stage.ready()
    await node_pool.patch(
        first,
        {
            "spec": {"unschedulable": True},
            "metadata": {"annotations": {"nodeset.slinky.slurm.net/node-cordon-reason": "disk is full"}},
        },
    )
    await eventually(lambda: "DRAIN" in hostile.nodes[first]["state"], "the node is drained")
    assert hostile.nodes[first]["reason"] == "slurm-operator: disk is full"
    (name,) = before
    pods = await stage.until(
        lambda pods: pods[name].metadata.annotations.get("nodeset.slinky.slurm.net/pod-cordon") == "true",
        "the pod is cordoned",
    )
    assert {pod.metadata.uid for pod in pods.values()} == {pod.metadata.uid for pod in before.values()}
    await node_pool.patch(first, {"spec": {"unschedulable": None}})
    await eventually(lambda: "DRAIN" not in hostile.nodes[first]["state"], "the drain is taken back")
    await stage.until(
        lambda pods: "nodeset.slinky.slurm.net/pod-cordon" not in pods[name].metadata.annotations,
        "the pod is not cordoned any more",
    )


async def test_a_taint_keeps_new_workers_away_and_lets_old_ones_stay(
    stage: Stage, node_pool: NodePool
) -> None:
    """A node with a taint that workers do not tolerate gets none; one that has a worker keeps it."""
    first, second = await node_pool.add(node_pool.name(1)), await node_pool.add(node_pool.name(2))
    await node_pool.patch(second, TAINTED)
    await stage.operator()
    await stage.nodeset(**daemons(node_pool))
    before = await stage.until(lambda pods: places(pods) == {first}, "the node without a taint has one")
    await stage.ready()
    assert (await stage.status()).desired == 1
    await node_pool.patch(first, TAINTED)
    await node_pool.patch(second, {"spec": {"taints": None}})
    after = await stage.until(lambda pods: places(pods) == {first, second}, "both have a worker")
    assert {pod.metadata.uid for pod in before.values()} <= {pod.metadata.uid for pod in after.values()}


async def test_a_node_that_is_gone_leaves_its_pod_to_kubernetes(stage: Stage, node_pool: NodePool) -> None:
    """The number of wanted workers follows the Kubernetes nodes that exist."""
    first = await node_pool.add(node_pool.name(1))
    await node_pool.add(node_pool.name(2))
    await stage.operator()
    await stage.nodeset(**daemons(node_pool))
    await stage.until(lambda pods: len(pods) == 2, "both have a worker")
    await stage.ready()
    await node_pool.remove(first)
    await stage.counts(desired=1)


@pytest.mark.usefixtures("slurm_cluster")
async def test_a_change_of_scaling_mode_replaces_all_workers(
    stage: Stage, node_pool: NodePool, hostile: HostileSlurmrestd
) -> None:
    """Workers of the other mode are drained and go, and those of the new mode come, in both directions."""
    first = await node_pool.add(node_pool.name(1))
    hostile.add_nodes(f"blue-0,{first}", "IDLE", "DYNAMIC_NORM")
    numbered: dict[str, Any] = {
        "scalingMode": "StatefulSet",
        "replicas": 1,
        "template": {"spec": {"nodeSelector": node_pool.selector}},
    }
    await stage.operator()
    await stage.nodeset(**numbered)
    await stage.until_pods("blue-0")
    await stage.ready()
    await stage.nodeset(**daemons(node_pool))
    await stage.until(
        lambda pods: places(pods) == {first} and "blue-0" not in pods, "the worker of the node replaced it"
    )
    assert "DRAIN" in hostile.nodes["blue-0"]["state"]
    await stage.ready()
    hostile.nodes["blue-0"] = hostile.nodes["blue-0"] | {"state": ["IDLE", "DYNAMIC_NORM"], "reason": ""}
    await stage.nodeset(**numbered)
    await stage.until_pods("blue-0")
    await stage.ready()


async def test_a_hostname_that_is_none_is_named(stage: Stage, node_pool: NodePool) -> None:
    """A node whose annotation gives an impossible hostname gets no worker, and the condition names it."""
    await node_pool.add(node_pool.name(1), annotations={HOSTNAME: "Not_A_Name"})
    await stage.operator()
    await stage.nodeset(**daemons(node_pool))
    degraded = await stage.says(NodeSet, "blue", "InvalidSpec", "Degraded")
    assert HOSTNAME in degraded.message
    assert node_pool.name(1) in degraded.message
