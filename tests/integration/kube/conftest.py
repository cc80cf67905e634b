"""A `client` for the shared API server; tests that need other options build their own from `config`.

`watched` is one whose requests are counted, with an `Applier` on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig, load_config
from tests.support.kube.counted_client import Watched, watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box


@pytest.fixture
def config(kube_box: Box) -> ClientConfig:
    """Hand out the way to the shared API server, as its administrator."""
    return load_config(str(kube_box.kubeconfig))


@pytest.fixture
async def client(config: ClientConfig) -> AsyncIterator[Client]:
    """Hand out an open client on the shared API server."""
    async with Client(config) as opened:
        yield opened


@pytest.fixture
async def watched(config: ClientConfig) -> AsyncIterator[Watched]:
    """Hand out an applier on a client whose requests are counted."""
    async with watching(config) as opened:
        yield opened
