"""Threads that all Slurm clusters share, in turns.

A namespace uses at most its share of the threads, and namespaces that wait take turns. So a namespace
with many clusters, each with much to compute or with a name that cannot be resolved, delays others by one
turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Turns:
    """So many at a time, and so many of one namespace; `async with turns.taken(namespace)` waits for one."""

    def __init__(self, most: int, share: int) -> None:
        self._free = most
        self._share = share
        self._busy: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def taken(self, namespace: str) -> AsyncIterator[None]:
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
