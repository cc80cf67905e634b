"""Faults on the way to a real API server: connections that break, refuse or fall silent.

`Proxy` passes bytes between a client and the server without looking into them, so TLS stays end to end
(the server's certificate names 127.0.0.1, whatever the port). It can cut everything now, cut after an
exact number of bytes (which, inside one big object, is in the middle of its event), refuse new
connections, or hold all bytes back.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

_CHUNK = 65536


class Proxy:
    """A TCP proxy on loopback with faults on demand; use it as an async context manager."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 443)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._budget: int | None = None
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._links: set[asyncio.StreamWriter] = set()
        self.cuts = 0
        """How often `cut_after` has struck."""
        self.refusals = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for pump in [*self._pumps]:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    @property
    def url(self) -> str:
        """Return the address to use instead of the server's."""
        if self._server is None:
            raise RuntimeError("the proxy is not running; use `async with Proxy(...)`")
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    # --- faults

    def cut(self) -> None:
        """Break every connection now."""
        for writer in self._links:
            writer.transport.abort()

    def cut_after(self, size: int) -> None:
        """Break, once, the connection on which byte number `size` from now arrives from the server."""
        self._budget = size

    def refuse(self) -> None:
        """Break every connection, and each new one as soon as it is made."""
        self._refusing = True
        self.cut()

    def hang(self) -> None:
        """Keep all connections and hold every byte back."""
        self._flowing.clear()

    def restore(self) -> None:
        """Work again."""
        self._refusing = False
        self._flowing.set()

    # --- work

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            self.refusals += 1
            writer.transport.abort()
            return
        try:
            back_reader, back_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._links |= {writer, back_writer}
        for source, sink, limited in ((reader, back_writer, False), (back_reader, writer, True)):
            pump = asyncio.create_task(self._pump(source, sink, {writer, back_writer}, limited=limited))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        *,
        limited: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._flowing.wait()
                if limited and self._budget is not None:
                    self._budget -= len(data)
                    if self._budget <= 0:
                        # Sent and drained before the break, so that the client does get the first part.
                        sink.write(data[: self._budget] if self._budget else data)
                        await sink.drain()
                        self._budget = None
                        self.cuts += 1
                        break
                sink.write(data)
                await sink.drain()
        for writer in pair:
            writer.close()
        self._links -= pair


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Run a server that accepts every connection and never says a word; yield its port."""
    writers: list[asyncio.StreamWriter] = []

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
