"""Start everything in the order in which it can work, and stop it in reverse.

Up: servers (health, metrics), runnables, informers; then the caches fill; then, with an elector, this replica
waits until it leads; then leader-only runnables and the controllers. So a probe is answered from the first
moment, a standby replica has warm caches, and no reconciler ever sees a half-filled one. Down: controllers
take no more keys and running reconciles get a grace period; runnables stop, each after its `on_stop` (events
are flushed there); informers; servers; and last the lease is released, so that the next leader starts when
nothing of this one can write any more. If a task ignores even its cancellation, that cannot be promised, and
the lease is neither renewed nor freed: it expires. (The elector does the same by itself after a write that
was cut off: the server may still execute it.) Then `unstoppable` names the task, and the process must
end without waiting for it.

A lost lease is different: everything is cancelled at once, nothing is flushed, and `run` raises `LeaseLost`.
A runnable that fails ends the process too, with an orderly stop and an error that names it; one that was
cancelled by anybody but the manager has failed. An informer that fails is started again: its store stays
readable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.process import memory
from slurm_operator.kube.process.watchdog import await_stack, monitor_loop_lag
from slurm_operator.kube.runtime.failures import describe

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import T
    from slurm_operator.kube.runtime.controller import Controller

log = structlog.get_logger(__name__)

Selector = str | Mapping[str, str] | None

# A step of the stop that takes longer is given up; the kubelet kills the process 30 s after SIGTERM.
_STEP_SECONDS = 8.0
_INFORMER_RESTART_SECONDS = 1.0


class LeaseLost(KubeError):  # noqa: N818 - it names what happened
    """Another process may lead now; this one must end without writing."""


class RunnableFailed(KubeError):  # noqa: N818 - it names what happened
    """A part of the process that must not end has ended with an error."""


class Signal(Protocol):
    """Something that happens once, like `asyncio.Event`."""

    async def wait(self) -> object:
        """Return when it has happened."""


class Elector(Protocol):
    """Decides which replica leads."""

    @property
    def lost(self) -> Signal:
        """Return the signal that this replica does not lead any more."""

    async def acquire(self) -> None:
        """Return when this replica leads."""

    async def release(self, *, free: bool = True) -> None:
        """Let another replica lead, at once or, not `free`, when the lease expires; or stop trying to."""


class Server(Protocol):
    """Something that listens."""

    async def start(self) -> None:
        """Listen; raise OSError when that is impossible."""

    async def close(self) -> None:
        """Stop listening."""


class ProbeServer(Server, Protocol):
    """Answers the kubelet's probes."""

    def add_check(self, name: str, check: Callable[[], str | None], /) -> None:
        """Make readiness depend on a check that returns None, or the reason why not."""


@dataclass(slots=True)
class _Runnable:
    name: str
    function: Callable[[], Coroutine[Any, Any, object]]
    on_stop: Callable[[], Coroutine[Any, Any, object]] | None
    task: asyncio.Task[object] | None = None


