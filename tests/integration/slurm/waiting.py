"""Waiting for what a server will say, with a deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]], good: Callable[[T], bool], within: float = 60.0) -> T:
    """Ask until the answer is the one that is waited for."""
    async with asyncio.timeout(within):
        while not good(answer := await ask()):  # noqa: ASYNC110 - the server cannot call back
            await asyncio.sleep(0.05)
    return answer
