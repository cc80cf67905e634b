"""The event loop that measures its turns."""

from __future__ import annotations

import asyncio

from slurm_operator.kube.metrics import REGISTRY
from slurm_operator.kube.turns import TimedSelector, timed_loop

STALLS = "slurm_operator_event_loop_stall_seconds"
LONGEST = "slurm_operator_event_loop_longest_stall_seconds"
BUSIEST = "slurm_operator_event_loop_longest_stall_cpu_seconds"


def value(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def test_only_the_time_between_two_looks_counts_and_only_if_it_is_long() -> None:
    """A turn that takes long is counted with its length, the longest is kept; waiting is no turn."""
    count, total = value(f"{STALLS}_count"), value(f"{STALLS}_sum")
    # Waits until 10, works until 110, waits until 500, works for a moment, waits, works from 510 to 560.
    clock = iter([10.0, 110.0, 500.0, 500.001, 510.0, 560.0, 561.0])
    # Of the first it had the processor for 20, of the last for 40.
    processor = iter([1.0, 21.0, 22.0, 23.0, 63.0, 64.0])
    with TimedSelector(lambda: next(clock), lambda: next(processor)) as selector:
        for _ in range(4):
            assert selector.select(0) == []
    assert value(f"{STALLS}_count") == count + 2
    assert value(f"{STALLS}_sum") == total + 150.0
    assert value(LONGEST) == 100.0
    assert value(BUSIEST) == 40.0


def test_a_loop_of_the_kind_runs_what_any_loop_runs() -> None:
    """The loop runs tasks, timers and threads."""

    async def work() -> str:
        await asyncio.sleep(0.001)
        return await asyncio.to_thread(lambda: "done")

    with asyncio.Runner(loop_factory=timed_loop) as runner:
        assert runner.run(work()) == "done"
