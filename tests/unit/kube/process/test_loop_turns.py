"""The event loop that measures its turns."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.process.loop_turns import SLICE, Breather, QueueTime, TimedSelector, timed_loop
from slurm_operator.kube.process.metrics import REGISTRY

if TYPE_CHECKING:
    from pathlib import Path

STALLS = "slurm_operator_event_loop_stall_seconds"
LONGEST = "slurm_operator_event_loop_longest_stall_seconds"
BUSIEST = "slurm_operator_event_loop_longest_stall_cpu_seconds"
OWN = "slurm_operator_event_loop_longest_stall_own_seconds"


def value(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def test_only_the_time_between_two_looks_counts_and_only_if_it_is_long() -> None:
    """A turn that takes long is counted with its length, the longest is kept; waiting is no turn."""
    count, total = value(f"{STALLS}_count"), value(f"{STALLS}_sum")
    # Waits until 10, works until 110, waits until 500, works for a moment, waits, works from 510 to 560.
    clock = iter([10.0, 110.0, 500.0, 500.001, 510.0, 560.0, 561.0])
    # Of the first it had the processor for 20, of the last for 40.
    processor = iter([1.0, 21.0, 22.0, 23.0, 63.0, 64.0])
    # In the first it was kept waiting for a processor for 75, in the last for 5.
    queued = iter([0.0, 75.0, 75.0, 80.0, 85.0, 85.0])
    # It slept in both.
    slept = iter([0, 3, 3, 3, 4, 4])
    with TimedSelector(
        lambda: next(clock), lambda: next(processor), lambda: next(queued), lambda: next(slept)
    ) as selector:
        for _ in range(4):
            assert selector.select(0) == []
    assert value(f"{STALLS}_count") == count + 2
    assert value(f"{STALLS}_sum") == total + 150.0
    assert value(LONGEST) == 100.0
    assert value(BUSIEST) == 40.0
    assert value(OWN) == 45.0


def test_a_turn_that_never_sleeps_waits_for_nothing() -> None:
    """What is neither processor time nor the wait for a processor was taken by the hypervisor then."""
    clock, processor = iter([0.0, 500.0, 501.0]), iter([0.0, 20.0, 20.0])
    with TimedSelector(lambda: next(clock), lambda: next(processor), lambda: 0.0, lambda: 7) as selector:
        for _ in range(2):
            assert selector.select(0) == []
    assert value(LONGEST) == 500.0
    assert value(OWN) == 20.0


def test_the_wait_for_a_processor_is_what_the_kernel_says(tmp_path: Path) -> None:
    """The second number of the kernel's line counts, in nanoseconds; what cannot be read changes nothing."""
    line = tmp_path / "schedstat"
    line.write_text("9000000000 2500000000 17\n")
    told, untold, real = QueueTime(str(line)), QueueTime(str(tmp_path / "none")), QueueTime()
    try:
        assert told() == 2.5
        assert untold() == 0.0
        assert 0.0 <= real() <= real()
        line.write_text("no numbers\n")
        assert told() == told() == 2.5
    finally:
        for one in (told, untold, real):
            one.close()


async def test_a_breather_lets_others_go_on_once_its_time_is_over() -> None:
    """Work that takes long gives way to others, work that does not goes on at once."""
    moments = iter([0.0, 0.5 * SLICE, 2 * SLICE, 2 * SLICE, 2.5 * SLICE])
    breathe = Breather(lambda: next(moments))
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "ran")
    await breathe()
    assert others == []
    await breathe()
    assert others == ["ran"]
    asyncio.get_running_loop().call_soon(others.append, "again")
    await breathe()
    assert others == ["ran"]


def test_a_loop_of_the_kind_runs_what_any_loop_runs() -> None:
    """The loop runs tasks, timers and threads, and no thread keeps it waiting for long."""

    async def work() -> str:
        await asyncio.sleep(0.001)
        return await asyncio.to_thread(lambda: "done")

    with asyncio.Runner(loop_factory=timed_loop) as runner:
        assert runner.run(work()) == "done"
        assert sys.getswitchinterval() == pytest.approx(0.001)
