"""A bounded number of requests at a time, shared fairly between groups.

A group (a namespace) has at most its share of the slots, and groups that wait take turns (`decide.turns`). So
requests of one namespace that the API server is slow to answer, be it for a webhook of that namespace, leave
slots to the others, and a thousand that wait delay those of another namespace by one turn.

A few are handed out in each turn of the event loop, because sending a request takes up to a millisecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from slurm_operator.kube.decide.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Of so few slots no part can be kept free.
_FEW: Final = 8
# So many begin in one turn of the event loop.
_IN_A_TURN: Final = 8


class Slots:
    """So many slots; `async with slots.taken(group)` waits for one."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._share = most if most < _FEW else most * 3 // 4
        self._begun = 0
        self._busy: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        # The groups that wait and have less than their share.
        self._turns: Turns[str] = Turns()

    @asynccontextmanager
    async def taken(self, group: str) -> AsyncIterator[None]:
        """Hold a slot of a group."""
        await self._acquire(group)
        try:
            yield
        finally:
            self._release(group)

    async def _acquire(self, group: str) -> None:
        # If this holds, those that wait have their share.
        if self._free and self._begun < _IN_A_TURN and self._may_have(group):
            self._take(group)
            return
        slot = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(slot)
        self._take_turns(group)
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
        if self._share > _IN_A_TURN:
            if not self._begun:
                asyncio.get_running_loop().call_soon(self._next_turn)
            self._begun += 1
        self._free -= 1
        self._busy[group] = self._busy.get(group, 0) + 1

    def _release(self, group: str) -> None:
        self._free += 1
        self._busy[group] -= 1
        if not self._busy[group]:
            del self._busy[group]
        self._take_turns(group)
        self._hand_out()

    def _take_turns(self, group: str) -> None:
        if group in self._waiting and self._may_have(group):
            self._turns.add(group)

    def _next_turn(self) -> None:
        self._begun = 0
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free and self._begun < _IN_A_TURN and (group := self._turns.pop()) is not None:
            waiting = self._waiting[group]
            slot = waiting.popleft()
            if not waiting:
                del self._waiting[group]
            # Else it was cancelled, and is not yet forgotten.
            if not slot.done():
                self._take(group)
                slot.set_result(None)
            self._take_turns(group)

    def _forget(self, group: str, slot: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(group)
        if waiting is not None and slot in waiting:
            waiting.remove(slot)
            if not waiting:
                del self._waiting[group]
                self._turns.drop(group)
