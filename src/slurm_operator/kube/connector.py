"""The moment a request gets its connection.

Two facts about a write are only known there: before it, nothing of the request has left the process; after
it, everything may have. So this is where an attempt is marked as sent, and where the fence is asked: however
long name lookup, TCP and TLS took, a process that lost its lease meanwhile sends nothing.
"""

from __future__ import annotations

import asyncio
import socket
from contextvars import ContextVar
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import ClientTimeout, TCPConnector

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.client import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

# A dead peer is noticed within a minute even on a watch that has nothing to say.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)
# The API server closes idle connections after 90 s; giving them up first avoids writing into a closed one.
_KEEP_IDLE_SECONDS = 60.0


class Attempt:
    """What is known about one attempt while it runs."""

    __slots__ = ("_fence", "_once", "_transport", "sent")

    def __init__(self, fence: Callable[[], float | None] | None = None, *, once: bool = False) -> None:
        self._fence = fence
        self._once = once
        self.reset()

    def reset(self) -> None:
        """Forget the connection: nothing is sent, and the one used before may serve somebody else by now."""
        self.sent = False
        self._transport: asyncio.BaseTransport | None = None

    def connected(self, connection: Connection) -> float | None:
        """Note that the request has a connection now, or refuse it; return the fence's limit on its time."""
        if self.sent and self._once:
            # aiohttp repeats a PUT or DELETE when a kept connection breaks; the first one may have worked.
            raise aiohttp.ServerDisconnectedError
        seconds = self._fence() if self._fence is not None else None
        self.sent = True
        self._transport = connection.transport
        return seconds

    def abandon(self) -> None:
        """Drop the connection of an unfinished answer without waiting for the other side's goodbye."""
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()


attempt_in_context: ContextVar[Attempt] = ContextVar("kube_attempt")


class Connector(TCPConnector):
    """Connections with TCP keepalive that report to the attempt they serve."""

    def __init__(self) -> None:
        # Slots bound the requests and watches come on top, so the pool itself has no limit.
        super().__init__(limit=0, keepalive_timeout=_KEEP_IDLE_SECONDS, socket_factory=_keepalive_socket)

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        """Return a connection for a request that may be sent."""
        connection = await super().connect(req, traces, timeout)
        try:
            seconds = attempt_in_context.get().connected(connection)
            if seconds is not None:
                # Only the server can end a write whose sender is frozen while, say, a webhook holds it up.
                req.url = req.url.extend_query(timeout=f"{max(1, int(seconds * 1000))}ms")
        except BaseException:
            connection.release()
            raise
        return connection


def _keepalive_socket(info: tuple[int, int, int, str, object]) -> socket.socket:
    family, kind, proto, *_ = info
    made = socket.socket(family, kind, proto)
    for option in _KEEPALIVE:
        made.setsockopt(*option)
    return made
