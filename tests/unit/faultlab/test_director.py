"""How long a fault lasts, and from when on."""

from __future__ import annotations

import asyncio

import pytest
from multidict import CIMultiDict

from faultlab.director import Call, Director
from faultlab.faults import Fault
from faultlab.writes import KUBERNETES, kubernetes_target

SECONDS = 0.05


def call(director: Director) -> Call:
    """Return a request of the process that runs now."""
    path = "/api/v1/pods"
    return Call(KUBERNETES, "GET", kubernetes_target(path), path, {}, CIMultiDict(), b"", director.life)


@pytest.mark.parametrize("do", ["withhold", "frozen-slurm", "stale"])
async def test_the_time_of_a_fault_begins_with_the_first_request(do: str) -> None:
    """A fault that begins while the operator starts does not end before the operator has done anything."""
    director = Director("ns", lambda: None, Fault(do, kind="pods", seconds=SECONDS))
    director.begin("1")
    await asyncio.sleep(2 * SECONDS)
    assert director.fault_lasts
    director.record(call(director))
    async with asyncio.timeout(10):
        await director.fault_over()
    assert not director.fault_lasts


async def test_the_time_of_a_fault_begins_at_once_if_the_operator_runs() -> None:
    """An operator at rest may send no request for as long as a fault lasts."""
    director = Director("ns", lambda: None, Fault("withhold", kind="pods", seconds=SECONDS))
    director.record(call(director))
    director.begin("1")
    assert director.fault_lasts
    async with asyncio.timeout(10):
        await director.fault_over()
    assert not director.fault_lasts
