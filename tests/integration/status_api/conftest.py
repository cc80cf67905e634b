"""An operator process, a control plane on which pods become ready, and a stand-in for slurmrestd."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.controllers.conftest import admin_config, client, config, hostile
from tests.support.charts.chart_accounts import operator_kubeconfig
from tests.support.controllers.control_plane import kube_namespace, slinky_box
from tests.support.controllers.nodeset_namespace import Stage
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, Process, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kubebox import Box
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.client.config import ClientConfig
    from tests.support.slurm.hostile_server import HostileSlurmrestd

__all__ = ["admin_config", "client", "config", "hostile", "kube_namespace", "slinky_box"]


@pytest.fixture
async def stage(
    client: Client, config: ClientConfig, kube_namespace: str, hostile: HostileSlurmrestd
) -> AsyncIterator[Stage]:
    """Hand out a namespace with a Controller that is connected to the stand-in for slurmrestd."""
    async with AsyncExitStack() as stack:
        made = Stage(client, config, kube_namespace, stack)
        await made.keys()
        await made.controller()
        hostile.nodes.data.clear()
        await made.secret("token", **{"auth-token": "t"})
        await made.cluster("slurm", hostile.url)
        yield made


@pytest.fixture
async def operator(slinky_box: Box, stage: Stage, tmp_path: Path) -> AsyncIterator[Process]:
    """Hand out an operator of the namespace, with the permissions of the chart."""
    arguments = [*MANAGER, *LOOPBACK_FLAGS, f"--namespaces={stage.namespace}"]
    account = str(operator_kubeconfig(slinky_box))
    with Process(None, tmp_path / "operator.log", arguments, KUBECONFIG=account) as process:
        await eventually(process.ready, "ready")
        yield process
