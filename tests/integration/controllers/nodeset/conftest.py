"""The NodeSet controller on a whole control plane, where its pods really become ready."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.controllers.nodeset.machines import Machines
from tests.integration.controllers.nodeset.stage import Stage
from tests.integration.programs.running import install_crds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kubebox import Box
    from slurm_operator.kube.client import Client
    from slurm_operator.kube.config import ClientConfig
    from tests.integration.slurm.hostile import HostileSlurmrestd


@pytest.fixture(scope="session")
def slinky_box(kube_cluster: Box) -> Box:
    """Hand out the shared control plane with our CRDs in it."""
    install_crds(kube_cluster)
    kube_cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    return kube_cluster


@pytest.fixture
def kube_namespace(slinky_box: Box) -> Iterator[str]:
    """Hand out the name of a fresh namespace."""
    with slinky_box.namespace() as name:
        yield name


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
async def machines(client: Client, kube_namespace: str) -> AsyncIterator[Machines]:
    """Hand out a pool of Kubernetes nodes, empty at first."""
    async with Machines(client, kube_namespace) as pool:
        yield pool
