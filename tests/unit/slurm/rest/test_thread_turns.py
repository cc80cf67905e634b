"""Threads that all Slurm clusters share: a share for each namespace, and turns."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.rest.thread_turns import ThreadTurns
from tests.support.virtual_time import virtual_time


@virtual_time
async def test_namespaces_take_turns() -> None:
    """A namespace with a hundred that wait delays one of another namespace by one turn."""
    turns, order = ThreadTurns(1, 1), []

    async def use(namespace: str) -> None:
        async with turns.turn(namespace):
            order.append(namespace)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for namespace in (*["many"] * 100, *["few"] * 2):
            group.create_task(use(namespace))
    assert order[:6] == ["many", "many", "few", "many", "few", "many"]


@virtual_time
async def test_a_namespace_has_its_share_and_no_more() -> None:
    """Those of one namespace that never end leave turns to others."""
    turns, running = ThreadTurns(16, 4), Counter[str]()

    async def use(namespace: str) -> None:
        async with turns.turn(namespace):
            running[namespace] += 1
            await asyncio.sleep(1000)

    tasks = [asyncio.create_task(use(namespace)) for namespace in (*["hostile"] * 20, *["other"] * 5)]
    await asyncio.sleep(1)
    assert running == {"hostile": 4, "other": 4}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    async with turns.turn("hostile"):
        pass


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=40))
def test_no_turn_is_lost(plans: list[tuple[int, int, bool]]) -> None:
    """Whoever ends or gives up in whatever order, the bounds hold and all turns are free in the end."""

    @virtual_time
    async def play() -> None:
        turns, busy = ThreadTurns(3, 2), Counter[int]()

        async def use(namespace: int, seconds: int) -> None:
            async with turns.turn(str(namespace)):
                busy[namespace] += 1
                assert busy[namespace] <= 2
                assert busy.total() <= 3
                try:
                    await asyncio.sleep(seconds)
                finally:
                    busy[namespace] -= 1

        tasks = []
        for namespace, seconds, gives_up in plans:
            tasks.append(asyncio.create_task(use(namespace, seconds)))
            if gives_up:
                await asyncio.sleep(0)
                tasks[-1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() or task.exception() is None for task in tasks)
        assert (turns._free, turns._busy) == (3, {})

    play()
