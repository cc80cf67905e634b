"""Encodes and sends replies, few at a time, and only to clients that read them.

A list of ten thousand workers takes some ten megabytes, and as much again in the buffers of its connection
until the client has read it. So only some replies are encoded and sent at a time, others wait for their turn
before they take memory, and a client that does not read is disconnected: closing a connection in the usual
way would wait for that client as well.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.status_api.slicing import written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from aiohttp import web

# A client that does not read for so long is gone.
WRITE_SECONDS: Final = 20.0
_WAIT_SECONDS: Final = 10.0
_AT_ONCE: Final = 8


class ReplySender:
    """Sends replies; to be used from one event loop."""

    def __init__(self, write_seconds: float = WRITE_SECONDS, at_once: int = _AT_ONCE) -> None:
        self._write_seconds = write_seconds
        self._slots = asyncio.Semaphore(at_once)
        self.sending = 0
        """How many replies are in memory."""

    @asynccontextmanager
    async def encoded(
        self, head: Mapping[str, Any], lists: Mapping[str, Iterable[Any]]
    ) -> AsyncIterator[bytes]:
        """Yield JSON of some fields and some long lists, to be sent at once.

        A TimeoutError if there is no turn for a while.
        """
        async with asyncio.timeout(_WAIT_SECONDS):
            await self._slots.acquire()
        self.sending += 1
        try:
            yield await written(head, **lists)
        finally:
            self.sending -= 1
            self._slots.release()

    async def write(self, request: web.Request, response: web.StreamResponse, data: bytes) -> None:
        """Send a part of a reply; a client that does not read it is disconnected, with a TimeoutError."""
        try:
            async with asyncio.timeout(self._write_seconds):
                await response.write(data)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise


def left(request: web.Request) -> bool:
    """Return whether the client of a request has closed its connection."""
    return request.transport is None or request.transport.is_closing()
