"""Computing beside the event loop, in turns between namespaces."""

from __future__ import annotations

import asyncio
import threading
import time

from slurm_operator.kube.process.threads import run_in_thread


async def test_many_computations_of_one_namespace_are_one_turn_to_another() -> None:
    """A namespace with a hundred long computations delays that of another by a few of them."""
    done: list[str] = []

    def compute() -> str:
        time.sleep(0.01)
        done.append(threading.current_thread().name)
        return done[-1]

    hostile = [asyncio.create_task(run_in_thread(compute, "hostile")) for _ in range(100)]
    while not done:  # noqa: ASYNC110 - a thread sets no event of the loop
        await asyncio.sleep(0)
    before = len(done)
    assert (await run_in_thread(compute, "other")).startswith("compute")
    assert len(done) - before <= 10
    for task in hostile:
        task.cancel()
    await asyncio.wait(hostile)
    assert await run_in_thread(lambda: "free") == "free"
