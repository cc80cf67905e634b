"""Watch the objects that other objects refer to, and only those.

A controller must be notified when a Secret that one of its objects refers to is changed, deleted or created.
Watching every Secret of the cluster for that would keep all of them in this process's memory, and would need
the permission to read them. So each referenced object has an informer of its own here, restricted to its
name, which RBAC can grant by name as well. The informer is shared by all owners that refer to the object,
started for the first of them and stopped after the last: a hundred owners of one Secret need one watch.

Each watch is a connection to the API server, so their number is limited, for each `ReferencedObjects`:
`PER_NAMESPACE` in one namespace, and `WATCHES` in all. Objects beyond the limit are read every `POLL_SECONDS`
instead, or less often if there are very many (`polling`), the namespaces in turn, until a watch is free. An
owner that refers to very many objects is notified of their changes later.

Which owner refers to which objects is pure bookkeeping (`Wants`). An owner passes all its references in one
call, `want`, as often as necessary; objects that it no longer refers to are released by that. Then it reads
with `get`, which has three outcomes, as everywhere in this runtime: the object, None because the API server
reports that it does not exist, or an error because that is unknown.

Every later change goes out on `changes`, with the owners it concerns; `enqueue_owners` maps it to keys. The
first list does not: callers wait for it in `get`. Only if a `get` has failed before the first list succeeded,
the owners are notified once it does.

`run` is meant for the leader: a standby replica reconciles nothing, so it has no references and no watches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

import structlog

from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.cache.polling import POLL_SECONDS, Polled, Poller
from slurm_operator.kube.errors import ApiError, KubeError, ServerError, TooManyRequests
from slurm_operator.kube.models.meta import Key, T
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.kube.runtime.sources import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.decide.reflector_state import InformerTiming
    from slurm_operator.kube.models.store import Change

log = structlog.get_logger(__name__)

# More than the Secrets or ConfigMaps of several Slurm clusters with their scripts and tokens.
PER_NAMESPACE: Final = 32
# Of one kind in this process: some 100 kB for each connection on either side.
WATCHES: Final = 256

_RESTART_SECONDS = 1.0
# How often a caller that waits for the first list checks whether the API server has rejected it.
_REFRESH_SECONDS = 0.05


class Referrer(NamedTuple):
    """Who wants an object; the controller tells apart owners of the same name."""

    controller: str
    key: Key


class Referenced(NamedTuple):
    """A change of a referenced object, and the owners that it concerns."""

    key: Key
    owners: frozenset[Referrer]


class Wants:
    """Who wants which objects; pure."""

    def __init__(self) -> None:
        self._wanted: dict[Referrer, frozenset[Key]] = {}
        self._owners: dict[Key, set[Referrer]] = {}

    def replace(self, owner: Referrer, wanted: Collection[Key]) -> tuple[frozenset[Key], frozenset[Key]]:
        """Record an owner's references; return the objects that got a first owner and those that lost all."""
        new = frozenset(wanted)
        old = self._wanted.pop(owner, frozenset())
        if new:
            self._wanted[owner] = new
        started, stopped = set[Key](), set[Key]()
        for key in new - old:
            owners = self._owners.setdefault(key, set())
            if not owners:
                started.add(key)
            owners.add(owner)
        for key in old - new:
            owners = self._owners[key]
            owners.discard(owner)
            if not owners:
                del self._owners[key]
                stopped.add(key)
        return frozenset(started), frozenset(stopped)

    def owners(self, key: Key) -> frozenset[Referrer]:
        """Return who wants an object."""
        return frozenset(self._owners.get(key, ()))

    def wanted(self, owner: Referrer) -> frozenset[Key]:
        """Return what an owner wants."""
        return self._wanted.get(owner, frozenset())

    def keys(self) -> frozenset[Key]:
        """Return every object that has an owner."""
        return frozenset(self._owners)


