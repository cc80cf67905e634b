"""The controllers of workloads on a whole control plane, where their pods really become ready."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.controllers.control_plane import kube_namespace, slinky_box
from tests.support.controllers.workload_namespace import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.client.config import ClientConfig


__all__ = ["kube_namespace", "slinky_box"]


@pytest.fixture
async def stage(client: Client, config: ClientConfig, kube_namespace: str) -> AsyncIterator[Stage]:
    """Hand out a fresh namespace, and operators in it that end with the test."""
    async with AsyncExitStack() as stack:
        yield Stage(client, config, kube_namespace, stack)
