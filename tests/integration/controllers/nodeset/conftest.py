"""The NodeSet controller on a whole control plane, where its pods really become ready."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.controllers.action_runner import Hands
from tests.support.controllers.control_plane import kube_namespace, slinky_box
from tests.support.controllers.kubernetes_nodes import NodePool
from tests.support.controllers.nodeset_namespace import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.client.config import ClientConfig
    from tests.support.slurm.hostile_server import HostileSlurmrestd


__all__ = ["kube_namespace", "slinky_box"]


@pytest.fixture
async def stage(client: Client, config: ClientConfig, kube_namespace: str) -> AsyncIterator[Stage]:
    """Hand out a fresh namespace with a Controller and its keys, and operators that end with the test."""
    async with AsyncExitStack() as stack:
        made = Stage(client, config, kube_namespace, stack)
        await made.keys()
        await made.controller()
        yield made


@pytest.fixture
async def slurm_cluster(stage: Stage, hostile: HostileSlurmrestd) -> None:
    """Connect the Controller to the stand-in for slurmrestd, by a Cluster of its name."""
    hostile.nodes.data.clear()
    await stage.secret("token", **{"auth-token": "t"})
    await stage.cluster("slurm", hostile.url)


@pytest.fixture
async def node_pool(client: Client, kube_namespace: str) -> AsyncIterator[NodePool]:
    """Hand out a pool of Kubernetes nodes, empty at first."""
    async with NodePool(client, kube_namespace) as pool:
        yield pool


@pytest.fixture
async def hands() -> AsyncIterator[Hands]:
    """Hand out somebody who carries out plans."""
    made = Hands()
    background = asyncio.create_task(made.background.run())
    # Else it would be cancelled before it has begun, and end nothing.
    await asyncio.sleep(0)
    yield made
    background.cancel()
    await asyncio.wait({background})
