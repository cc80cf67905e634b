"""A cache of one kind that stays equal to the server, whatever happens on the way.

An informer has one store, one `Reflector` per namespace it watches (or a single one for all namespaces),
and one task that asks again for objects that did not decode. A namespace that cannot be read holds up
`synced`, never the others. Objects that did not decode are marked in `store.unreadable` (see `store`) and
asked for by themselves: with a list narrowed to the name rather than a get, so that the selectors still
apply and no verb beyond list and watch is needed.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Generic

import structlog

from slurm_operator.kube.cache.intake import Intake
from slurm_operator.kube.cache.reflector import Reflector
from slurm_operator.kube.decide.reflector_state import InformerTiming
from slurm_operator.kube.errors import DecodeError
from slurm_operator.kube.models.meta import T

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_operator.kube.cache.intake import Doubt, Handler
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.store import IndexFunction, Store

log = structlog.get_logger(__name__)


class Informer(Generic[T]):
    """Lists and watches a kind into `store` and calls handlers with every change.

    Wire it first (`add_index`, `add_handler`), then `run` it in a task and wait for `wait_synced`.
    """

    def __init__(
        self,
        client: Client,
        kind: type[T],
        *,
        namespaces: Sequence[str] = (),
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        transform: Callable[[T], T] | None = None,
        page_size: int = 500,
        timing: InformerTiming | None = None,
    ) -> None:
        self.kind = kind
        self._client = client
        self._labels = labels
        # Text, because a narrower selection is this one with another term.
        self._fields = fields if isinstance(fields, str) else _terms(fields or {})
        self._timing = timing or InformerTiming()
        self._doubts: asyncio.Queue[Doubt] = asyncio.Queue()
        self._intake = Intake(kind, self._doubts.put_nowait, transform)
        self._synced = asyncio.Event()
        # Held while a list or a reread object is applied: delivering a list takes several turns of the loop,
        # and changes of a key must reach the handlers in the order in which they reached the store.
        self._turn = asyncio.Lock()
        # A kind without namespaces has one list, however the process is confined.
        spaces = dict.fromkeys(namespaces) if kind.RESOURCE.namespaced else {}
        self._reflectors = [
            Reflector(
                client,
                kind,
                self._intake,
                namespace=namespace,
                labels=labels,
                fields=self._fields,
                page_size=page_size,
                timing=self._timing,
                turn=self._turn,
                on_listed=self._listed,
            )
            for namespace in spaces or ("",)
        ]

    @property
    def store(self) -> Store[T]:
        """Return the cache."""
        return self._intake.store

    @property
    def synced(self) -> bool:
        """Return whether every namespace has been listed once and the handlers know of it."""
        return self._synced.is_set()

    @property
    def last_error(self) -> Exception | None:
        """Return what keeps a namespace from being current, or None if nothing does."""
        return next((found.last_error for found in self._reflectors if found.last_error is not None), None)

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Keep the objects by each string a pure function returns for them; read with `store.by_index`."""
        self.store.add_index(name, function)

    def add_handler(self, handler: Handler[T]) -> None:
        """Call a function with every change; what is in the store already comes as added, at once."""
        self._intake.add_handler(handler)

    async def wait_synced(self) -> None:
        """Return when `synced` is true."""
        await self._synced.wait()

    async def run(self) -> None:
        """Keep the store equal to the server until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(
                    reflector.run(), name=f"reflector {self.kind.__name__} {reflector.namespace}"
                )
            group.create_task(self._ask_again(), name=f"reread {self.kind.__name__}")

    def _listed(self) -> None:
        if all(reflector.listed for reflector in self._reflectors):
            self._synced.set()

    async def _ask_again(self) -> None:
        """Fetch doubtful objects one after the other until cancelled."""
        while True:
            doubt = await self._doubts.get()
            failures = 0
            while self._intake.wanted(doubt):
                try:
                    await self._ask(doubt)
                except DecodeError:
                    self._intake.settle(doubt)
                except Exception as error:  # noqa: BLE001 - the process outlives any answer
                    failures += 1
                    delay = random.random() * self._timing.retry.bound(failures)  # noqa: S311 - jitter
                    log.debug("rereading failed", object=str(doubt.key), error=str(error), retry_in=delay)
                    await asyncio.sleep(delay)

    async def _ask(self, doubt: Doubt) -> None:
        namespace, name = doubt.key
        narrow = f"metadata.name={name}"
        page = await self._client.list(
            self.kind,
            namespace,
            labels=self._labels,
            fields=f"{self._fields},{narrow}" if self._fields else narrow,
        )
        async with self._turn:
            found = next((obj for obj in page.items if obj.key == doubt.key), None)
            if found is None:
                self._intake.settle(doubt)
            else:
                self._intake.answered(doubt, found)


def _terms(fields: Mapping[str, str]) -> str:
    return ",".join(f"{path}={value}" for path, value in fields.items())
