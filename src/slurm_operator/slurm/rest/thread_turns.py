"""Threads that all Slurm clusters share, in turns.

A namespace uses at most its share of the threads, and namespaces that wait take turns. So a namespace
with many clusters, each with much to compute or with a name that cannot be resolved, delays others by one
turn.

Long computations run in steps. The steps of a namespace wait in line for one thread, and namespaces take
turns; so a namespace that has little to compute is done soon, however much others have. Between two steps the
computation can be cancelled. A thread cannot be ended, so what matters is that no single step is long.

One thread: more of them would compute nothing faster, and with each the event loop waits longer for its turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from slurm_operator.slurm.model.steps import step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator


class ThreadTurns:
    """So many at a time, and so many of one namespace; `async with turns.turn(namespace)` waits for one."""

    def __init__(self, most: int, share: int) -> None:
        self._free = most
        self._share = share
        self._busy: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Hold a turn of a namespace."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It was handed out in the same moment.
                self._release(namespace)
            raise
        try:
            yield
        finally:
            self._release(namespace)

    def _release(self, namespace: str) -> None:
        self._free += 1
        self._busy[namespace] -= 1
        if not self._busy[namespace]:
            del self._busy[namespace]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free:
            may = (each for each in self._waiting if self._busy.get(each, 0) < self._share)
            if (namespace := next(may, None)) is None:
                return
            waiting = self._waiting.pop(namespace)
            turn = waiting.popleft()
            if waiting:
                self._waiting[namespace] = waiting  # behind all others
            if turn.done():
                continue  # given up
            self._free -= 1
            self._busy[namespace] = self._busy.get(namespace, 0) + 1
            turn.set_result(None)


T = TypeVar("T")

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="slurm-replies")
_TURNS: Final = ThreadTurns(1, 1)


async def in_slices(
    computation: Generator[None, None, T], *, in_thread: bool = False, namespace: str = ""
) -> T:
    """Return what a computation returns; only its first step runs here, and not even that if `in_thread`."""
    done, value = (False, None) if in_thread else step(computation)
    while not done:
        async with _TURNS.turn(namespace):
            done, value = await asyncio.get_running_loop().run_in_executor(_THREAD, step, computation)
    return value  # type: ignore[return-value]
