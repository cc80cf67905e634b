"""Parts of the manager that fail, hang or end by themselves; on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.models.kinds import ConfigMap
from slurm_operator.kube.runtime.manager import Manager, RunnableFailed, _keep_informed
from tests.support.kube.manager_parts import LocalElector, LocalHealth, cancel_oneself, client
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@virtual_time
async def test_a_runnable_that_fails_ends_the_process_in_order() -> None:
    """A runnable that fails is named in the error, and the others get their orderly stop."""

    async def fail() -> None:
        await asyncio.sleep(3.5)
        raise OSError("disk is full")

    trace: list[str] = []
    manager = Manager(client(), elector=(elector := LocalElector(trace)), health=LocalHealth(trace))
    elector.vacant.set()
    manager.add_runnable(fail, name="spool")
    with pytest.raises(RunnableFailed, match=r"^spool failed: OSError: disk is full$"):
        await manager.run(asyncio.Event())
    assert trace == ["health up", "acquire", "lead", "health down", "release"]


@virtual_time
async def test_a_runnable_cancelled_from_within_has_failed() -> None:
    """A runnable that dies of a cancellation nobody asked for ends the process, and is named."""
    manager = Manager(client())
    manager.add_runnable(cancel_oneself, name="spool")
    with pytest.raises(RunnableFailed, match=r"^spool failed: CancelledError"):
        async with asyncio.timeout(100):
            await manager.run(asyncio.Event())


@virtual_time
async def test_a_runnable_that_returns_is_no_failure() -> None:
    """A runnable may have nothing more to do; the others go on."""
    done = asyncio.Event()

    async def once() -> None:
        done.set()

    manager = Manager(client())
    manager.add_runnable(once)
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    await asyncio.sleep(100)
    assert done.is_set()
    assert not task.done()
    stop.set()
    await task


@virtual_time
async def test_a_server_that_cannot_listen_is_the_error() -> None:
    """A start that fails is raised as it is, after what had started has stopped."""
    trace: list[str] = []

    class Taken(LocalHealth):
        async def start(self) -> None:
            raise OSError("cannot listen on :8081")

    manager = Manager(client(), health=LocalHealth(trace), metrics=Taken(trace))
    with pytest.raises(OSError, match="cannot listen on :8081"):
        await manager.run(asyncio.Event())
    assert trace == ["health up", "health down"]


@virtual_time
async def test_a_step_of_the_stop_that_hangs_or_fails_does_not_hold_up_the_rest() -> None:
    """An on_stop that hangs is given up, one that fails is logged, and the lease is released after both."""
    trace: list[str] = []
    elector = LocalElector(trace)
    elector.vacant.set()
    manager = Manager(client(), elector=elector)

    async def last() -> None:
        await asyncio.Event().wait()

    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise OSError("no route")

    manager.add_runnable(last, name="one", leader_only=True, on_stop=hang)
    manager.add_runnable(last, name="two", leader_only=True, on_stop=fail)
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    await asyncio.sleep(1)
    stop.set()
    with capture_logs() as lines:
        await task
    assert [(line["event"], line["error"]) for line in lines if "error" in line] == [
        ("two could not finish", "OSError: no route"),
        ("one could not finish", "TimeoutError"),
    ]
    assert trace[-1] == "release"


async def fail() -> None:
    raise RuntimeError("a defect")


class Fragile(Informer[ConfigMap]):
    """An informer with a defect: its first run fails."""

    runs = 0
    defect: Callable[[], Coroutine[Any, Any, None]]

    async def run(self) -> None:
        self.runs += 1
        if self.runs == 1:
            await self.defect()
        await asyncio.Event().wait()


@pytest.mark.parametrize("defect", [fail, cancel_oneself])
@virtual_time
async def test_an_informer_that_fails_is_started_again(
    defect: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """A defect in an informer costs a log line and a moment, never the process."""
    informer = Fragile(client(), ConfigMap)
    informer.defect = defect
    task = asyncio.create_task(_keep_informed(informer))
    with capture_logs() as lines:
        await asyncio.sleep(100)
    assert informer.runs == 2
    assert [(line["log_level"], line["kind"]) for line in lines] == [("error", "ConfigMap")]
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