class Manager:
    """Hold everything that runs; wire it first, then `run`.

    `namespaces` confines every informer (none: the whole cluster). `grace` is the time that running
    reconciles have to end by themselves; `sync_log_period` is how often one is told, before the start, which
    caches are not filled yet and why.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespaces: Sequence[str] = (),
        elector: Elector | None = None,
        health: ProbeServer | None = None,
        metrics: Server | None = None,
        grace: float = 20.0,
        sync_log_period: float = 10.0,
    ) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._elector = elector
        self._servers: list[Server] = [server for server in (health, metrics) if server is not None]
        self._grace = grace
        self._sync_log_period = sync_log_period
        self._controllers: list[Controller] = []
        self._everywhere = [_Runnable("event loop monitor", monitor_loop_lag, None)]
        self._leading: list[_Runnable] = []
        self._informers: dict[tuple[object, ...], Informer[Any]] = {}
        self._informer_tasks: list[asyncio.Task[object]] | None = None
        self._end: asyncio.Future[KubeError | None] | None = None
        self._lost_watch: asyncio.Task[None] | None = None
        self._lost = False
        self._stopping = False
        self._unstoppable: list[str] = []
        if health is not None:
            health.add_check("caches", self._unsynced)
            health.add_check("running", lambda: "the process is stopping" if self._stopping else None)

    # --- wiring

    def informer(
        self,
        kind: type[T],
        *,
        namespaces: Sequence[str] | None = None,
        labels: Selector = None,
        fields: Selector = None,
        transform: Callable[[T], T] | None = None,
    ) -> Informer[T]:
        """Return the informer with these arguments, one for all who ask; it is started with the manager."""
        spaces = tuple(dict.fromkeys(self._namespaces if namespaces is None else namespaces))
        identity = (kind, spaces, _identity(labels), _identity(fields), transform)
        found: Informer[T] | None = self._informers.get(identity)
        if found is None:
            found = Informer(
                self._client, kind, namespaces=spaces, labels=labels, fields=fields, transform=transform
            )
            self._informers[identity] = found
            if self._informer_tasks is not None:
                self._start_informer(found, self._informer_tasks)
        return found

    def add(self, controller: Controller) -> Controller:
        """Run a controller while this replica leads."""
        self._must_not_run()
        self._controllers.append(controller)
        return controller

    def add_runnable(
        self,
        function: Callable[[], Coroutine[Any, Any, object]],
        *,
        name: str = "",
        leader_only: bool = False,
        on_stop: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        """Run a coroutine function until the end; `on_stop` is awaited before it is cancelled."""
        self._must_not_run()
        name = name or getattr(function, "__qualname__", repr(function))
        (self._leading if leader_only else self._everywhere).append(_Runnable(name, function, on_stop))

    def _must_not_run(self) -> None:
        if self._end is not None:
            raise RuntimeError("the manager runs already: wire controllers and runnables before run()")

    # --- running

    @property
    def unstoppable(self) -> tuple[str, ...]:
        """Return the names of what ignored its cancellation; a process must not wait for these to end."""
        return tuple(self._unstoppable)

    @property
    def lost(self) -> bool:
        """Return whether the lease was lost, also when something else had ended `run` before."""
        return self._lost

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; raise LeaseLost, or what made it impossible to go on."""
        self._must_not_run()
        self._end = end = asyncio.get_running_loop().create_future()
        stack = AsyncExitStack()
        stop_watch = asyncio.create_task(self._await_stop(stop), name="manager stop")
        up = asyncio.create_task(self._bring_up(stack), name="manager start")
        try:
            await asyncio.wait({up, end}, return_when=asyncio.FIRST_COMPLETED)
            if up.done():
                up.result()
            await asyncio.wait({end})
        except asyncio.CancelledError:
            self._grace = 0.0
            raise
        finally:
            self._stopping = True
            await self._cancel([up, stop_watch])
            await stack.aclose()
        if (failure := end.result()) is not None:
            raise failure
        if self._lost:
            raise _lease_lost()

    async def _bring_up(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._release)
        for server in self._servers:
            await server.start()
            stack.push_async_callback(self._bounded, server.close, "a server did not close")
        await self._start_runnables(self._everywhere, stack)

        tasks: list[asyncio.Task[object]] = []
        self._informer_tasks = tasks
        stack.push_async_callback(self._cancel, tasks)
        for informer in self._informers.values():
            self._start_informer(informer, tasks)
        await self._wait_for_caches()
        memory.settle()

        if self._elector is not None:
            log.info("waiting for the lease")
            self._lost_watch = asyncio.create_task(self._await_lost(self._elector), name="lease watch")
            await self._elector.acquire()
            if self._lost:
                return
            log.info("leading")
        await self._start_runnables(self._leading, stack)
        runs = [self._spawn(f"controller {found.name}", found.run()) for found in self._controllers]
        stack.push_async_callback(self._stop_controllers, runs)
        log.info("controllers started", controllers=[controller.name for controller in self._controllers])

    async def _start_runnables(self, runnables: list[_Runnable], stack: AsyncExitStack) -> None:
        for runnable in runnables:
            runnable.task = task = self._spawn(runnable.name, runnable.function())
            stack.push_async_callback(self._stop_runnable, runnable, task)
        # A task begins at the next turn of the loop: what comes later finds these started.
        await asyncio.sleep(0)

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Start a task whose failure ends the process."""

        def ended(task: asyncio.Task[object]) -> None:
            error = asyncio.CancelledError("from within") if task.cancelled() else task.exception()
            if error is None or (task.cancelled() and (self._stopping or self._lost)):
                return
            log.error("a part of the process failed", part=name, error=describe(error), exc_info=error)
            failure = RunnableFailed(f"{name} failed: {describe(error)}")
            failure.__cause__ = error
            self._finish(failure)

        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(ended)
        return task

    def _finish(self, failure: KubeError | None) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(failure)

    async def _await_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        log.info("stopping")
        self._finish(None)

    async def _await_lost(self, elector: Elector) -> None:
        await elector.lost.wait()
        log.error("the lease is lost: everything stops now and nothing more is written")
        self._lost = True
        self._grace = 0.0
        for controller in self._controllers:
            controller.abort()
        for runnable in self._leading:
            if runnable.task is not None:
                runnable.task.cancel()
        self._finish(_lease_lost())

    # --- caches

    def _start_informer(self, informer: Informer[Any], tasks: list[asyncio.Task[object]]) -> None:
        tasks.append(asyncio.create_task(_keep_informed(informer), name=f"informer {informer.kind.__name__}"))

    def _unsynced(self) -> str | None:
        waiting = [informer for informer in self._informers.values() if not informer.synced]
        return "caches are not filled yet: " + "; ".join(map(_reason, waiting)) if waiting else None

    async def _wait_for_caches(self) -> None:
        while waiting := [informer for informer in self._informers.values() if not informer.synced]:
            try:
                async with asyncio.timeout(self._sync_log_period):
                    for informer in waiting:
                        await informer.wait_synced()
            except TimeoutError:
                log.warning("still waiting for caches", waiting=self._unsynced())
        sizes = [f"{informer.kind.__name__} {len(informer.store)}" for informer in self._informers.values()]
        log.info("caches are filled", objects=sizes)

    # --- stopping

    async def _stop_controllers(self, runs: list[asyncio.Task[object]]) -> None:
        left = await asyncio.gather(*(controller.stop(self._grace) for controller in self._controllers))
        for controller, keys in zip(self._controllers, left, strict=True):
            self._unstoppable += [f"{controller.name} {key}" for key in keys]
        await self._cancel(runs)

    async def _stop_runnable(self, runnable: _Runnable, task: asyncio.Task[object]) -> None:
        if runnable.on_stop is not None and not self._lost and not task.done():
            await self._bounded(runnable.on_stop, f"{runnable.name} could not finish")
        await self._cancel([task])

    async def _release(self) -> None:
        if self._elector is None or self._lost_watch is None:
            return
        # Releasing may set off `lost` as well; from here on that is no news.
        await self._cancel([self._lost_watch])
        if self._lost:
            return
        if self._unstoppable:
            log.warning("not everything stopped: the lease is left to expire", still=self._unstoppable)
        release = partial(self._elector.release, free=not self._unstoppable)
        await self._bounded(release, "the lease was not released; it will expire")

    async def _bounded(self, function: Callable[[], Coroutine[Any, Any, object]], otherwise: str) -> None:
        """Await a step of the stop; whatever goes wrong with it, the others must have their turn."""
        try:
            async with asyncio.timeout(_STEP_SECONDS):
                await function()
        except Exception as error:  # noqa: BLE001 - the stop goes on
            log.warning(otherwise, error=describe(error))

    async def _cancel(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Cancel tasks, wait until they end, and note the names of those that do not."""
        for task in tasks:
            task.cancel()
        done, pending = await asyncio.wait(tasks, timeout=_STEP_SECONDS) if tasks else (set(), set())
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.debug("a task ended with an error", task=task.get_name(), error=describe(error))
        for task in pending:
            log.warning("a task ignores its cancellation", task=task.get_name(), waits_at=await_stack(task))
        self._unstoppable += [task.get_name() for task in pending]


async def _keep_informed(informer: Informer[Any]) -> None:
    while True:
        try:
            await informer.run()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.exception("an informer cancelled itself and is started again", kind=informer.kind.__name__)
        except Exception:
            log.exception("an informer failed and is started again", kind=informer.kind.__name__)
        await asyncio.sleep(_INFORMER_RESTART_SECONDS)


def _reason(informer: Informer[Any]) -> str:
    error = informer.last_error
    return f"{informer.kind.__name__} ({'no answer yet' if error is None else describe(error)})"


def _identity(selector: Selector) -> object:
    return tuple(sorted(selector.items())) if isinstance(selector, Mapping) else selector or ()


def _lease_lost() -> LeaseLost:
    return LeaseLost("the lease is lost: another replica may lead now, so this process ends")
