"""The command as a process, on a real API server with a fake manager behind its pod proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.plugin.bench import Bench
from tests.support.plugin.fake_manager import FakeManager
from tests.support.processes import await_kinds, install_crds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kubebox import Box


@pytest.fixture(scope="session")
def slurm_kinds(kube_box: Box) -> Box:
    """Hand out the shared API server with our CRDs in it."""
    install_crds(kube_box)
    await_kinds(kube_box)
    return kube_box


@pytest.fixture
def bench(slurm_kinds: Box, kube_namespace: str, tmp_path: Path) -> Bench:
    """Hand out the command in a fresh namespace."""
    return Bench(slurm_kinds, kube_namespace, tmp_path)


@pytest.fixture
async def manager() -> AsyncIterator[FakeManager]:
    """Hand out a manager that serves the state of a scale-in."""
    async with FakeManager() as server:
        yield server
