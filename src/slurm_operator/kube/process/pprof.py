"""Looks into the running process: where it spends its time, what its tasks wait for, what fills its memory.

The paths are those of Go's pprof, where administrators of Go programs expect them; the responses are text.
Nothing here stops the program, and only `tracemalloc` instruments it. The profile is a sample: a thread of
its own reads the stacks of all threads a hundred times a second and counts them, in the collapsed form that
flame graph tools read. It ends with its request, so that a long profile does not delay the exit of the
process. The trace reads the asyncio tasks ten times a second, from within the loop (only there do they not
change meanwhile), and reports when each appeared, where it waited then, and when it ended. Memory is reported
from the garbage collector's own records, and line by line only once `tracemalloc` has been switched on by a
request, since that slows the process down until it is switched off. Profiles name functions, not addresses:
there are no symbols to look up, so `symbol` reports none.

Stacks show no values, only files, lines and function names.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING

from aiohttp import web

from slurm_operator.kube.process.serving import HttpServer
from slurm_operator.kube.process.watchdog import await_stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import FrameType

    from slurm_operator.kube.process.listen_address import ListenAddress

_HERTZ = 100
_DEFAULT_SECONDS = 30.0
# Go's server cuts answers after 120 s; longer profiles would be cut there as well.
_LONGEST_SECONDS = 100.0
_TRACE_HERTZ = 10
_DEFAULT_TRACE_SECONDS = 1.0
_TOP = 40

_INDEX = """\
/debug/pprof/profile?seconds=30  sampled stacks of all threads, one line each: frame;frame;frame count
/debug/pprof/trace?seconds=1     asyncio tasks over time: seconds, name, and where it waits from then on
/debug/pprof/goroutine           asyncio tasks and threads, each with its stack
/debug/pprof/heap                object counts by type and collector state
/debug/pprof/heap?trace=start    record allocations from now on (slows the process down)
/debug/pprof/heap?trace=stop     stop recording
/debug/pprof/cmdline             the command line
/debug/pprof/symbol              none: profiles carry the names of functions
"""


class ProfileServer(HttpServer):
    """Serves `/debug/pprof/`."""

    def __init__(self, address: ListenAddress | None) -> None:
        routes = [
            ("/debug/pprof/", _index),
            ("/debug/pprof/cmdline", _cmdline),
            ("/debug/pprof/profile", _profile),
            ("/debug/pprof/symbol", _symbol),
            ("/debug/pprof/trace", _trace),
            ("/debug/pprof/goroutine", _tasks),
            ("/debug/pprof/heap", _heap),
        ]
        super().__init__("profile", address, routes)


async def _index(_request: web.Request) -> web.Response:
    return web.Response(text=_INDEX)


async def _cmdline(_request: web.Request) -> web.Response:
    return web.Response(text="\0".join(sys.orig_argv))


async def _symbol(_request: web.Request) -> web.Response:
    return web.Response(text="num_symbols: 0\n")


async def _profile(request: web.Request) -> web.Response:
    seconds = _seconds(request, _DEFAULT_SECONDS)
    stop = threading.Event()
    try:
        counts = await asyncio.to_thread(sample, seconds, stop=stop)
    finally:
        # Cancelling the request leaves the thread alone, and a process cannot end before its threads.
        stop.set()
    return web.Response(text="".join(f"{stack} {count}\n" for stack, count in counts.most_common()))


def _seconds(request: web.Request, default: float) -> float:
    try:
        seconds = float(request.query.get("seconds", default))
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise web.HTTPBadRequest(text=f"seconds: want a number above 0, up to {_LONGEST_SECONDS:g}\n")
    return seconds


def sample(seconds: float, hertz: int = _HERTZ, *, stop: threading.Event | None = None) -> Counter[str]:
    """Count the stacks of all other threads until the time is over or `stop` is set; blocks its thread."""
    stop = stop or threading.Event()
    own = threading.get_ident()
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop.is_set():
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way to see all threads
            if ident != own:
                counts[collapse(names.get(ident, str(ident)), frame)] += 1
        stop.wait(1 / hertz)
    return counts


def collapse(thread: str, frame: FrameType | None) -> str:
    """Return a stack as one line, outermost call first."""
    calls: list[str] = []
    while frame is not None:
        code = frame.f_code
        calls.append(
            f"{frame.f_globals.get('__name__', code.co_filename)}.{code.co_qualname}:{frame.f_lineno}"
        )
        frame = frame.f_back
    return ";".join([thread, *reversed(calls)]).replace(" ", "_")


async def _trace(request: web.Request) -> web.Response:
    seconds = _seconds(request, _DEFAULT_TRACE_SECONDS)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    lines: list[str] = []
    before: dict[asyncio.Task[object], str] = {}
    while True:
        now = loop.time() - begin
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        places = {task: " > ".join(await_stack(task)) for task in tasks}
        lines += timeline(now, before, places)
        if now >= seconds:
            return web.Response(text="".join(lines))
        before = places
        await asyncio.sleep(min(1 / _TRACE_HERTZ, max(0.0, seconds - now)))


def timeline(
    now: float, before: Mapping[asyncio.Task[object], str], places: Mapping[asyncio.Task[object], str]
) -> Iterable[str]:
    """Tell which tasks came, went or wait elsewhere since the last sample, one line each."""
    for task, place in places.items():
        if before.get(task) != place:
            yield f"{now:9.3f}  {task.get_name()}  {place}\n"
    for task in before.keys() - places.keys():
        yield f"{now:9.3f}  {task.get_name()}  gone\n"


async def _tasks(_request: web.Request) -> web.Response:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    parts = [f"{len(tasks)} tasks, {threading.active_count()} threads\n"]
    for task in tasks:
        parts += [f"\ntask {task.get_name()}\n", *(f"  {place}\n" for place in await_stack(task))]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way to see all threads
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"\nthread {names.get(ident, str(ident))}\n{stack}")
    return web.Response(text="".join(parts))


async def _heap(request: web.Request) -> web.Response:
    trace = request.query.get("trace")
    if trace == "start":
        tracemalloc.start()
        return web.Response(text="recording allocations; ask /debug/pprof/heap later\n")
    if trace == "stop":
        tracemalloc.stop()
        return web.Response(text="no longer recording allocations\n")
    if trace is not None:
        return web.Response(status=400, text="trace: want start or stop\n")
    # The lines are made while they are joined, so the joining belongs into the thread as well.
    return web.Response(text=await asyncio.to_thread(lambda: "".join(_heap_lines())))


def _heap_lines() -> Iterable[str]:
    by_type: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)
        by_type[f"{kind.__module__}.{kind.__qualname__}"] += 1
    yield f"{by_type.total()} objects known to the collector, {gc.get_freeze_count()} frozen\n"
    yield f"collections by generation: {[stats['collections'] for stats in gc.get_stats()]}\n\n"
    yield from (f"{count:>10}  {name}\n" for name, count in by_type.most_common(_TOP))
    if tracemalloc.is_tracing():
        current, peak = tracemalloc.get_traced_memory()
        yield f"\nrecorded since trace=start: {current} bytes, at most {peak}\n"
        statistics = tracemalloc.take_snapshot().statistics("lineno")
        yield from (f"{entry.size:>10}  {entry.count:>8}  {entry.traceback}\n" for entry in statistics[:_TOP])
