"""Asking a hostile slurmrestd: a client with short deadlines, and what may be expected of its errors."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from slurm_operator.slurm.decide.circuit_breaker import Breaker, BreakerTiming
from slurm_operator.slurm.errors import CircuitOpen, RestUnreachable, SlurmError
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.rest.client import RestClient, RestTiming
from tests.support.slurm.hostile_server import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.slurm.hostile_server import HostileSlurmrestd

T = TypeVar("T")

TOKEN = "eyJhbGciOiJIUzI1NiJ9.t0p-s3cret.signature"  # noqa: S105 - the one that must not show up anywhere
# Short, for hanging requests run into it, and only those get it; good ones that do so on a busy machine are
# asked again, see `soon`.
SHORT = RestTiming(connect=5.0, request=0.5, write=1.0)
HANGING = frozenset({Fault.HANG, Fault.DRIP})
PATIENT = BreakerTiming(threshold=10**6)
DRAIN = NodeUpdate(state=("DRAIN",), reason="slurm-operator: test")


def reader(server: HostileSlurmrestd, fault: Fault | None = None, **options: Any) -> RestClient:
    """Return a client whose breaker stays closed; its deadlines are short if the fault is one that hangs."""
    timing = SHORT if fault in HANGING else RestTiming()
    options = {"timing": timing, "breaker": Breaker(PATIENT), **options}
    return RestClient(server.url, lambda: TOKEN, **options)


async def failure(call: Awaitable[object]) -> SlurmError:
    """Return the error of a call, which tells nothing that is secret."""
    with pytest.raises(SlurmError) as caught:
        await call
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "s3cret" not in told
    assert caught.value.__cause__ is None
    return caught.value


async def soon(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until it is answered."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except CircuitOpen as error:
                await asyncio.sleep(error.retry_after)
            except RestUnreachable:
                continue


async def gone(server: HostileSlurmrestd, but: int = 0) -> None:
    """Wait until all connections but a few have ended."""
    async with asyncio.timeout(60):
        while server.open_connections > but:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.005)
