"""The `client` of these tests talks to `server`, which says by script what no real API server would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.client import Client
from tests.support.kube.scripted_server import Server, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Hand out a scripted server."""
    async with serving() as scripted:
        yield scripted


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """Hand out a client of the scripted server."""
    async with Client(server.config()) as opened:
        yield opened
