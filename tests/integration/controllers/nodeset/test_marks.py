"""What Slurm is told about workers, what pods are told about Slurm, and where workers return to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.models.kinds import Pod
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.kubernetes_nodes import NodePool
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

TOPOLOGY = "topology.slinky.slurm.net/spec"
FEATURES = "features.slinky.slurm.net/spec"


@pytest.mark.usefixtures("slurm_cluster")
async def test_topology_and_features_come_from_the_node(
    stage: Stage, node_pool: NodePool, hostile: HostileSlurmrestd
) -> None:
    """What a Kubernetes node's annotations say reaches the node in Slurm, and so does every change of it."""
    first = await node_pool.add(node_pool.name(1), annotations={TOPOLOGY: "tree:s1", FEATURES: "ib,nvme"})
    hostile.add_nodes("blue-0", "IDLE", "DYNAMIC_NORM", features=["blue"], active_features=["blue"])
    await stage.operator()
    await stage.nodeset(replicas=1, template={"spec": {"nodeSelector": node_pool.selector}})

    def told(topology: str, *features: str) -> bool:
        node = hostile.nodes["blue-0"]
        given = {*node["features"]} == {*node["active_features"]} == {"blue", *features}
        return given and node["topology"] == topology

    await eventually(lambda: told("tree:s1", "k8s/ib", "k8s/nvme"), "Slurm knows where it is")
    pods = await stage.until(
        lambda pods: pods["blue-0"].metadata.annotations.get(TOPOLOGY) == "tree:s1", "the pod knows, too"
    )
    assert pods["blue-0"].spec.node_name == first
    await node_pool.patch(first, {"metadata": {"annotations": {TOPOLOGY: "tree:s2", FEATURES: "ib"}}})
    await eventually(lambda: told("tree:s2", "k8s/ib"), "Slurm knows the change")


@pytest.mark.usefixtures("slurm_cluster")
async def test_conditions_of_a_pod_follow_its_node(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """The states of a node are conditions of its pod, which come and go; those of the kubelet stay."""
    hostile.add_nodes("blue-0", "IDLE", "DYNAMIC_NORM")
    await stage.operator()
    await stage.nodeset(replicas=1)
    pods = await stage.until(
        lambda pods: bool(pods) and pods["blue-0"].condition("SlurmNodeStateIdle"), "it is idle"
    )
    kubelets = {"Ready", "Initialized", "ContainersReady", "PodScheduled"}
    await stage.ready()
    hostile.nodes["blue-0"] = hostile.nodes["blue-0"] | {
        "state": ["IDLE", "DRAIN", "DYNAMIC_NORM"],
        "reason": "a person says so",
    }
    pods = await stage.until(lambda pods: pods["blue-0"].condition("SlurmNodeStateDrain"), "it is drained")
    drained = pods["blue-0"].condition("SlurmNodeStateDrain")
    assert drained is not None
    assert drained.message == "a person says so"
    assert kubelets <= {one.type for one in pods["blue-0"].status.conditions}
    hostile.nodes["blue-0"] = hostile.nodes["blue-0"] | {"state": ["IDLE", "DYNAMIC_NORM"], "reason": ""}
    pods = await stage.until(
        lambda pods: pods["blue-0"].condition("SlurmNodeStateDrain") is None, "it is not drained any more"
    )
    assert kubelets <= {one.type for one in pods["blue-0"].status.conditions}


@pytest.mark.usefixtures("slurm_cluster")
async def test_records_of_scaled_in_workers_are_forgotten_when_asked(
    stage: Stage, hostile: HostileSlurmrestd
) -> None:
    """With ScaledIn, Slurm forgets the node of a worker that went, and no other."""
    hostile.add_nodes("blue-[0-1],other", "IDLE", "DYNAMIC_NORM")
    await stage.operator()
    await stage.nodeset(replicas=2, pruneSlurmNodeRecords="ScaledIn")
    await stage.ready()
    await eventually(lambda: all(hostile.nodes[f"blue-{n}"]["comment"] for n in (0, 1)), "both are marked")
    await stage.scale(1)
    (left,) = await stage.until(lambda pods: len(pods) == 1, "one worker is left")
    gone = ({"blue-0", "blue-1"} - {left}).pop()
    # What the pod's own end does.
    hostile.nodes[gone] = hostile.nodes[gone] | {"state": ["DOWN", "NOT_RESPONDING", "DYNAMIC_NORM"]}
    await eventually(lambda: gone not in hostile.nodes, "its record is deleted")
    assert {*hostile.nodes} == {left, "other"}


async def test_a_pinned_worker_returns_to_its_node(stage: Stage, node_pool: NodePool) -> None:
    """With pinToNode a worker that is replaced comes back where it was, as the status remembers."""
    for number in range(3):
        await node_pool.add(node_pool.name(number))
    template: dict[str, Any] = {"spec": {"nodeSelector": node_pool.selector}}
    await stage.operator()
    await stage.nodeset(replicas=2, pinToNode=True, oversubscribeNode=False, template=template)
    await stage.ready()
    before = await stage.pods()
    where = {name.removeprefix("blue-"): pod.spec.node_name for name, pod in before.items()}

    async def remembered() -> bool:
        return bool((await stage.status()).ordinal_to_node == where)

    await eventually(remembered, "the status remembers both")
    await stage.delete(Pod, "blue-0")
    await stage.delete(Pod, "blue-1")
    after = await stage.until(
        lambda pods: (
            len(pods) == 2
            and all(pod.spec.node_name for pod in pods.values())
            and not {pod.metadata.uid for pod in pods.values()}
            & {pod.metadata.uid for pod in before.values()}
        ),
        "both are back",
    )
    assert {name.removeprefix("blue-"): pod.spec.node_name for name, pod in after.items()} == where
