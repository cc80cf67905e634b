from __future__ import annotations

import asyncio
import gc
import sys
import threading
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import aiohttp
import pytest

from slurm_operator.kube.process.listen_address import ListenAddress
from slurm_operator.kube.process.pprof import ProfileServer, sample, timeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import FrameType

LOOPBACK = ListenAddress("127.0.0.1", 0)


@asynccontextmanager
async def serving(server: ProfileServer) -> AsyncIterator[str]:
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_profile_server_shows_tasks_and_threads() -> None:
    """The task list names each task and the line at which it waits."""

    async def waits_for_godot() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(waits_for_godot(), name="vladimir")
    async with serving(ProfileServer(LOOPBACK)) as url:
        _, text = await get(f"{url}/debug/pprof/goroutine")
        assert "task vladimir" in text
        assert "waits_for_godot" in text
        assert "thread MainThread" in text
        status, index = await get(f"{url}/debug/pprof/")
        assert status == 200
        assert "/debug/pprof/heap" in index
        assert "pytest" in (await get(f"{url}/debug/pprof/cmdline"))[1]
    task.cancel()


async def test_profile_is_collapsed_stacks() -> None:
    """A profile is one line per stack, frames joined by semicolons, then the number of samples."""
    async with serving(ProfileServer(LOOPBACK)) as url:
        status, text = await get(f"{url}/debug/pprof/profile?seconds=0.2")
        assert status == 200
        stack, count = text.splitlines()[0].rsplit(" ", 1)
        assert ";" in stack
        assert int(count) > 0


@pytest.mark.parametrize("what", ["profile", "trace"])
@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "1e9", "nan"])
async def test_odd_durations_are_refused(what: str, seconds: str) -> None:
    """A profile or trace that could not end in reasonable time is refused."""
    async with serving(ProfileServer(LOOPBACK)) as url:
        status, text = await get(f"{url}/debug/pprof/{what}?seconds={seconds}")
        assert (status, text) == (400, "seconds: want a number above 0, up to 100\n")


async def test_heap_summary_and_tracing() -> None:
    """The heap shows types by count, and lines once recording was switched on, until it is switched off."""
    async with serving(ProfileServer(LOOPBACK)) as url:
        assert "builtins.dict" in (await get(f"{url}/debug/pprof/heap"))[1]
        assert (await get(f"{url}/debug/pprof/heap?trace=start"))[0] == 200
        assert "recorded since trace=start" in (await get(f"{url}/debug/pprof/heap"))[1]
        assert (await get(f"{url}/debug/pprof/heap?trace=stop"))[0] == 200
        assert "recorded since" not in (await get(f"{url}/debug/pprof/heap"))[1]
        assert (await get(f"{url}/debug/pprof/heap?trace=maybe"))[0] == 400


async def test_sampling_sees_the_main_thread() -> None:
    """The sampler counts the stacks of the threads that run while it looks."""
    counts = await asyncio.to_thread(sample, 0.05, 200)
    assert any(stack.startswith("MainThread;") for stack in counts)


async def test_the_heap_is_walked_outside_the_event_loop() -> None:
    """Looking at every object of the process happens in another thread than the one all work is done in."""
    walkers: list[str] = []

    def note(_frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and called is gc.get_objects:
            walkers.append(threading.current_thread().name)

    async with serving(ProfileServer(LOOPBACK)) as url:
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            assert (await get(f"{url}/debug/pprof/heap"))[0] == 200
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert len(walkers) == 1
    assert walkers != [threading.main_thread().name]


def samplers() -> int:
    code = sample.__code__
    return sum(any(frame.f_code is code for frame in stack(top)) for top in sys._current_frames().values())


def stack(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


async def test_a_profile_ends_with_its_server() -> None:
    """Closing the server during a long profile leaves no thread behind for which the process would wait."""
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        async with serving(ProfileServer(LOOPBACK)) as url:
            request = asyncio.create_task(session.get(f"{url}/debug/pprof/profile?seconds=90"))
            while not samplers():  # noqa: ASYNC110 - a thread that starts sets no event of the loop
                await asyncio.sleep(0.01)
        while samplers():  # noqa: ASYNC110 - nor does one that ends
            await asyncio.sleep(0.01)
        with pytest.raises(aiohttp.ClientError):
            await request


async def test_the_trace_shows_where_tasks_wait() -> None:
    """A trace names each task with the calls in which it waits, and does not repeat what did not change."""

    async def waits_for_godot() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(waits_for_godot(), name="estragon")
    async with serving(ProfileServer(LOOPBACK)) as url:
        status, text = await get(f"{url}/debug/pprof/trace?seconds=0.3")
    task.cancel()
    assert status == 200
    [line] = [line for line in text.splitlines() if "  estragon  " in line]
    assert "waits_for_godot" in line


async def test_a_timeline_has_what_changed() -> None:
    """A task has a line when it is first seen, when it waits elsewhere, and when it is gone."""
    task: asyncio.Task[object] = asyncio.create_task(asyncio.sleep(0), name="lucky")
    looks: list[dict[asyncio.Task[object], str]] = [{}, {task: "a"}, {task: "a"}, {task: "b"}, {}]
    lines = [
        line.split()
        for now, (before, after) in enumerate(pairwise(looks))
        for line in timeline(now, before, after)
    ]
    assert lines == [["0.000", "lucky", "a"], ["2.000", "lucky", "b"], ["3.000", "lucky", "gone"]]
    await task


async def test_there_are_no_symbols_to_look_up() -> None:
    """A tool that asks for symbols learns, in pprof's own words, that there are none."""
    async with serving(ProfileServer(LOOPBACK)) as url:
        assert await get(f"{url}/debug/pprof/symbol") == (200, "num_symbols: 0\n")
