"""Slurm for tests: real clusters of both releases with a client each, and a server that misbehaves on demand.

real       a client of a real slurmrestd; a test that takes it, or `box`, runs with 26.05 and with 24.11
box        the cluster behind it, shared by the session
hostile    a slurmrestd on loopback with faults on demand, see `hostile.py`
client     a client of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.rest.client import RestClient
from tests.support import event_loops
from tests.support.slurm.hostile_server import HostileSlurmrestd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox.slurm import SlurmBox

pytest_asyncio_loop_factories = event_loops.loop_factories


@pytest.fixture(params=["26.05", "24.11"])
def box(request: pytest.FixtureRequest, slurm_box: SlurmBox, slurm_box_24: SlurmBox) -> SlurmBox:
    """Hand out a real Slurm cluster of either release."""
    return slurm_box if request.param == "26.05" else slurm_box_24


@pytest.fixture
async def real(box: SlurmBox) -> AsyncIterator[RestClient]:
    """Hand out a client of a real slurmrestd."""
    token = box.token()
    async with RestClient(box.url, lambda: token) as opened:
        yield opened


@pytest.fixture
async def hostile() -> AsyncIterator[HostileSlurmrestd]:
    """Hand out a slurmrestd on loopback that misbehaves on demand."""
    async with HostileSlurmrestd() as server:
        yield server


@pytest.fixture
async def client(hostile: HostileSlurmrestd) -> AsyncIterator[RestClient]:
    """Hand out a client of the hostile server."""
    async with RestClient(hostile.url, lambda: "a-token") as opened:
        yield opened
