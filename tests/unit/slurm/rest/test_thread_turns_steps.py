"""Long computations beside the event loop: in steps, in turns, cancellable."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.model.steps import at_once
from slurm_operator.slurm.rest.thread_turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Generator


def counting(steps: int, done: list[str]) -> Generator[None, None, int]:
    for _ in range(steps):
        done.append(threading.current_thread().name)
        yield
    return steps


async def test_a_computation_returns_what_it_would_at_once() -> None:
    """In slices or at once, the result is the same; beside the loop, no step runs on its thread."""
    beside: list[str] = []
    assert await in_slices(counting(5, beside), in_thread=True) == at_once(counting(5, [])) == 5
    assert threading.current_thread().name not in beside
    assert await in_slices(counting(0, [])) == 0


async def test_a_long_computation_does_not_keep_a_short_one_waiting() -> None:
    """Each step waits in line behind those of all others, so a short computation waits for a step of each."""
    hostile: list[list[str]] = [[] for _ in range(5)]
    long = [asyncio.create_task(in_slices(counting(10**9, done), in_thread=True)) for done in hostile]
    while not all(hostile):  # noqa: ASYNC110 - a step is no event of the loop
        await asyncio.sleep(0)
    for _ in range(20):
        before = [len(done) for done in hostile]
        await in_slices(counting(3, []), in_thread=True)
        # Four times through the line; a task may have been a step further on when it was counted.
        assert all(len(done) - was <= 10 for done, was in zip(hostile, before, strict=True))
    for task in long:
        task.cancel()
    await asyncio.wait(long)


async def test_many_long_computations_of_one_namespace_are_one_turn_to_others() -> None:
    """A namespace with fifty computations under way delays each step of another by one of its steps."""
    done: list[str] = []
    computations = [counting(10**9, done) for _ in range(50)]
    long = [asyncio.create_task(in_slices(one, in_thread=True, namespace="hostile")) for one in computations]
    while len(done) < 100:  # noqa: ASYNC110 - a step is no event of the loop
        await asyncio.sleep(0)
    for _ in range(20):
        before = len(done)
        await in_slices(counting(3, []), in_thread=True, namespace="other")
        assert len(done) - before <= 10
    for task in long:
        task.cancel()
    await asyncio.wait(long)


async def test_a_computation_ends_when_it_is_cancelled() -> None:
    """After a cancellation at most the step that runs is finished: that is what a deadline is for."""
    done: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await in_slices(counting(10**9, done), in_thread=True)
    await in_slices(counting(1, []), in_thread=True)
    count = len(done)
    await in_slices(counting(1, []), in_thread=True)
    assert len(done) == count


async def test_an_error_of_a_computation_is_raised() -> None:
    """What a step raises is raised where the result is awaited."""

    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("in the second step")

    with pytest.raises(ValueError, match="in the second step"):
        await in_slices(failing())
