"""A NodeSet whose Cluster leads to another Slurm, in which nodes have the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Controller, wellknown
from slurm_operator.slurm.rest.connections import ConnectionKey
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.slurm.hostile_server import HostileSlurmrestd


@pytest.mark.usefixtures("slurm_cluster")
async def test_a_scale_in_touches_neither_slurm_nor_pods(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """The idle nodes of the other cluster are no permission; with the right server the scale-in goes on."""
    hostile.cluster = "elsewhere"
    hostile.add_nodes("blue-[0-1]")
    operator = await stage.operator()
    await stage.nodeset(replicas=2)
    await stage.until_pods("blue-0", "blue-1")
    await stage.says(Controller, "slurm", "ClusterNameMismatch", "SlurmApiReady")
    await stage.scale(1)

    async def held() -> bool:
        told = (await stage.pods())["blue-1"].condition(wellknown.POD_CONDITION_SAFE)
        return told is not None and told.reason == "ClusterNameMismatch"

    await eventually(held, "the pod says what it waits for")
    await stage.reconcile_again(operator)
    assert {*await stage.pods()} == {"blue-0", "blue-1"}
    assert [seen.method for seen in hostile.log if seen.method != "GET"] == []
    hostile.cluster = f"{stage.namespace}_slurm"
    connection = operator.wiring.connections.get(ConnectionKey("Cluster", stage.namespace, "slurm"))
    assert connection is not None
    connection.watch.wake()
    await stage.until_pods("blue-0")
    assert "DRAIN" in hostile.nodes["blue-1"]["state"]
