"""The manager's order of things, on virtual time. Informers need a server: see the integration tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.models.kinds import ConfigMap, Pod
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.kube.runtime.manager import Manager
from tests.support.kube.manager_parts import LEADS, UP, A, World, client, now
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Key


@virtual_time
async def test_everything_starts_in_order_and_stops_in_reverse() -> None:
    """Health first and lease last: reconciles have ended and events are out before the lease is free."""
    world = World()
    await world.lead_and_work()
    assert world.trace == LEADS
    assert world.health.failing() == []
    world.stop.set()
    await asyncio.sleep(1)
    assert world.health.failing() == ["running"]
    await world.task
    assert world.trace == [
        *LEADS,
        *("reconciled a", "flush", "events down", "drain", "server down", "health down", "release"),
    ]
    assert now() == pytest.approx(7.01)


@virtual_time
async def test_a_standby_runs_no_controller_and_stops_at_once() -> None:
    """While another leads, no key is taken; a stop in that time gives up the election."""
    world = World()
    world.controller.queue.add(A)
    await asyncio.sleep(1000)
    assert world.trace == UP
    world.stop.set()
    await world.task
    assert world.trace == [*UP, "drain", "server down", "health down", "release"]


@virtual_time
async def test_a_reconcile_that_outlasts_the_grace_is_cut_before_the_release() -> None:
    """A reconcile that needs longer than the grace is cancelled, and only then the rest stops."""
    world = World(grace=2.0)
    world.work = 100.0
    await world.lead_and_work()
    world.stop.set()
    await world.task
    assert world.trace[len(LEADS) :] == [
        *("cut a", "flush", "events down", "drain", "server down", "health down", "release")
    ]


@virtual_time
async def test_cancelling_run_stops_in_order_without_grace() -> None:
    """A cancelled manager leaves no task behind and keeps its order."""
    world = World()
    world.work = 100.0
    await world.lead_and_work()
    world.task.cancel()
    await asyncio.wait({world.task})
    assert world.task.cancelled()
    assert now() == pytest.approx(3.01)
    assert world.trace[len(LEADS) :] == [
        *("cut a", "flush", "events down", "drain", "server down", "health down", "release")
    ]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_informers_are_shared_by_their_arguments() -> None:
    """Who asks for the same objects gets the same informer, however the selector was written down."""
    manager = Manager(client(), namespaces=["slurm"])
    pods = manager.informer(Pod, labels={"a": "1", "b": "2"})
    assert manager.informer(Pod, labels={"b": "2", "a": "1"}) is pods
    assert manager.informer(Pod, labels={"b": "2", "a": "1"}, namespaces=["slurm"]) is pods
    assert manager.informer(Pod, labels={"a": "1"}) is not pods
    assert manager.informer(Pod, labels={"a": "1", "b": "2"}, namespaces=["other"]) is not pods
    assert manager.informer(Pod, fields={"a": "1", "b": "2"}) is not pods
    assert manager.informer(Pod, labels={"a": "1", "b": "2"}, transform=lambda pod: pod) is not pods
    maps = manager.informer(ConfigMap)
    assert manager.informer(ConfigMap, labels={}) is maps


@virtual_time
async def test_a_running_manager_is_wired_already() -> None:
    """Adding to a running manager, or running it twice, is refused with a sentence."""
    manager = Manager(client())
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    await asyncio.sleep(1)

    async def idle(_: Key) -> None: ...

    with pytest.raises(RuntimeError, match="the manager runs already"):
        manager.add(Controller("late", idle))
    with pytest.raises(RuntimeError, match="the manager runs already"):
        await manager.run(stop)
    stop.set()
    await task
