"""An event loop whose transports are of no class of asyncio's, as those of uvloop and other libraries.

They do what a transport does, by passing it on to a real one. Code that asks for the class of a transport
fails here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class ForeignTransport:
    """A transport by what it does."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Between(asyncio.Protocol):
    """Passes everything on to the protocol of the code under test, with a foreign transport."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.inner.connection_made(ForeignTransport(transport))

    def __getattribute__(self, name: str) -> Any:
        if name in ("data_received", "eof_received", "connection_lost", "pause_writing", "resume_writing"):
            return getattr(object.__getattribute__(self, "inner"), name)
        return object.__getattribute__(self, name)


class ForeignLoop(asyncio.SelectorEventLoop):
    """An event loop that hands out foreign transports for outgoing connections."""

    async def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        transport, between = await super().create_connection(
            lambda: _Between(protocol_factory()), *args, **options
        )
        return ForeignTransport(transport), between.inner


def run_foreign(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine function on such a loop."""
    with asyncio.Runner(loop_factory=ForeignLoop) as runner:
        runner.run(main())
