"""Read single objects in turn, where there are too many of them for a watch each.

`Polled` looks like an informer of one object. `Poller` reads all of them with a few requests at a time and a
pause after each: those that were never read first, then each again after `POLL_SECONDS`, or later if there
are very many. Namespaces take turns.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic

import structlog

from slurm_operator.kube.errors import DecodeError, KubeError, NotFound
from slurm_operator.kube.models.meta import Key, T
from slurm_operator.kube.models.store import Store
from slurm_operator.kube.runtime.work_queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.store import Change

log = structlog.get_logger(__name__)

# How long a changed key or password may take to be seen where there are too many to watch.
POLL_SECONDS: Final = 30.0
_READERS: Final = 2
# Together at most twenty reads a second.
_PAUSE_SECONDS: Final = 0.1
_READ_SECONDS: Final = 10.0


class Polled(Generic[T]):
    """One named object that is read now and then."""

    def __init__(self, client: Client, kind: type[T], key: Key) -> None:
        self.key = key
        self.store: Store[T] = Store()
        self.last_error: Exception | None = None
        self._client = client
        self._kind = kind
        self._synced = asyncio.Event()
        self._handlers: list[Callable[[Change[T]], None]] = []

    @property
    def synced(self) -> bool:
        """Return whether the API server has answered once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when `synced` is true."""
        await self._synced.wait()

    def add_handler(self, handler: Callable[[Change[T]], None]) -> None:
        """Call a function with every change that a read finds."""
        self._handlers.append(handler)

    async def run(self) -> None:
        """Wait until cancelled; the poller does the work."""
        await asyncio.get_running_loop().create_future()

    async def read(self) -> None:
        """Ask the API server for the object as it is."""
        namespace, name = self.key
        try:
            found = await self._client.get(self._kind, name, namespace, timeout=_READ_SECONDS)
            changes = self.store.put(found)
        except NotFound:
            changes = self.store.remove(self.key)
        except DecodeError as error:
            changes = self.store.mark_unreadable(self.key, str(error))
        except KubeError as error:
            self.last_error = error
            return
        self.last_error = None
        for change in changes:
            for handler in self._handlers:
                handler(change)
        self._synced.set()


class Poller(Generic[T]):
    """Reads the objects that were added to it, again and again."""

    def __init__(self, kind: type[T], seconds: float = POLL_SECONDS) -> None:
        self._name = f"polled {kind.__name__}"
        self._seconds = seconds
        self._polled: dict[Key, Polled[T]] = {}
        self._queue: WorkQueue[Key] | None = None
        self._needed = asyncio.Event()

    def add(self, polled: Polled[T]) -> None:
        """Read an object from now on."""
        if self._queue is None:
            self._queue = WorkQueue(self._name, group=lambda key: key.namespace)
            self._needed.set()
        self._polled[polled.key] = polled
        self._queue.add(polled.key)

    def discard(self, key: Key) -> None:
        """Read an object no longer."""
        self._polled.pop(key, None)

    async def run(self) -> None:
        """Read until cancelled."""
        await self._needed.wait()
        async with asyncio.TaskGroup() as group:
            for number in range(_READERS):
                group.create_task(self._work(), name=f"{self._name} {number}")

    async def _work(self) -> None:
        queue = self._queue
        if queue is None:
            raise RuntimeError("nothing was added to this poller")
        while True:
            key = await queue.get()
            try:
                if (polled := self._polled.get(key)) is not None:
                    await self._read(polled, queue)
            finally:
                queue.done(key)

    async def _read(self, polled: Polled[T], queue: WorkQueue[Key]) -> None:
        try:
            await polled.read()
        except Exception:
            log.exception("an object could not be read", object=str(polled.key), reader=self._name)
        if polled.last_error is None:
            queue.forget(polled.key)
            queue.add_after(polled.key, self._seconds)
        else:
            queue.add_rate_limited(polled.key)
        await asyncio.sleep(_PAUSE_SECONDS)
