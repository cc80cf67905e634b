"""A Controller and the slurmrestd of another Slurm cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.slurm.daemons import CLUSTER
from slurm_operator.slurm.decide.node_changes import Done, Failed, NotSent
from slurm_operator.slurm.errors import WrongCluster
from slurm_operator.slurm.model.view import AnswerReason, Unknown
from slurm_operator.slurm.rest.connections import ConnectionKey
from tests.support.controllers.one_controller import KEY, connected, connection, has_event, override
from tests.support.processes import eventually

if TYPE_CHECKING:
    from kubebox.slurm import SlurmBox
    from tests.integration.controllers.conftest import World
    from tests.support.slurm.hostile_server import HostileSlurmrestd


async def test_a_slurmrestd_of_another_cluster_is_said_and_not_used(
    world: World, hostile: HostileSlurmrestd
) -> None:
    """The condition names both clusters, nothing is known or written, and the right server heals it."""
    hostile.cluster = CLUSTER
    operator = await connected(world, hostile)
    hostile.cluster = "other"
    connection(operator, world).watch.wake()
    said = await world.says(world.api_ready, "ClusterNameMismatch")
    assert said.status == "False"
    assert "'other'" in said.message
    assert f"'{CLUSTER}'" in said.message
    await eventually(lambda: has_event(world, "SlurmClusterNameMismatch"), "an Event says so")
    found = connection(operator, world)
    answer = found.view.node("n0", found.since)
    assert isinstance(answer, Unknown)
    assert answer.reason is AnswerReason.CLUSTER_NAME_MISMATCH
    assert isinstance(await found.writer.drain("n0", "test"), NotSent)
    assert hostile.nodes["n0"]["state"] == ["IDLE", "DYNAMIC_NORM"]
    assert f'slurm_operator_slurm_up{{cluster="{world.namespace}/main"}} 0.0' in operator.metrics()
    hostile.cluster = CLUSTER
    found.watch.wake()
    await world.says(world.api_ready, "Connected")


async def test_a_server_that_is_exchanged_between_two_lists_gets_no_write(
    world: World, hostile: HostileSlurmrestd
) -> None:
    """The list before a write is compared too: no poll has to come in between."""
    hostile.cluster = CLUSTER
    operator = await connected(world, hostile)
    found = connection(operator, world)
    assert isinstance(await found.writer.drain("n0", "test"), Done)
    await eventually(lambda: "DRAIN" in found.view.nodes["n0"].state, "the view shows it")
    hostile.cluster = "other"
    # An undrain is decided on a list of its own.
    outcome = await found.writer.undrain("n0")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WrongCluster)
    assert "DRAIN" in hostile.nodes["n0"]["state"]


async def test_each_controller_of_a_shared_cluster_is_compared(
    world: World, hostile: HostileSlurmrestd
) -> None:
    """Two Controllers share a Cluster resource; only the one whose cluster it is not is blind."""
    hostile.cluster = "lab"
    operator = await world.operator(override(hostile))
    await world.secret("token", **{"auth-token": b"a-token"})
    await world.cluster("far", hostile.url)
    await world.controller("right", cluster_ref="far", clusterName="lab")
    await world.controller("wrong", cluster_ref="far", clusterName="other")
    await world.says(partial(world.api_ready, "right"), "Connected")
    said = await world.says(partial(world.api_ready, "wrong"), "ClusterNameMismatch")
    assert "Cluster 'far'" in said.message
    await world.says(lambda: world.ready("far"), "Connected")
    right, wrong = (connection(operator, world, name) for name in ("right", "wrong"))
    assert "n0" in right.view.nodes
    assert wrong.view.nodes == {}
    assert isinstance(wrong.view.failure, WrongCluster)
    assert isinstance(await wrong.writer.drain("n0", "test"), NotSent)
    assert isinstance(await right.writer.drain("n0", "test"), Done)
    hostile.cluster = "other"
    right.watch.wake()
    await world.says(partial(world.api_ready, "right"), "ClusterNameMismatch")
    await world.says(partial(world.api_ready, "wrong"), "Connected")


@pytest.mark.parametrize("name", ["", CLUSTER])
async def test_an_external_controller_is_compared_if_it_states_a_name(
    world: World, hostile: HostileSlurmrestd, name: str
) -> None:
    """An external slurmctld has a name of its own, which the Controller may state."""
    hostile.cluster = "other"
    await world.operator(override(hostile))
    await world.secret("keys", jwt__key=KEY)
    outside: Any = {"external": True, "externalConfig": {"host": "ctl.example.com", "port": 6817}}
    await world.controller(clusterName=name, **outside)
    await world.restapi("api")
    await world.says(world.api_ready, "ClusterNameMismatch" if name else "Connected")


async def test_a_real_slurmrestd_reports_the_name_of_its_cluster(world: World, slurm_box: SlurmBox) -> None:
    """Another name than the real one is seen with the first list; the real one, however written, fits."""
    operator = await world.operator(override(slurm_box))
    await world.secret("keys", jwt__key=slurm_box.jwt_key)
    await world.controller("wrong", clusterName="other")
    await world.controller("right", clusterName=CLUSTER.upper())
    for name in ("wrong", "right"):
        await world.restapi(name, name)
    said = await world.says(partial(world.api_ready, "wrong"), "ClusterNameMismatch")
    assert f"'{CLUSTER}'" in said.message
    await world.says(partial(world.api_ready, "right"), "Connected")
    own = ConnectionKey("Controller", world.namespace, "wrong")
    assert operator.connections.get(own).view.nodes == {}
