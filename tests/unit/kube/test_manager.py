"""The manager's order of things, on virtual time. Informers need a server: see the integration tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from slurm_operator.kube.client import Client
from slurm_operator.kube.config import ClientConfig
from slurm_operator.kube.controller import Controller
from slurm_operator.kube.errors import FencedError
from slurm_operator.kube.informer import Informer
from slurm_operator.kube.manager import LeaseLost, Manager, RunnableFailed, _keep_informed
from slurm_operator.kube.meta import Key
from slurm_operator.kube.models import ConfigMap, Pod
from tests.virtualtime import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from slurm_operator.kube.controller import Reconcile

A = Key("ns", "a")


def now() -> float:
    return asyncio.get_running_loop().time()


def client() -> Client:
    """Return a client that is never connected: nothing here talks to a server."""
    return Client(ClientConfig(server="http://127.0.0.1:1"))


class LocalElector:
    """An election with one candidate, who leads when the test says so."""

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace
        self.vacant = asyncio.Event()
        self.lost = asyncio.Event()

    async def acquire(self) -> None:
        self.trace.append("acquire")
        await self.vacant.wait()
        self.trace.append("lead")

    async def release(self, *, free: bool = True) -> None:
        self.trace.append("release" if free else "let expire")
        # The real elector's thread ends here, which sets this too; it must not be taken for a loss.
        self.lost.set()
        await asyncio.sleep(0.01)


class LocalHealth:
    """The probes' end of the manager, without a socket."""

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace
        self.checks: dict[str, Callable[[], str | None]] = {}

    def add_check(self, name: str, check: Callable[[], str | None], /) -> None:
        self.checks[name] = check

    def failing(self) -> list[str]:
        return [name for name, check in self.checks.items() if check() is not None]

    async def start(self) -> None:
        self.trace.append("health up")

    async def close(self) -> None:
        self.trace.append("health down")


class World:
    """A manager with one of everything, and the order in which they came and went."""

    def __init__(
        self, *, grace: float = 20.0, cancel_grace: float = 10.0, reconcile: Reconcile | None = None
    ) -> None:
        self.trace: list[str] = []
        self.elector = LocalElector(self.trace)
        self.health = LocalHealth(self.trace)
        self.manager = Manager(client(), elector=self.elector, health=self.health, grace=grace)
        self.manager.add_runnable(self.lasting("server"), name="server", on_stop=self.step("drain"))
        self.manager.add_runnable(
            self.lasting("events"), name="events", leader_only=True, on_stop=self.step("flush")
        )
        self.controller = self.manager.add(
            Controller("things", reconcile or self.reconcile, workers=2, cancel_grace=cancel_grace)
        )
        self.stop = asyncio.Event()
        self.work = 5.0
        self.task = asyncio.create_task(self.manager.run(self.stop))

    def lasting(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            self.trace.append(f"{name} up")
            try:
                await asyncio.Event().wait()
            finally:
                self.trace.append(f"{name} down")

        return run

    def step(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            self.trace.append(name)

        return run

    async def reconcile(self, key: Key) -> None:
        self.trace.append(f"reconcile {key.name}")
        try:
            await asyncio.sleep(self.work)
        except asyncio.CancelledError:
            self.trace.append(f"cut {key.name}")
            raise
        self.trace.append(f"reconciled {key.name}")

    async def lead_and_work(self) -> None:
        await asyncio.sleep(1)
        self.elector.vacant.set()
        await asyncio.sleep(1)
        self.controller.queue.add(A)
        await asyncio.sleep(1)
        assert self.trace[-1] == "reconcile a"


UP = ["health up", "server up", "acquire"]
LEADS = [*UP, "lead", "events up", "reconcile a"]


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


async def cancel_oneself() -> None:
    """Await something that somebody else has cancelled."""
    doomed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    doomed.cancel()
    await doomed


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
