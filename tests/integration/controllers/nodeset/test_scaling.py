"""How many workers there are, what they are called, and that none goes without Slurm's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import NodeSet
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.models.kinds import Pod
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd

INDEX = "nodeset.slinky.slurm.net/pod-index"
CORDON = "nodeset.slinky.slurm.net/pod-cordon"


async def test_workers_are_made_without_slurm(stage: Stage) -> None:
    """A NodeSet gets its workers, and says so, although nobody can ask Slurm anything."""
    await stage.operator()
    await stage.nodeset(replicas=3)
    pods = await stage.until_pods("blue-0", "blue-1", "blue-2")
    await stage.ready()
    assert {pod.metadata.labels[INDEX] for pod in pods.values()} == {"0", "1", "2"}
    status = await stage.status()
    assert (status.replicas, status.ready_replicas, status.available_replicas, status.desired) == (3, 3, 3, 3)
    assert status.selector == "app.kubernetes.io/instance=blue,app.kubernetes.io/name=slurmd"
    scale = await stage.client.get_scale(NodeSet, "blue", stage.namespace)
    assert (scale.status.replicas, scale.status.selector) == (3, status.selector)
    await stage.tells("NodeSet", "Normal", "SuccessfulCreate", "Create")


async def test_numbers_have_their_digits_and_the_lowest_free_ones_are_filled(stage: Stage) -> None:
    """A worker that somebody deletes comes back under its number, with as many digits as were asked for."""
    await stage.operator()
    await stage.nodeset(replicas=3, ordinalPadding=3, template={"spec": {"hostname": "b-"}})
    before = await stage.until_pods("blue-000", "blue-001", "blue-002")
    await stage.ready()
    assert before["blue-001"].spec.hostname == "b-001"
    await stage.delete(Pod, "blue-001")
    after = await stage.until(
        lambda pods: len(pods) == 3 and pods["blue-001"].metadata.uid != before["blue-001"].metadata.uid,
        "blue-001 is back",
    )
    assert {after[name].metadata.uid for name in ("blue-000", "blue-002")} == {
        before[name].metadata.uid for name in ("blue-000", "blue-002")
    }


async def test_without_slurm_nobody_goes(stage: Stage) -> None:
    """A worker that ran is not deleted while nobody can say what runs on it, and everybody sees why."""
    await stage.operator()
    await stage.nodeset(replicas=3)
    await stage.until_pods("blue-0", "blue-1", "blue-2")
    await stage.ready()
    await stage.scale(1)
    progressing = await stage.says(NodeSet, "blue", "NoConnection", "Progressing")
    assert messages.waiting({Reason.NO_CONNECTION: 2}) in progressing.message
    degraded = await stage.says(NodeSet, "blue", "NoConnection", "Degraded")
    assert degraded.status == "True"
    pods = await stage.until(
        lambda pods: sum(bool(pod.condition("SlurmSafeToDelete")) for pod in pods.values()) == 2,
        "two pods say why they stay",
    )
    held = [found for pod in pods.values() if (found := pod.condition("SlurmSafeToDelete"))]
    assert {(one.status, one.reason) for one in held} == {("False", "NoConnection")}
    assert all(pod.ready for pod in pods.values())
    await stage.scale(3)
    await stage.ready()
    pods = await stage.until(
        lambda pods: not any(pod.condition("SlurmSafeToDelete") for pod in pods.values()), "all may stay"
    )
    assert not any(CORDON in pod.metadata.annotations for pod in pods.values())


async def test_a_worker_that_never_ran_goes_without_slurm(stage: Stage) -> None:
    """A pod that no node ever took cannot run a job, so it needs nobody's word."""
    await stage.operator()
    await stage.nodeset(replicas=2, template={"spec": {"nodeSelector": {"no": "such"}}})
    await stage.until_pods("blue-0", "blue-1")
    await stage.scale(0)
    await stage.until_pods()
    await stage.tells("NodeSet", "Normal", "SuccessfulDelete", "Delete")


@pytest.mark.usefixtures("slurm_cluster")
async def test_workers_are_drained_before_they_go(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """Slurm is told first, and the pods go when it says that they are free; busy ones stay until then."""
    hostile.add_nodes("blue-[0-2]", "IDLE", "DYNAMIC_NORM")
    await stage.operator()
    await stage.nodeset(replicas=3)
    await stage.until_pods("blue-0", "blue-1", "blue-2")
    await stage.ready()
    await eventually(
        lambda: '"podName":"blue-2"' in hostile.nodes["blue-2"]["comment"], "comments are written"
    )
    await stage.counts(slurm_idle=3, slurm_drain=0)
    hostile.nodes["blue-2"] = hostile.nodes["blue-2"] | {
        "state": ["ALLOCATED", "DYNAMIC_NORM"],
        "alloc_cpus": 1,
    }
    await stage.until(
        lambda pods: pods["blue-2"].metadata.labels.get("nodeset.slinky.slurm.net/pod-protect") == "true",
        "the busy worker is protected",
    )
    await stage.scale(0)
    await stage.until_pods("blue-2")
    await stage.says(NodeSet, "blue", "JobsRunning", "Progressing")
    assert "DRAIN" in hostile.nodes["blue-2"]["state"]
    assert hostile.nodes["blue-2"]["reason"] == f"slurm-operator: NodeSet ({stage.namespace}/blue) scales in"
    hostile.nodes["blue-2"] = hostile.nodes["blue-2"] | {
        "state": ["IDLE", "DRAIN", "DYNAMIC_NORM"],
        "alloc_cpus": 0,
    }
    await stage.until_pods()


async def test_a_name_that_is_taken_is_a_trouble_with_a_name(stage: Stage) -> None:
    """A pod of somebody else under a worker's name is left alone; the condition names it, the others come."""
    container = {"name": "other", "image": "registry.invalid/other:1"}
    body = {"metadata": {"name": "blue-0", "namespace": stage.namespace}, "spec": {"containers": [container]}}
    await stage.client.create(Pod, body)
    await stage.operator()
    await stage.nodeset(replicas=2)
    found = await stage.says(NodeSet, "blue", "NameTaken", "Degraded")
    assert found.message == write_messages.name_taken("blue-0", "")
    await stage.until_pods("blue-1")
    await stage.client.patch(
        Pod, "blue-0", stage.namespace, {"metadata": {"labels": {"mine": "yes"}}}, type=PatchType.MERGE
    )
    await stage.delete(Pod, "blue-0")
    await stage.until_pods("blue-0", "blue-1")
    await stage.ready()
