"""Seeing what hangs: where a task waits, and how late the event loop is."""

from __future__ import annotations

import asyncio
import gc
import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import structlog

from slurm_operator.kube.process import metrics

if TYPE_CHECKING:
    from types import TracebackType

log = structlog.get_logger(__name__)

# `loop_turns` measures every turn; this one need not wake an operator at rest more often.
LAG_TICK = 1.0
LAG_WARNING = 1.0

# Coroutines, generator-based awaitables and async generators name the same two things differently.
_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")


def await_stack(task: asyncio.Task[Any]) -> list[str]:
    """Return the places at which a suspended task waits, outermost first.

    `Task.get_stack` knows only the outermost frame; what one wants to see is the innermost.
    """
    places: list[str] = []
    waiting: object = None if task.done() else task.get_coro()
    while waiting is not None:
        frame = _first(waiting, _FRAMES)
        if frame is None:
            # What drives one step of an async generator, or of `__await__`, keeps what it drives to itself.
            inside = next((held for held in gc.get_referents(waiting) if _first(held, _FRAMES)), None)
            if inside is None:
                places.append(type(waiting).__name__)
            waiting = inside
            continue
        places.append(_place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))
        waiting = _first(waiting, _AWAITED)
    return places


def traceback_places(trace: TracebackType | None) -> list[str]:
    """Return the places a traceback goes through, outermost first, in the words of `await_stack`."""
    return [_place(frame.filename, frame.lineno or 0, frame.name) for frame in traceback.extract_tb(trace)]


async def monitor_loop_lag() -> None:
    """Measure for ever how late the event loop runs what is due, and say so when it is bad."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_TICK
        await asyncio.sleep(LAG_TICK)
        lag = max(0.0, loop.time() - due)
        metrics.EVENT_LOOP_LAG.observe(lag)
        if lag > LAG_WARNING:
            log.warning(
                "the event loop was blocked: something computed, or called a blocking function, for too long",
                lag_seconds=round(lag, 3),
            )


def _first(source: object, names: tuple[str, ...]) -> Any:
    return next((value for name in names if (value := getattr(source, name, None)) is not None), None)


def _place(file: str, line: int, function: str) -> str:
    return f"{PurePath(file).name}:{line} in {function}"
