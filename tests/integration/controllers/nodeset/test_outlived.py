"""A NodeSet that is deleted together with the Controller of an external Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Cluster, Controller, NodeSet, wellknown
from slurm_operator.slurm.rest.connections import ConnectionKey
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.controllers.workload_namespace import Operator
    from tests.support.slurm.hostile_server import HostileSlurmrestd

FAR = {"external": True, "externalConfig": {"host": "ctl.example.com", "port": 6817}}
BUSY = {"state": ["MIXED", "DYNAMIC_NORM"], "alloc_cpus": 1}


async def far(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """Make the Controller of an external Slurm with a busy node, which is reached by a Cluster."""
    hostile.nodes.data.clear()
    hostile.add_nodes("blue-0")
    hostile.nodes.change("blue-0", **BUSY)
    await stage.secret("token", **{"auth-token": "t"})
    await stage.cluster("far", hostile.url)
    await stage.controller("far", **FAR)


@pytest.fixture
async def operator(stage: Stage, hostile: HostileSlurmrestd) -> Operator:
    """Hand out an operator with a busy worker of an external Slurm."""
    await far(stage, hostile)
    started = await stage.operator()
    await stage.nodeset(controller="far", replicas=1)
    await stage.until_pods("blue-0")
    await stage.ready()
    return started


async def leave(stage: Stage) -> None:
    """Delete Controller and NodeSet, in this order, and wait until the Controller is gone."""
    await stage.delete(Controller, "far")
    await stage.delete(NodeSet, "blue")

    async def gone() -> bool:
        return await stage.get(Controller, "far") is None

    await eventually(gone, "the Controller vanishes")


async def nodeset_gone(stage: Stage) -> bool:
    return await stage.get(NodeSet, "blue") is None


async def test_the_nodeset_is_drained_while_slurm_answers(
    stage: Stage, hostile: HostileSlurmrestd, operator: Operator
) -> None:
    """The node drains, the pod stays while its job runs, and then everything goes, the connection too."""
    await leave(stage)
    await eventually(lambda: "DRAIN" in hostile.nodes["blue-0"]["state"], "the node drains")
    await stage.reconcile_again(operator)
    assert {*await stage.pods()} == {"blue-0"}
    live = await stage.there(NodeSet, "blue")
    assert wellknown.FINALIZER_DRAIN in live.metadata.finalizers
    hostile.nodes.change("blue-0", state=["IDLE", "DRAIN", "DYNAMIC_NORM"], alloc_cpus=0)
    await stage.until_pods()
    await eventually(lambda: nodeset_gone(stage), "the NodeSet is gone")
    key = ConnectionKey("Controller", stage.namespace, "far")
    await eventually(lambda: operator.wiring.connections.get(key) is None, "the connection is not kept")


async def explains(stage: Stage) -> None:
    """Wait until the NodeSet says what a person can do."""

    async def said() -> bool:
        found = await stage.condition(NodeSet, "blue", "Degraded")
        return found is not None and f"{wellknown.ANNOTATION_SKIP_DRAIN}=true" in found.message

    await eventually(said, "the condition names the way out", 120.0)


async def stays(stage: Stage) -> None:
    """Wait until the NodeSet says why it waits; then let it go as a person would."""
    await explains(stage)
    assert {*await stage.pods()} == {"blue-0"}
    annotation = {wellknown.ANNOTATION_SKIP_DRAIN: "true"}
    await stage.patch(NodeSet, "blue", {"metadata": {"annotations": annotation}})
    await eventually(lambda: nodeset_gone(stage), "the NodeSet is gone", 120.0)


@pytest.mark.usefixtures("operator")
async def test_the_nodeset_waits_when_slurm_stops_answering(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """An outage of slurmrestd says nothing about jobs: the NodeSet stays until a person lets it go."""
    await leave(stage)
    await eventually(lambda: "DRAIN" in hostile.nodes["blue-0"]["state"], "the node drains")
    await hostile.stop()
    await stays(stage)


async def test_the_nodeset_waits_when_nothing_leads_to_slurm_any_more(
    stage: Stage, hostile: HostileSlurmrestd, operator: Operator
) -> None:
    """Without the Cluster there is no connection, but its jobs go on."""
    await leave(stage)
    await eventually(lambda: "DRAIN" in hostile.nodes["blue-0"]["state"], "the node drains")
    await stage.delete(Cluster, "far")
    await eventually(
        lambda: operator.wiring.connections.get(ConnectionKey("Controller", stage.namespace, "far")) is None,
        "the connection goes",
    )
    await stays(stage)


async def test_a_new_process_waits_for_an_external_slurm(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """An operator that never saw the Controller does not let the NodeSet go; with a new one it drains."""
    await far(stage, hostile)
    async with stage.for_a_while():
        await stage.nodeset(controller="far", replicas=1)
        await stage.until_pods("blue-0")
        await stage.ready()
    live = await stage.there(NodeSet, "blue")
    assert live.metadata.annotations[wellknown.ANNOTATION_EXTERNAL_SLURM] == "true"
    await leave(stage)
    await stage.operator()
    await explains(stage)
    await stage.tells("NodeSet", "Warning", "ControllerGone", "Info")
    assert {*await stage.pods()} == {"blue-0"}
    await stage.controller("far", **FAR)
    await eventually(lambda: "DRAIN" in hostile.nodes["blue-0"]["state"], "the node drains")
    hostile.nodes.change("blue-0", state=["IDLE", "DRAIN", "DYNAMIC_NORM"], alloc_cpus=0)
    await eventually(lambda: nodeset_gone(stage), "the NodeSet is gone")
