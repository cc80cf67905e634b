"""The controllers of workloads on a whole control plane, where their pods really become ready."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.controllers.workload.stage import Stage
from tests.integration.programs.running import install_crds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kubebox import Box
    from slurm_operator.kube.client import Client
    from slurm_operator.kube.config import ClientConfig


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
    """Hand out a fresh namespace, and operators in it that end with the test."""
    async with AsyncExitStack() as stack:
        yield Stage(client, config, kube_namespace, stack)