class Budget:
    """Which objects have a watch of their own, and which must do without; pure."""

    def __init__(self, per_namespace: int = PER_NAMESPACE, most: int = WATCHES) -> None:
        self._per_namespace = per_namespace
        self._most = most
        self._watching: dict[str, int] = {}
        self._total = 0
        self._without: dict[str, dict[Key, None]] = {}

    def take(self, key: Key) -> bool:
        """Return whether an object gets a watch; else it waits for one."""
        if self._total < self._most and self._watching.get(key.namespace, 0) < self._per_namespace:
            self._watching[key.namespace] = self._watching.get(key.namespace, 0) + 1
            self._total += 1
            return True
        self._without.setdefault(key.namespace, {})[key] = None
        return False

    def give_up(self, key: Key) -> Key | None:
        """Note that an object has no owner any more; return one that waited for a watch and has one now."""
        namespace = key.namespace
        waiting = self._without.get(namespace, {})
        if key in waiting:
            self._drop(key)
            return None
        self._total -= 1
        self._watching[namespace] -= 1
        if not self._watching[namespace]:
            del self._watching[namespace]
        free = (each for each in self._without if self._watching.get(each, 0) < self._per_namespace)
        if (chosen := next(free, None)) is None:
            return None
        heir = next(iter(self._without[chosen]))
        self._drop(heir)
        # The namespace goes to the end of the line.
        if (rest := self._without.pop(chosen, None)) is not None:
            self._without[chosen] = rest
        self.take(heir)
        return heir

    def _drop(self, key: Key) -> None:
        del self._without[key.namespace][key]
        if not self._without[key.namespace]:
            del self._without[key.namespace]


class _Watched(Generic[T]):
    """One named object: its informer, and the task that keeps it current."""

    __slots__ = ("asked_in_vain", "informer", "since", "task")

    def __init__(self, informer: Informer[T] | Polled[T]) -> None:
        self.informer = informer
        self.task: asyncio.Task[None] | None = None
        self.since: float | None = None
        self.asked_in_vain = False


