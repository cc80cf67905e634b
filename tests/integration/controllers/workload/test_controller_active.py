"""Which slurmctld the Service leads to, with standbys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Controller
from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.slurm.rest.connections import ConnectionKey, ConnectionTarget
from slurm_operator.slurm.watch.watcher import WatchTiming
from slurm_operator.slurm.web_token import FixedToken
from tests.support.controllers.volumes import shared_claim
from tests.support.processes import eventually
from tests.support.slurm.hostile_server import HostileSlurmrestd, ping

if TYPE_CHECKING:
    from kubebox.pytest_plugin import SlurmBoxFactory
    from tests.support.controllers.workload_namespace import Operator, Stage

ACTIVE = "controller.slinky.slurm.net/active"
QUICK = WatchTiming(rest=0.1, busy=0.1, ping=0.1, failure_base=0.1)
TOKEN = "a.b.c"  # noqa: S105 - not a secret


async def active(stage: Stage) -> list[str]:
    """Return the pods that the Service finds."""
    pods = await stage.client.list(Pod, stage.namespace, labels={ACTIVE: "true"})
    return sorted(pod.metadata.name for pod in pods.items)


async def leads_to(stage: Stage, *names: str, deadline: float = 120.0) -> None:
    async def reached() -> bool:
        return await active(stage) == [*names]

    await eventually(reached, f"the Service leads to {names}", deadline)


async def high_availability(stage: Stage) -> Operator:
    operator = await stage.operator()
    await two_slurmctlds(stage)
    return operator


async def two_slurmctlds(stage: Stage) -> None:
    await shared_claim(stage, "state", "ReadWriteMany")
    await stage.keys()
    await stage.controller(
        ha={"enabled": True, "backups": 1}, persistence={"enabled": True, "existingClaim": "state"}
    )
    await stage.says(Controller, "slurm", "Available")


async def replace_pod(stage: Stage, name: str) -> None:
    """Delete a pod and wait for the one that takes its place."""
    uid = (await stage.there(Pod, name)).metadata.uid
    await stage.delete(Pod, name)

    async def replaced() -> bool:
        found = await stage.get(Pod, name)
        return found is not None and found.metadata.uid != uid

    await eventually(replaced, f"{name} is a new one")


def connect(operator: Operator, stage: Stage, server: HostileSlurmrestd) -> ConnectionKey:
    key = ConnectionKey("Controller", stage.namespace, "slurm")
    server.token = TOKEN
    operator.wiring.connections.set(key, ConnectionTarget(server.url, "x", FixedToken(TOKEN)), QUICK)
    return key


async def test_difference_6_label_follows_the_ping(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """The Service leads to the slurmctld that responds, by its host name and not by its place in the list."""
    operator = await high_availability(stage)
    await leads_to(stage, "slurm-controller-0")
    hostile.pings = [
        ping("slurm-controller-1", primary=False),
        ping("slurm-controller-0", responding=False),
    ]
    connect(operator, stage, hostile)
    await leads_to(stage, "slurm-controller-1")
    hostile.pings = [
        ping("slurm-controller-1", primary=False),
        ping("slurm-controller-0"),
    ]
    await leads_to(stage, "slurm-controller-0")


async def test_difference_6_service_is_never_emptied(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """When nobody responds, or the connection goes, the label stays where it is."""
    operator = await high_availability(stage)
    hostile.pings = [ping("slurm-controller-0", responding=False), ping("slurm-controller-1", primary=False)]
    key = connect(operator, stage, hostile)
    await leads_to(stage, "slurm-controller-1")
    hostile.pings = [
        ping("slurm-controller-0", responding=False),
        ping("slurm-controller-1", responding=False),
    ]
    connection = operator.wiring.connections.get(key)
    assert connection is not None
    await eventually(
        lambda: not any(one.responding for one in connection.view.controllers), "the operator knows"
    )
    await operator.reconcile_again(3)
    assert await active(stage) == ["slurm-controller-1"]
    operator.wiring.connections.remove(key)
    await operator.reconcile_again(3)
    assert await active(stage) == ["slurm-controller-1"]


async def test_difference_6_no_operator_empties_no_service(stage: Stage) -> None:
    """The active pod that is recreated while no operator runs is found; a standby loses the label later."""
    async with stage.for_a_while():
        await two_slurmctlds(stage)
        await leads_to(stage, "slurm-controller-0")
    await replace_pod(stage, "slurm-controller-0")
    await leads_to(stage, "slurm-controller-0")
    await replace_pod(stage, "slurm-controller-1")
    await leads_to(stage, "slurm-controller-0", "slurm-controller-1")
    await stage.operator()
    await leads_to(stage, "slurm-controller-0")


async def unready(stage: Stage, name: str) -> None:
    """Say of a pod what Kubernetes says when its node is gone."""
    status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await stage.client.patch(
        Pod, name, stage.namespace, status, type=PatchType.STRATEGIC, subresource="status"
    )


async def test_difference_6_a_dead_node_empties_no_service(stage: Stage) -> None:
    """With nobody to ask, a ready standby is found while the pod with the label is not ready."""
    await high_availability(stage)
    await leads_to(stage, "slurm-controller-0")
    await unready(stage, "slurm-controller-0")
    await leads_to(stage, "slurm-controller-0", "slurm-controller-1")
    await replace_pod(stage, "slurm-controller-0")
    await leads_to(stage, "slurm-controller-0")


async def test_difference_6_label_follows_a_real_failover(
    stage: Stage, slurm_box_factory: SlurmBoxFactory
) -> None:
    """With a real pair of slurmctlds and the usual pace, the label moves when one dies, and back."""
    hosts = ("slurm-controller-0", "slurm-controller-1")
    box = slurm_box_factory(nodes=1, controllers=hosts, extra_conf="SlurmctldTimeout=10")
    operator = await high_availability(stage)
    await leads_to(stage, hosts[0])
    key = ConnectionKey("Controller", stage.namespace, "slurm")
    operator.wiring.connections.set(key, ConnectionTarget(box.url, "x", FixedToken(box.token())))
    connection = operator.wiring.connections.get(key)
    assert connection is not None
    await eventually(lambda: len(connection.view.controllers) == 2, "both slurmctlds are known")
    assert await active(stage) == [hosts[0]]
    await asyncio.to_thread(box.stop, "slurmctld", kill=True)
    await leads_to(stage, hosts[1])
    await asyncio.to_thread(box.start, "slurmctld")
    await leads_to(stage, hosts[0])


@pytest.mark.parametrize("pods", [1, 2])
async def test_replaced_pods_are_labelled_again(stage: Stage, pods: int) -> None:
    """Pods that were deleted and come back are found by the Service again, with no Slurm to ask."""
    if pods == 1:
        await stage.operator()
        await stage.keys()
        await stage.controller()
        await stage.says(Controller, "slurm", "Available")
    else:
        await high_availability(stage)
    await leads_to(stage, "slurm-controller-0")
    for ordinal in range(pods):
        await replace_pod(stage, f"slurm-controller-{ordinal}")
    await leads_to(stage, "slurm-controller-0")


async def test_claim_that_cannot_be_shared(stage: Stage) -> None:
    """With standbys, a claim that only one node can mount is refused before any slurmctld is started."""
    await stage.operator()
    await stage.keys()
    await stage.controller(
        ha={"enabled": True, "backups": 1}, persistence={"enabled": True, "existingClaim": "state"}
    )
    missing = await stage.says(Controller, "slurm", "MissingReference")
    assert "PersistentVolumeClaim 'state' " in missing.message
    await stage.delete(StatefulSetDetails, "slurm-controller")
    await shared_claim(stage, "state", "ReadWriteOnce")
    refused = await stage.says(Controller, "slurm", "InvalidSpec")
    assert "ReadWriteMany" in refused.message
