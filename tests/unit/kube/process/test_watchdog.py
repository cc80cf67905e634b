from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from slurm_operator.kube.process import metrics
from slurm_operator.kube.process.watchdog import await_stack, monitor_loop_lag
from tests.support.virtual_time import VirtualTimeLoop, virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def lag(suffix: str, **labels: str) -> float:
    value = metrics.REGISTRY.get_sample_value(f"slurm_operator_event_loop_lag_seconds_{suffix}", labels)
    assert value is not None
    return value


@virtual_time
async def test_a_blocked_loop_is_measured_and_reported() -> None:
    """A callback that keeps the loop from turning shows as lag; a long one also as a warning."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    ticks, total, long = lag("count"), lag("sum"), lag("bucket", le="2.5")
    monitor = asyncio.create_task(monitor_loop_lag())
    with capture_logs() as lines:
        await asyncio.sleep(3.5)
        assert (lag("count"), lag("sum")) == (ticks + 3, total)
        loop.block(1.0)
        await asyncio.sleep(2.5)
        assert lag("sum") == total + 0.5
        assert lines == []
        loop.block(3.5)
        await asyncio.sleep(2.5)
    monitor.cancel()
    assert lag("count") - lag("bucket", le="2.5") == ticks - long + 1
    assert [(line["log_level"], line["lag_seconds"] > 1) for line in lines] == [("warning", True)]


@virtual_time
async def test_the_stack_goes_down_to_the_innermost_await() -> None:
    """One sees every coroutine on the way to what a task waits for, through asynchronous generators too."""

    async def innermost() -> None:
        await asyncio.sleep(3600)

    async def items() -> AsyncIterator[int]:
        await innermost()
        yield 1

    async def middle() -> None:
        await innermost()

    async def outer() -> None:
        await middle()

    async def reader() -> None:
        async for _ in items():
            pass

    plain, iterating = asyncio.create_task(outer()), asyncio.create_task(reader())
    await asyncio.sleep(1)
    names = [place.rpartition(".")[2] for place in await_stack(plain)]
    assert names[:3] == ["outer", "middle", "innermost"]
    assert await_stack(plain)[0].startswith("test_watchdog.py:")
    names = [place.rpartition(".")[2] for place in await_stack(iterating)]
    assert names[:3] == ["reader", "items", "innermost"]
    for task in (plain, iterating):
        task.cancel()
    await asyncio.wait({plain, iterating})
    assert await_stack(plain) == []