class ReferencedObjects(Generic[T]):
    """The referenced objects of one kind, each watched by its name, or polled if there are too many.

    `namespaces` are those this process is confined to (none: the whole cluster).
    """

    def __init__(
        self,
        client: Client,
        kind: type[T],
        *,
        namespaces: Sequence[str] = (),
        timing: InformerTiming | None = None,
        budget: Budget | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.changes: Channel[Referenced] = Channel()
        self._client = client
        self._kind = kind
        self._namespaces = frozenset(namespaces)
        self._timing = timing
        self._wants = Wants()
        self._watched: dict[Key, _Watched[T]] = {}
        self._budget = budget or Budget()
        self._poller: Poller[T] = Poller(kind, poll_seconds)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False

    @property
    def watched(self) -> frozenset[Key]:
        """Return the objects that are watched, or read in turn."""
        return frozenset(self._watched)

    @property
    def polled(self) -> frozenset[Key]:
        """Return the objects that are read in turn, since there are too many to watch."""
        return frozenset(key for key, one in self._watched.items() if isinstance(one.informer, Polled))

    def want(self, owner: Referrer, wanted: Collection[Key]) -> None:
        """Note all the objects that an owner wants from now on; none releases what it wanted before."""
        started, stopped = self._wants.replace(owner, wanted)
        for key in stopped:
            self._release(key)
        for key in sorted(started):
            if self._within(key):
                self._watch(key)

    def wanted(self, owner: Referrer) -> frozenset[Key]:
        """Return what an owner wants."""
        return self._wants.wanted(owner)

    async def get(self, key: Key, timeout: float = 10.0) -> T | None:  # noqa: ASYNC109 - counted from the start of the watch
        """Return a referenced object, or None if it does not exist; raise KubeError if that is unknown.

        Only a watch in its first `timeout` seconds is waited for. One that has been silent for longer than
        that, or has been rejected, fails at once, and its owners are notified when it works.
        """
        if not self._within(key):
            raise KubeError(
                f"{self._kind.RESOURCE.kind} {key} is outside of the namespaces that this operator watches "
                f"({', '.join(sorted(self._namespaces))})"
            )
        watched = self._watched.get(key)
        if watched is None:
            raise LookupError(f"{self._kind.RESOURCE.kind} {key} is not watched: call want() before get()")
        if not await self._answered(watched, timeout):
            watched.asked_in_vain = True
            raise self._unknown(key, watched.informer.last_error)
        store = watched.informer.store
        if key in store.unreadable:
            raise KubeError(f"{self._kind.RESOURCE.kind} {key} cannot be read: {store.unreadable[key]}")
        return store.get(key)

    async def run(self) -> None:
        """Watch what is wanted until cancelled."""
        if self._running:
            raise RuntimeError("these references are watched already")
        self._running = True
        try:
            for key, watched in self._watched.items():
                self._start(key, watched)
            await self._poller.run()
        finally:
            self._running = False
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    # --- one object

    def _within(self, key: Key) -> bool:
        return not self._namespaces or key.namespace in self._namespaces

    def _watch(self, key: Key) -> None:
        watch = self._budget.take(key)
        self._keep_current(
            key, _Watched(self._informer(key) if watch else Polled(self._client, self._kind, key))
        )

    def _informer(self, key: Key) -> Informer[T]:
        return Informer(
            self._client,
            self._kind,
            namespaces=(key.namespace,),
            fields={"metadata.name": key.name},
            timing=self._timing,
        )

    def _keep_current(self, key: Key, watched: _Watched[T]) -> None:
        informer = watched.informer

        def changed(_: Change[T]) -> None:
            if informer.synced:
                self._publish(key)

        informer.add_handler(changed)
        self._watched[key] = watched
        if self._running:
            self._start(key, watched)

    def _start(self, key: Key, watched: _Watched[T]) -> None:
        watched.since = asyncio.get_running_loop().time()
        if isinstance(watched.informer, Polled):
            self._poller.add(watched.informer)
        name = f"reference {self._kind.__name__} {key}"
        watched.task = task = asyncio.create_task(self._keep(key, watched), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _release(self, key: Key) -> None:
        watched = self._watched.pop(key, None)
        if watched is None:
            return
        self._end(key, watched)
        if (heir := self._budget.give_up(key)) is not None:
            self._end(heir, self._watched[heir])
            successor = _Watched(self._informer(heir))
            # What changed since it was last read is in the first list, of which only these hear.
            successor.asked_in_vain = True
            self._keep_current(heir, successor)

    def _end(self, key: Key, watched: _Watched[T]) -> None:
        # The gauge of cached objects counts what is in the store when the informer ends.
        watched.informer.store.replace(())
        self._poller.discard(key)
        if watched.task is not None:
            watched.task.cancel()

    async def _keep(self, key: Key, watched: _Watched[T]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._announce(key, watched))
            while True:
                try:
                    await watched.informer.run()
                except Exception:
                    log.exception(
                        "a watch failed and is started again", kind=self._kind.__name__, object=str(key)
                    )
                await asyncio.sleep(_RESTART_SECONDS)

    async def _announce(self, key: Key, watched: _Watched[T]) -> None:
        """Tell those who went away without an answer that there is one: also that nothing is there."""
        await watched.informer.wait_synced()
        if watched.asked_in_vain:
            self._publish(key)

    def _publish(self, key: Key) -> None:
        if owners := self._wants.owners(key):
            self.changes.send(Referenced(key, owners))

    async def _answered(self, watched: _Watched[T], timeout: float) -> bool:  # noqa: ASYNC109 - see get
        informer, loop = watched.informer, asyncio.get_running_loop()
        end = (loop.time() if watched.since is None else watched.since) + timeout
        while not informer.synced:
            left = end - loop.time()
            if left <= 0 or _is_refusal(informer.last_error):
                return False
            try:
                async with asyncio.timeout(min(left, _REFRESH_SECONDS)):
                    await informer.wait_synced()
            except TimeoutError:
                continue
        return True

    def _unknown(self, key: Key, error: Exception | None) -> KubeError:
        why = "the API server has not answered yet" if error is None else describe(error)
        unknown = KubeError(f"cannot determine whether {self._kind.RESOURCE.kind} {key} exists: {why}")
        unknown.__cause__ = error
        return unknown


def enqueue_owners(controller: str) -> Callable[[Referenced], Iterable[Key]]:
    """Map news of an object to its owners in one controller, for `Controller.watch_channel`."""
    return lambda event: [owner.key for owner in event.owners if owner.controller == controller]


def _is_refusal(error: Exception | None) -> bool:
    """Return whether the server answered in a way that the next moment does not change."""
    return isinstance(error, ApiError) and not isinstance(error, ServerError | TooManyRequests)
