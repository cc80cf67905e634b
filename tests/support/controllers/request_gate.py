"""A gate before a slurmrestd: requests of some kinds wait there until they are let through.

    async with Gate(hostile.url) as gate:                  # users of `gate.url` reach the server behind it
        gate.close("POST nodes")                           # whoever writes to nodes waits from now on
        await eventually(lambda: gate.waiting("POST nodes"), "a write")
        gate.let_one_in("POST nodes")                      # the one that has waited longest
        gate.open()                                        # all of them, and whoever comes

A server that hangs looks like this to its clients, and here the test decides for how long.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Self

from aiohttp import ClientSession, web

if TYPE_CHECKING:
    from types import TracebackType

_DROPPED = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-encoding"})


class Gate:
    """The gate; use it as an async context manager."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._closed: set[str] = set()
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = ClientSession(auto_decompress=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.open()
        await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def close(self, kind: str) -> None:
        """Let requests of a kind, such as `GET nodes`, wait from now on."""
        self._closed.add(kind)

    def open(self) -> None:
        """Let everybody in."""
        self._closed.clear()
        for waiting in self._waiting.values():
            for one in waiting:
                one.cancel()

    def waiting(self, kind: str) -> int:
        """Return how many requests of a kind wait."""
        return len(self._waiting[kind])

    def let_one_in(self, kind: str) -> None:
        """Let the request in that has waited longest."""
        self._waiting[kind][0].cancel()

    async def _pass(self, request: web.Request) -> web.Response:
        kind = f"{request.method} {'/'.join(request.path.split('/')[3:]).strip('/')}"
        body = await request.read()
        if kind in self._closed:
            await self._wait(kind)
        assert self._session is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED}
        async with self._session.request(
            request.method, f"{self._target}{request.path_qs}", headers=headers, data=body or None
        ) as reply:
            sent = {name: value for name, value in reply.headers.items() if name.lower() not in _DROPPED}
            return web.Response(status=reply.status, headers=sent, body=await reply.read())

    async def _wait(self, kind: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[kind].append(turn)
        try:
            await asyncio.wait({turn})
        finally:
            self._waiting[kind].remove(turn)
