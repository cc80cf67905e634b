"""ServiceMonitors, in a cluster that may or may not know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import Controller
from slurm_operator.controllers.workload.decide.read_models import MonitorObject
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.models.kinds import CustomResourceDefinition
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.kube.client.config import ClientConfig
    from tests.support.controllers.workload_namespace import Stage

NAME = "servicemonitors.monitoring.coreos.com"
METRICS = {"enabled": True, "serviceMonitor": {"enabled": True, "interval": "30s"}}
DEFINITION = {
    "metadata": {"name": NAME},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


async def _defined(client: Client, *, there: bool) -> bool:
    definitions = (await client.list(CustomResourceDefinition)).items
    return any(one.metadata.name == NAME and one.established for one in definitions) is there


@pytest.fixture
async def no_definition(admin_config: ClientConfig) -> AsyncIterator[None]:
    """Leave the cluster as it was: without the kind."""
    yield
    async with Client(admin_config) as client:
        if await _defined(client, there=True):
            await client.delete(CustomResourceDefinition, NAME)
            await eventually(lambda: _defined(client, there=False), "the kind is gone")


@pytest.mark.usefixtures("no_definition")
async def test_kind_appears_later(stage: Stage) -> None:
    """Without the kind all else is ready; when it appears the object is made, kept, and removed on demand."""
    operator = await stage.operator()
    await stage.keys()
    await stage.controller(metrics=METRICS)
    await stage.says(Controller, "slurm", "Available")
    await stage.client.create(CustomResourceDefinition, DEFINITION)
    await eventually(lambda: _there(stage), "the ServiceMonitor is made")
    await stage.patch(MonitorObject, "slurm-controller", {"spec": {"endpoints": []}})
    await eventually(lambda: _scrapes(stage), "an edit is undone")
    await stage.delete(MonitorObject, "slurm-controller")
    await eventually(lambda: _scrapes(stage), "it is made again")
    await eventually(operator.rests, "nothing is left to write")
    await stage.patch(Controller, "slurm", {"spec": {"metrics": {"serviceMonitor": {"enabled": False}}}})
    await eventually(lambda: _gone(stage), "switched off, it is removed")
    await stage.says(Controller, "slurm", "Available")
    await stage.client.delete(CustomResourceDefinition, NAME)
    await operator.reconcile_again(2)
    await stage.says(Controller, "slurm", "Available")


async def _there(stage: Stage) -> bool:
    return await stage.get(MonitorObject, "slurm-controller") is not None


async def _gone(stage: Stage) -> bool:
    return await stage.get(MonitorObject, "slurm-controller") is None


async def _scrapes(stage: Stage) -> bool:
    return await _there(stage) and bool(
        (await stage.raw(MonitorObject, "slurm-controller"))["spec"]["endpoints"]
    )
