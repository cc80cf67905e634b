"""An event loop whose time passes only when nothing else can happen.

Code that waits for timers (backoff, deadlines, watchdogs) is tested with its real delays and without waiting:
when no callback is ready, the clock jumps to the next timer. It suits only code without real I/O, since a
jump does not wait for a socket. A loop with nothing ready and no timer left would wait for ever; here that is
an error that says so.

    @virtual_time
    async def test_something() -> None: ...
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from typing import TYPE_CHECKING, Any, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")


class DeadlockError(RuntimeError):
    """Nothing is ready, no timer is set, and nobody else could wake the loop."""


class _Clock(selectors.DefaultSelector):
    """A selector that skips the time it was told to wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise DeadlockError("the test waits for something that will never happen: no timer is left")
        self.now += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time."""

    def __init__(self) -> None:
        self._virtual = _Clock()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def block(self, seconds: float) -> None:
        """Let time pass as if the running callback computed for so long."""
        self._virtual.now += seconds


def run_virtual(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an async test a plain one that runs on virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run
