"""What the manager does when the lease is lost, and when it must not be released; on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from slurm_operator.kube.errors import FencedError
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.kube.runtime.manager import LeaseLost, Manager, RunnableFailed
from tests.support.kube.manager_parts import LEADS, A, LocalElector, LocalHealth, World, client, now
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Key


@virtual_time
async def test_the_lease_is_not_released_under_a_reconcile_that_goes_on() -> None:
    """If a reconcile ignores its cancellation, the lease is left to expire: it might still write."""
    go_on = asyncio.Event()

    async def stubborn(_: Key) -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    world = World(grace=2.0, cancel_grace=3.0, reconcile=stubborn)
    await asyncio.sleep(1)
    world.elector.vacant.set()
    world.controller.queue.add(A)
    await asyncio.sleep(1)
    world.stop.set()
    with capture_logs() as lines:
        await world.task
    assert world.trace[-1] == "let expire"
    assert "release" not in world.trace
    assert world.manager.unstoppable == ("things ns/a",)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("controller")]
    assert [line["still"] for line in lines if "lease is left to expire" in line["event"]] == [
        ["things ns/a"]
    ]
    go_on.set()


@virtual_time
async def test_a_runnable_that_goes_on_is_reported_and_the_lease_expires() -> None:
    """A runnable that ignores its cancellation holds up nothing, is named, and the lease is not freed."""
    go_on = asyncio.Event()

    async def stubborn() -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    trace: list[str] = []
    elector = LocalElector(trace)
    elector.vacant.set()
    manager = Manager(client(), elector=elector)
    manager.add_runnable(stubborn, name="mule")
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    await asyncio.sleep(1)
    stop.set()
    await task
    assert manager.unstoppable == ("mule",)
    assert trace[-1] == "let expire"
    go_on.set()


@virtual_time
async def test_a_failure_followed_by_a_lost_lease_shows_both() -> None:
    """A lease lost during the stop that a failure began is told apart, although the failure is raised."""

    async def fail() -> None:
        await asyncio.sleep(2.5)
        raise OSError("disk is full")

    async def linger(_: Key) -> None:
        await asyncio.sleep(1000)

    trace: list[str] = []
    elector = LocalElector(trace)
    elector.vacant.set()
    manager = Manager(client(), elector=elector, grace=100.0)
    manager.add_runnable(fail, name="spool")
    manager.add(Controller("things", linger)).queue.add(A)
    task = asyncio.create_task(manager.run(asyncio.Event()))
    await asyncio.sleep(10)
    elector.lost.set()
    with pytest.raises(RunnableFailed, match="spool failed"):
        await task
    assert manager.lost
    assert "release" not in trace


@virtual_time
async def test_a_lost_lease_stops_everything_without_another_write() -> None:
    """When the lease is lost, reconciles are cut, nothing is flushed, nothing is released, and run raises."""
    world = World()
    world.work = 100.0
    await world.lead_and_work()
    world.elector.lost.set()
    with pytest.raises(LeaseLost, match="another replica may lead"):
        await world.task
    rest = world.trace[len(LEADS) :]
    assert sorted(rest) == sorted(["cut a", "events down", "server down", "health down"])
    assert now() == 3.0


@virtual_time
async def test_a_lease_lost_during_the_stop_ends_the_grace() -> None:
    """A stop that is under way becomes immediate when the lease is lost in the meantime."""
    world = World(grace=1000.0)
    world.work = 500.0
    await world.lead_and_work()
    world.stop.set()
    await asyncio.sleep(10)
    assert not world.task.done()
    world.elector.lost.set()
    with pytest.raises(LeaseLost):
        await world.task
    assert now() == 13.0
    assert "cut a" in world.trace
    assert not {"flush", "drain", "release"} & {*world.trace}


@virtual_time
async def test_an_election_that_fails_ends_the_process() -> None:
    """An error from the election itself is raised, after everything has stopped."""
    trace: list[str] = []

    class Broken(LocalElector):
        async def acquire(self) -> None:
            raise FencedError("the election ended")

    health = LocalHealth(trace)
    manager = Manager(client(), elector=Broken(trace), health=health)
    with pytest.raises(FencedError, match="the election ended"):
        await manager.run(asyncio.Event())
    assert trace == ["health up", "health down", "release"]


@virtual_time
async def test_a_lease_lost_while_acquiring_starts_nothing() -> None:
    """A lease that is lost in the moment it is won leads to no leader-only work at all."""
    world = World()
    await asyncio.sleep(1)
    world.elector.lost.set()
    world.elector.vacant.set()
    with pytest.raises(LeaseLost):
        await world.task
    assert "events up" not in world.trace
