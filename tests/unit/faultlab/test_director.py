"""How long a fault lasts, and from when on."""

from __future__ import annotations

import asyncio

import pytest
from multidict import CIMultiDict

from faultlab.director import Call, Director
from faultlab.faults import Fault
from faultlab.writes import KUBERNETES, kubernetes_target

SECONDS = 0.2


def lasts(director: Director) -> bool:
    """Return whether the fault is on now."""
    return director.fault_lasts


def call(director: Director) -> Call:
    """Return a request of the process that runs now."""
    path = "/api/v1/pods"
    return Call(KUBERNETES, "GET", kubernetes_target(path), path, {}, CIMultiDict(), b"", director.life)


@pytest.mark.parametrize("do", ["withhold", "frozen-slurm", "stale"])
async def test_the_time_of_a_fault_begins_with_its_first_effect(do: str) -> None:
    """A fault that begins while the operator starts does not end before the operator has seen any of it."""
    director = Director("ns", lambda: None, Fault(do, kind="pods", seconds=SECONDS))
    director.begin("1")
    await asyncio.sleep(4 * SECONDS)
    director.record(call(director))
    await asyncio.sleep(2 * SECONDS)
    assert lasts(director)
    director.happened()
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(10):
        await director.fault_over()
    assert asyncio.get_running_loop().time() - began >= SECONDS
    assert not lasts(director)
    assert director.hit


async def test_a_fault_without_an_effect_ends_too() -> None:
    """What it is about may never come."""
    director = Director("ns", lambda: None, Fault("withhold", kind="pods", seconds=SECONDS))
    director.record(call(director))
    director.begin("1")
    assert lasts(director)
    async with asyncio.timeout(10):
        await director.fault_over()
    assert not lasts(director)
    assert not director.hit
