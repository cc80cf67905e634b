"""A bounded number of requests at a time, shared fairly between groups.

A group (a namespace) has at most its share of the slots, and groups that wait take turns. So requests of one
namespace that the API server is slow to answer, be it for a webhook of that namespace, leave slots to the
others, and a thousand that wait delay those of another namespace by one turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Of so few slots no part can be kept free.
_FEW: Final = 8


class Slots:
    """So many slots; `async with slots.taken(group)` waits for one."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._share = most if most < _FEW else most * 3 // 4
        self._busy: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def taken(self, group: str) -> AsyncIterator[None]:
        """Hold a slot of a group."""
        await self._acquire(group)
        try:
            yield
        finally:
            self._release(group)

    async def _acquire(self, group: str) -> None:
        # While a slot is free, a group waits only because it has its share.
        if self._free and self._may_have(group):
            self._take(group)
            return
        slot = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.cancelled():
                self._forget(group, slot)
            else:
                # It was handed out in the same moment.
                self._release(group)
            raise

    def _may_have(self, group: str) -> bool:
        return self._busy.get(group, 0) < self._share

    def _take(self, group: str) -> None:
        self._free -= 1
        self._busy[group] = self._busy.get(group, 0) + 1

    def _release(self, group: str) -> None:
        self._free += 1
        self._busy[group] -= 1
        if not self._busy[group]:
            del self._busy[group]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free:
            if (group := next(filter(self._may_have, self._waiting), None)) is None:
                return
            waiting = self._waiting.pop(group)
            slot = waiting.popleft()
            if waiting:
                self._waiting[group] = waiting  # behind all others
            if slot.done():
                continue  # cancelled, and not yet forgotten
            self._take(group)
            slot.set_result(None)

    def _forget(self, group: str, slot: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(group)
        if waiting is not None and slot in waiting:
            waiting.remove(slot)
            if not waiting:
                del self._waiting[group]
