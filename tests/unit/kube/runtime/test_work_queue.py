"""The queue on an event loop, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from slurm_operator.kube.decide.backoff import Backoff
from slurm_operator.kube.process import metrics
from slurm_operator.kube.runtime.work_queue import QueueShutDown, WorkQueue
from tests.support.virtual_time import DeadlockError, run_virtual, virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


def sample(name: str, queue: WorkQueue[str]) -> float:
    value = metrics.REGISTRY.get_sample_value(name, {"name": queue.name, "controller": queue.name})
    assert value is not None
    return value


@virtual_time
async def test_get_waits_for_the_earliest_delay() -> None:
    """A worker sleeps until the earliest delayed key is due, also when that one is added last."""
    queue: WorkQueue[str] = WorkQueue("delays")
    queue.add_after("late", 30.0)
    taker = asyncio.create_task(queue.get())
    await asyncio.sleep(1.0)
    queue.add_after("early", 4.0)
    assert (await taker, now()) == ("early", 5.0)
    assert (await queue.get(), now()) == ("late", 30.0)


@virtual_time
async def test_a_key_in_work_is_not_handed_out_twice() -> None:
    """However many workers wait and however often a key is added, one worker at a time has it."""
    queue: WorkQueue[str] = WorkQueue("exclusion")
    active = 0
    runs = 0

    async def worker() -> None:
        nonlocal active, runs
        while True:
            try:
                key = await queue.get()
            except QueueShutDown:
                return
            active += 1
            runs += 1
            assert active == 1
            await asyncio.sleep(1.0)
            active -= 1
            queue.done(key)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(worker())
        for _ in range(10):
            queue.add("a")
            await asyncio.sleep(0.25)
        await asyncio.sleep(5.0)
        queue.shut_down()
    # Added at 0, 0.25 … 2.25: runs begin at 0, 1, 2 and, for what was added during the third, at 3.
    assert runs == 4


@virtual_time
async def test_a_cancelled_worker_passes_the_key_on() -> None:
    """A worker cancelled in the moment it is woken does not take the key with it."""
    queue: WorkQueue[str] = WorkQueue("cancel")
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0.1)
    queue.add("a")
    first.cancel()
    assert await second == "a"


@virtual_time
async def test_a_cancelled_waiter_is_not_woken() -> None:
    """A worker that was cancelled before the key came does not swallow the wake-up."""
    queue: WorkQueue[str] = WorkQueue("cancel-before")
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0.1)
    first.cancel()
    queue.add("a")
    assert await second == "a"
    assert first.cancelled()


@virtual_time
async def test_shut_down_wakes_every_waiter() -> None:
    """Workers that wait for keys are told that there will be none."""
    queue: WorkQueue[str] = WorkQueue("shutdown")
    takers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0.1)
    queue.add_after("never", 10.0)
    queue.shut_down()
    results = await asyncio.gather(*takers, return_exceptions=True)
    assert [type(result) for result in results] == [QueueShutDown] * 3


@virtual_time
async def test_draining_hands_out_what_waits_and_what_comes_back() -> None:
    """A drained queue ends after the last waiting key, the one re-added during its work included."""
    queue: WorkQueue[str] = WorkQueue("drain")
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "a"
    queue.add("a")
    queue.shut_down(drain=True)
    queue.add("refused")
    assert await queue.get() == "b"
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1.0)
    assert not waiting.done()
    queue.done("a")
    assert await waiting == "a"
    queue.done("a")
    with pytest.raises(QueueShutDown, match="drain"):
        await queue.get()


@virtual_time
async def test_rate_limited_adds_back_off_until_forgotten() -> None:
    """Each failure doubles the delay; forgetting starts over; a server's wish is a lower bound."""
    queue: WorkQueue[str] = WorkQueue("retries", backoff=Backoff(1.0, 900.0))
    times = []
    for _ in range(3):
        queue.add_rate_limited("a")
        times.append((await queue.get(), now()))
        queue.done("a")
    assert times == [("a", 1.0), ("a", 3.0), ("a", 7.0)]
    assert queue.retries("a") == 3
    queue.forget("a")
    assert queue.add_rate_limited("a", at_least=5.0) == 5.0
    assert (await queue.get(), now()) == ("a", 12.0)
    assert sample("workqueue_retries_total", queue) == 4


@virtual_time
async def test_metrics_follow_the_queue() -> None:
    """Depth, adds, waiting time and working time are those of client-go's work queue."""
    queue: WorkQueue[str] = WorkQueue("measured")
    queue.add("a")
    queue.add("a")
    queue.add("b")
    queue.add_after("c", 3.0)
    assert sample("workqueue_depth", queue) == 2
    assert sample("workqueue_adds_total", queue) == 2
    await asyncio.sleep(4.0)
    assert sample("workqueue_depth", queue) == 3
    assert await queue.get() == "a"
    assert sample("workqueue_depth", queue) == 2
    assert sample("workqueue_adds_total", queue) == 3
    assert sample("workqueue_queue_duration_seconds_sum", queue) == 4.0
    await asyncio.sleep(2.0)
    assert await queue.get() == "b"
    await asyncio.sleep(1.0)
    queue.measure_work()
    assert sample("workqueue_unfinished_work_seconds", queue) == 4.0
    assert sample("workqueue_longest_running_processor_seconds", queue) == 3.0
    queue.done("a")
    assert sample("workqueue_work_duration_seconds_sum", queue) == 3.0


def test_virtual_time_reports_a_deadlock() -> None:
    """A test that waits for what nobody will do fails with a sentence instead of hanging."""
    queue: WorkQueue[str] = WorkQueue("deadlock")

    async def wait_for_ever() -> None:
        await queue.get()

    with pytest.raises(DeadlockError, match="no timer is left"):
        run_virtual(wait_for_ever())
