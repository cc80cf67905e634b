"""The moment a request gets its connection, and the one in which its bytes leave.

Before the first, nothing of the request has left the process; after it, everything may have. So this is where
an attempt is marked as sent, and where the fence is asked: however long name lookup, TCP and TLS took, a
process that lost its lease meanwhile sends nothing.

The fence answers with the seconds in which the write must be over, wherever it is by then. They are shared
out. A quarter may pass until the bytes are written: aiohttp does that in a task of its own, so the fence is
asked again there, and what has become too late is not sent. A quarter may pass until the server has
acknowledged them: the kernel drops what is still unacknowledged after that (`TCP_USER_TIMEOUT`), so a network
that comes back later does not deliver a write of the past, even if this process is frozen or dead. Half is
for the server, as `timeout=` in the query. A write that is given up drops its unsent bytes (`SO_LINGER`).

A single write may have a fence of its own (`SendBy`): what was decided on evidence that soon counts no more.

The limit of all this: bytes that were acknowledged cannot be called back. If a load balancer or proxy stalls
after it took them, or the server is frozen as a whole, the write may be executed when that wakes up.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import aiohttp
from aiohttp import ClientRequest, ClientTimeout, TCPConnector

from slurm_operator.kube.errors import ConnectionFailed, Overdue

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_UNACKNOWLEDGED_MS = 60_000
# A dead peer is noticed within a minute even on a watch that has nothing to say.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS),
)
_DROP_UNSENT = struct.pack("ii", 1, 0)
# How the time of a fenced write is shared out; what is left is for the way from the fence to the socket.
_NETWORK_SHARE, _SERVER_SHARE = 0.25, 0.5
# The API server closes idle connections after 90 s; giving them up first avoids writing into a closed one.
_KEEP_IDLE_SECONDS = 60.0


@runtime_checkable
class Ledger(Protocol):
    """A fence that keeps account of the writes it has let through."""

    def unanswered(self, seconds: float, /) -> None:
        """Note that a write was given up without an answer: it may still land for so long."""


class SendBy:
    """The fence of one write that must not leave after a moment, and be over by another one.

    Moments are times of the running loop. The fence of the process is asked as well.
    """

    def __init__(self, what: str, last: float, over: float, fence: Callable[[], float | None] | None) -> None:
        self._what = what
        self._last = last
        self._over = over
        self._fence = fence

    def __call__(self) -> float:
        """Return how long the write may take; raise if it is too late to send it."""
        now = asyncio.get_running_loop().time()
        if now >= self._last:
            raise Overdue(f"{self._what}: not sent, the time for it was over")
        seconds = None if self._fence is None else self._fence()
        return self._over - now if seconds is None else min(seconds, self._over - now)

    def unanswered(self, seconds: float, /) -> None:
        """Note that the write was given up without an answer: it may still land for so long."""
        fence: object = self._fence
        if isinstance(fence, Ledger):
            fence.unanswered(seconds)


class Attempt:
    """What is known about one attempt while it runs."""

    __slots__ = ("_fence", "_needed", "_once", "_transport", "sent")

    def __init__(self, fence: Callable[[], float | None] | None = None, *, once: bool = False) -> None:
        self._fence = fence
        self._once = once
        self.reset()

    def reset(self) -> None:
        """Forget the connection: nothing is sent, and the previous one may serve another request by now."""
        self.sent = False
        self._needed: float | None = None
        self._transport: asyncio.WriteTransport | None = None

    def connected(self, connection: Connection) -> float | None:
        """Note that the request has a connection now, or refuse it; return the server's share of its time."""
        if self.sent and self._once:
            # aiohttp repeats a PUT or DELETE when a kept connection breaks; the first one may have worked.
            raise aiohttp.ServerDisconnectedError
        seconds = self._fence() if self._fence is not None else None
        self.sent = True
        # By what it can do, not by its class: other event loops have transports of their own.
        self._transport = cast("asyncio.WriteTransport | None", connection.transport)
        unacknowledged = _UNACKNOWLEDGED_MS if seconds is None else _milliseconds(seconds * _NETWORK_SHARE)
        self._set(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacknowledged)
        if seconds is None:
            return None
        self._needed = seconds * (_NETWORK_SHARE + _SERVER_SHARE)
        return seconds * _SERVER_SHARE

    def refusal(self) -> Exception | None:
        """Return why the request must not be written now after all, having marked it as not sent."""
        if self._fence is None or self._needed is None:
            return None
        try:
            seconds = self._fence()
        except Exception as error:  # noqa: BLE001 - raised where the answer is awaited, as any other
            self.sent = False
            return error
        if seconds is None or seconds >= self._needed:
            return None
        self.sent = False
        return ConnectionFailed(
            "not sent: the event loop was so late that too little time is left for it", sent=False
        )

    def abandon(self) -> None:
        """Drop the connection of an unfinished answer without waiting for the other side's goodbye."""
        if self._transport is not None:
            if self._needed is not None and self.sent:
                self._set(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_UNSENT)
                fence: object = self._fence
                if isinstance(fence, Ledger):
                    fence.unanswered(self._needed)
            self._transport.abort()

    def _set(self, level: int, option: int, value: int | bytes) -> None:
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        # A transport that is closing still has a socket, whose bytes may still leave.
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(level, option, value)


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
                req.url = req.url.extend_query(timeout=f"{_milliseconds(seconds)}ms")
        except BaseException:
            connection.release()
            raise
        return connection


class FencedRequest(ClientRequest):
    """A request that asks once more whether it may be sent, in the moment it is written."""

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        """Write the request, or make the caller that awaits the response get the refusal instead."""
        refusal = attempt_in_context.get().refusal()
        if refusal is None:
            await super().write_bytes(writer, conn, content_length)
        elif conn.protocol is not None:
            conn.protocol.set_exception(refusal)


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _keepalive_socket(info: tuple[int, int, int, str, object]) -> socket.socket:
    family, kind, proto, *_ = info
    made = socket.socket(family, kind, proto)
    for option in _KEEPALIVE:
        made.setsockopt(*option)
    return made
