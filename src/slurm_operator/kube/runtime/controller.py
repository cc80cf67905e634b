"""Watches in, keys through a queue, one `reconcile(key)` per key at a time.

A reconciler is a coroutine function: `None` means the object is as it should be, `Requeue(after)` asks for
a requeue, an exception means it did not work. Whatever it raises concerns its own key only: it is logged,
counted, and the key comes back after its backoff. A success, also one that asks for a later requeue,
forgets the backoff. One that asks for a requeue at once (`after` is zero, or a time already over) is paced
by the backoff and does not forget it: a reconciler that always asks for it slows down instead of spinning.

Each call runs as a task of its own. That gives it a deadline; it gives the watchdog something to look at; and
it lets a worker go on without it. It does so after `release_after` seconds, since a call that takes longer is
waiting for a server, and needs no worker for that: slow reconciles of one namespace do not hold up others.
Such a key stays in work, since running it a second time beside the first would break the promise above. A
namespace has no more keys in work than `PER_NAMESPACE`, or than there are workers if these are more, so the
calls without a worker are bounded, too. A call which ignores its cancellation is reported and cancelled again
by the watchdog, and when it ends at last its key is retried like after any failure.

A controller hears of Kubernetes objects from the moment it runs (everything that exists is new to it then),
so the queue of a standby replica does not fill with the names of objects long gone. Channels have no past to
ask for: they are heard from the moment they are wired.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from slurm_operator.kube.models.meta import Key, T
from slurm_operator.kube.process import metrics
from slurm_operator.kube.process.watchdog import await_stack, traceback_places
from slurm_operator.kube.runtime.failures import describe, is_defect, is_fenced, retry_after
from slurm_operator.kube.runtime.sources import enqueue_self
from slurm_operator.kube.runtime.work_queue import QueueShutDown, WorkQueue

if TYPE_CHECKING:
    from typing import Self

    from slurm_operator.kube.decide.backoff import Backoff
    from slurm_operator.kube.models.store import Change
    from slurm_operator.kube.runtime.sources import Channel, Source

log = structlog.get_logger(__name__)

E = TypeVar("E")

# client-go publishes the age of unfinished work twice a second.
_WATCHDOG_TICK = 0.5

# Keys of one namespace in work at a time; most namespaces have fewer objects of a kind.
PER_NAMESPACE: Final = 8
# The computation of a reconcile takes less; a reconcile that takes longer is waiting for a server. With one
# worker, the default, the next key waits for up to this long.
_RELEASE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Requeue:
    """Ask for another reconcile of the key after this many seconds, although nothing went wrong.

    Zero or less means as soon as the key's backoff allows; it grows until the key succeeds without that.
    """

    after: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.after):
            raise ValueError(f"Requeue.after must be a finite number of seconds, not {self.after!r}")


Reconcile = Callable[[Key], Awaitable[Requeue | None]]


@dataclass(slots=True)
class _Call:
    """One call of the reconciler."""

    key: Key
    started: float
    task: asyncio.Task[object] = field(init=False)
    reported: float = -math.inf
    timed_out: bool = False
    abandoned: bool = False
    overdue: asyncio.TimerHandle | None = None
    stopped: bool = False


class Controller:
    """Keep the objects of one kind as they should be: `watch` what matters to them, then `run`.

    `deadline` bounds one call of `reconcile`, `cancel_grace` the time it may take to give up after that;
    a key in work for longer than `stuck_after` is reported, again each time that period has passed. A call
    has its worker for itself for `release_after` seconds.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 1,
        deadline: float = 120.0,
        cancel_grace: float = 10.0,
        stuck_after: float = 60.0,
        release_after: float = _RELEASE_SECONDS,
        backoff: Backoff | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers of controller {name} must be at least 1, not {workers!r}")
        for field_name, value in (("deadline", deadline), ("stuck_after", stuck_after)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field_name} of controller {name} must be positive seconds, not {value!r}")
        self.name = name
        self.queue: WorkQueue[Key] = WorkQueue(
            name, backoff=backoff, group=lambda key: key.namespace, most=max(PER_NAMESPACE, workers)
        )
        self._reconcile = reconcile
        self._workers = workers
        self._deadline = deadline
        self._cancel_grace = cancel_grace
        self._stuck_after = stuck_after
        self._release_after = min(release_after, deadline + cancel_grace)
        self._subscriptions: list[Callable[[], object]] = []
        self._calls: dict[Key, _Call] = {}
        self._called = asyncio.Event()
        self._started = False
        self._stopping = False
        self._fence_reported = False
        metrics.MAX_CONCURRENT_RECONCILES.labels(name).set(workers)
        self._active = metrics.ACTIVE_WORKERS.labels(name)
        self._stuck = metrics.STUCK_KEYS.labels(name)
        self._time = metrics.RECONCILE_TIME.labels(name)
        self._errors = metrics.RECONCILE_ERRORS.labels(name)
        self._panics = metrics.RECONCILE_PANICS.labels(name)
        self._timeouts = metrics.RECONCILE_TIMEOUTS.labels(name)
        results = ("success", "error", "requeue", "requeue_after")
        self._results = {result: metrics.RECONCILE_TOTAL.labels(name, result) for result in results}

    # --- wiring

    def watch(
        self,
        source: Source[T],
        mapper: Callable[[Change[T]], Iterable[Key]] = enqueue_self,
        predicate: Callable[[Change[T]], bool] | None = None,
    ) -> Self:
        """Reconcile the keys to which the mapper turns each change that the predicate lets through.

        A change of the object itself is urgent: a user waits for what it leads to.
        """
        urgent = mapper is enqueue_self

        def handle(change: Change[T]) -> None:
            if predicate is None or self._passes(predicate, change):
                self._enqueue(mapper, change, type(change.object).__name__, urgent=urgent)

        self._subscriptions.append(lambda: source.add_handler(handle))
        return self

    def watch_channel(self, channel: Channel[E], mapper: Callable[[E], Iterable[Key]]) -> Self:
        """Reconcile the keys to which the mapper turns each event of the channel."""
        channel.subscribe(lambda event: self._enqueue(mapper, event, type(event).__name__))
        return self

    def _passes(self, predicate: Callable[[Change[T]], bool], change: Change[T]) -> bool:
        try:
            return predicate(change)
        except Exception:
            kind = type(change.object).__name__
            metrics.HANDLER_ERRORS.labels(kind).inc()
            log.exception(
                "a predicate failed; the change is let through",
                controller=self.name,
                kind=kind,
                object=str(change.key),
            )
            return True

    def _enqueue(
        self, mapper: Callable[[E], Iterable[Key]], event: E, kind: str, *, urgent: bool = False
    ) -> None:
        try:
            for key in mapper(event):
                self.queue.add(key, urgent=urgent)
        except Exception:
            metrics.HANDLER_ERRORS.labels(kind).inc()
            log.exception(
                "an event could not be mapped to keys; what depends on it is reconciled at its next change",
                controller=self.name,
                kind=kind,
                object=str(getattr(event, "key", "")),
            )

    # --- running

    async def run(self) -> None:
        """Work until `stop` is called or the task is cancelled."""
        if self._started:
            raise RuntimeError(f"controller {self.name} runs already, or has been stopped; make a new one")
        self._started = True
        try:
            async with asyncio.TaskGroup() as group:
                watchdog = group.create_task(self._watch(), name=f"{self.name} watchdog")
                workers = [
                    group.create_task(self._work(), name=f"{self.name} worker {number}")
                    for number in range(self._workers)
                ]
                for subscribe in self._subscriptions:
                    subscribe()
                await asyncio.wait(workers)
                watchdog.cancel()
        finally:
            if not self._stopping:
                await self.stop(0.0)
            self.queue.measure_work()

    async def stop(self, grace: float) -> list[Key]:
        """Take no more keys, let calls end for `grace` seconds, then cancel; return keys that ignore it."""
        self._stopping = True
        self.queue.shut_down()
        if grace > 0 and self._calls:
            await asyncio.wait([call.task for call in self._calls.values()], timeout=grace)
        self.abort()
        if self._calls:
            await asyncio.wait([call.task for call in self._calls.values()], timeout=self._cancel_grace)
        return [*self._calls]

    def abort(self) -> None:
        """Take no more keys and cancel every call at once."""
        self.queue.shut_down()
        for call in self._calls.values():
            call.stopped = True
            call.task.cancel()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueShutDown:
                return
            await self._process(key)

    async def _process(self, key: Key) -> None:
        identity = secrets.token_hex(4)
        with bound_contextvars(
            controller=self.name, namespace=key.namespace, name=key.name, reconcile_id=identity
        ):
            call = _Call(key, _now())
            call.task = asyncio.create_task(self._attempt(call), name=f"{self.name} {key} {identity}")
            call.task.add_done_callback(partial(self._settle, call))
            self._calls[key] = call
            self._called.set()
            self._active.inc()
            try:
                await asyncio.wait({call.task}, timeout=self._release_after)
            finally:
                self._active.dec()
            if not call.task.done():
                end = call.started + self._deadline + self._cancel_grace
                call.overdue = asyncio.get_running_loop().call_at(end, self._abandon, call)

    def _abandon(self, call: _Call) -> None:
        call.abandoned = True
        self._report(call, "the reconcile ignores its cancellation")

    async def _attempt(self, call: _Call) -> object:
        limit = asyncio.timeout(self._deadline)
        try:
            async with limit:
                return await self._reconcile(call.key)
        except TimeoutError as error:
            if not limit.expired():
                raise
            cut = error.__cause__
            places = traceback_places(None if cut is None else cut.__traceback__)
            raise TimeoutError(
                f"the reconcile did not end within {self._deadline:g} s; it waited at {_path(places)}"
            ) from None
        finally:
            call.timed_out = limit.expired()

    # --- what a call led to

    def _settle(self, call: _Call, task: asyncio.Task[object]) -> None:
        del self._calls[call.key]
        if call.overdue is not None:
            call.overdue.cancel()
        self._time.observe(_now() - call.started)
        if call.timed_out:
            self._timeouts.inc()
        try:
            self._conclude(call, task)
        finally:
            self.queue.done(call.key)

    def _conclude(self, call: _Call, task: asyncio.Task[object]) -> None:
        if task.cancelled():
            if not call.stopped:
                self._fail(call, _cancelled(call))
            return
        error = task.exception()
        if error is None:
            self._succeed(call, task.result())
        elif not isinstance(error, KeyboardInterrupt | SystemExit):  # those two end the loop themselves
            self._fail(call, error)

    def _succeed(self, call: _Call, result: object) -> None:
        if result is not None and not isinstance(result, Requeue):
            wrong = TypeError(f"a reconciler must return None or Requeue, not {type(result).__name__}")
            self._fail(call, wrong)
            return
        self._fence_reported = False
        if result is None:
            self._results["success"].inc()
            self.queue.forget(call.key)
        elif result.after > 0:
            self._results["requeue_after"].inc()
            self.queue.forget(call.key)
            self.queue.add_after(call.key, result.after)
        else:
            self._results["requeue"].inc()
            self.queue.add_rate_limited(call.key)

    def _fail(self, call: _Call, error: BaseException) -> None:
        self._errors.inc()
        self._results["error"].inc()
        defect = is_defect(error)
        if defect:
            self._panics.inc()
        delay = self.queue.add_rate_limited(call.key, at_least=retry_after(error))
        if is_fenced(error):
            # Every key meets the same fence: one line is news, the rest would bury why the lease was lost.
            if self._fence_reported:
                return
            self._fence_reported = True
        log.error(
            "reconcile failed",
            wanted=f"reconcile {self.name} {call.key}",
            error=describe(error),
            attempt=self.queue.retries(call.key),
            retry_in_seconds=None if self.queue.shutting_down else round(delay, 3),
            took_seconds=round(_now() - call.started, 3),
            exc_info=error if defect else None,
        )

    # --- the watchdog

    async def _watch(self) -> None:
        while True:
            # Without calls there is nothing to watch, and an operator at rest does not wake up for it.
            await self._called.wait()
            await asyncio.sleep(min(_WATCHDOG_TICK, self._stuck_after))
            self._inspect(_now())
            if not self._calls:
                self._called.clear()

    def _inspect(self, now: float) -> None:
        self.queue.measure_work()
        stuck = [call for call in self._calls.values() if now - call.started >= self._stuck_after]
        self._stuck.set(len(stuck))
        for call in stuck:
            if now - call.reported >= self._stuck_after:
                self._report(call, "a reconcile is taking too long")
                if call.abandoned:
                    call.task.cancel()

    def _report(self, call: _Call, event: str) -> None:
        call.reported = now = _now()
        log.warning(
            event,
            controller=self.name,
            namespace=call.key.namespace,
            name=call.key.name,
            for_seconds=round(now - call.started, 3),
            task=call.task.get_name(),
            waits_at=_path(await_stack(call.task)),
        )


def _cancelled(call: _Call) -> Exception:
    if call.timed_out or call.abandoned:
        return TimeoutError("the reconcile was cancelled at its deadline and ended only now")
    return RuntimeError("the reconcile was cancelled from within: something it awaited had been cancelled")


def _path(places: list[str]) -> str:
    return " > ".join(places) or "an unknown place"


def _now() -> float:
    return asyncio.get_running_loop().time()
