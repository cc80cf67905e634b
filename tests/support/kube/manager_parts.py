"""A manager with one of everything, none of which needs a server, and the order in which they come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.kube.runtime.manager import Manager

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from slurm_operator.kube.runtime.controller import Reconcile

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


async def cancel_oneself() -> None:
    """Await something that somebody else has cancelled."""
    doomed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    doomed.cancel()
    await doomed
