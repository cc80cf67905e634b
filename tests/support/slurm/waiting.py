"""Waiting for what a server will say, with a deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

# Rarely, a wait for 24.11 takes a whole minute; why is not known. It must not end just before that is over.
LONG = 150.0


async def until(ask: Callable[[], Awaitable[T]], good: Callable[[T], bool], within: float = LONG) -> T:
    """Ask until the answer is the one that is waited for."""
    async with asyncio.timeout(within):
        while not good(answer := await ask()):  # noqa: ASYNC110 - the server cannot call back
            await asyncio.sleep(0.05)
    return answer
