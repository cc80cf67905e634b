"""One stream of one kind: list, watch from there, and again, for as long as the process lives.

The reflector is the thin I/O around `ReflectorState` (what next, when) and `Intake` (what it means). It
never ends by itself and never raises: every error, foreseen or not, becomes a wait and another step,
`last_error` while it lasts, and a log line when it is news.

Nothing here may hold the event loop for long. Pages are decoded one at a time, large ones in a thread
(`client`), and the loop gets a turn every so many handler calls and watch events, because a full socket
buffer would otherwise feed the stream without a single real wait. Only the store takes a list in one piece,
so that a reader never sees half of one: about 5 µs for a new object, under 1 µs for one that has not changed.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Generic

import structlog

from slurm_operator.kube.decide.reflector_state import ErrorLogFilter, InformerTiming, ReflectorState
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.models.meta import T
from slurm_operator.kube.process import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from slurm_operator.kube.cache.intake import Intake, Listing
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.manifests.wire import WatchEvent

log = structlog.get_logger(__name__)

# A power of two (it is used as a mask): 64 events are about 3 ms of work.
_EVENTS_PER_TURN = 64
_CHANGES_PER_TURN = 256
_FLUSH_SECONDS = 1.0


class Reflector(Generic[T]):
    """Keeps one namespace of an informer (or all of them, as "") equal to the server."""

    def __init__(
        self,
        client: Client,
        kind: type[T],
        intake: Intake[T],
        *,
        namespace: str,
        labels: str | Mapping[str, str] | None,
        fields: str,
        page_size: int,
        timing: InformerTiming,
        turn: asyncio.Lock,
        on_listed: Callable[[], None],
    ) -> None:
        self.namespace = namespace
        self.last_error: Exception | None = None
        self.listed = False
        self._client = client
        self._kind = kind
        self._intake = intake
        self._labels = labels
        self._fields = fields
        self._page_size = page_size
        self._timing = timing
        self._turn = turn
        self._on_listed = on_listed
        self._state = ReflectorState(timing, random.random)
        self._reporter = ErrorLogFilter(timing.remind)
        self._log = log.bind(kind=kind.RESOURCE.kind, namespace=namespace or "*")
        self._received = 0
        self._counts: dict[str, int] = {}
        self._flush_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """List and watch until cancelled."""
        try:
            while True:
                delay = await (self._watch() if self._state.resource_version else self._list())
                await asyncio.sleep(delay)
        finally:
            self._flush()

    # --- list

    async def _list(self) -> float:
        state = self._state
        try:
            listing, version = await self._pages(self._page_size if state.paged else 0)
            async with self._turn:
                await self._replace(listing)
            reason = state.reason
            state.listed(version)
        except Exception as error:  # noqa: BLE001 - the process outlives any answer; see _failed
            return self._failed("list", error, state.list_failed(error))
        metrics.INFORMER_RELISTS.labels(self._kind.RESOURCE.kind, reason).inc()
        self._log.debug("listed", objects=len(listing.objects), reason=reason, resource_version=version)
        self._intake.count_objects()
        self._recovered()
        if not self.listed:
            self.listed = True
            self._on_listed()
        return 0.0

    async def _pages(self, limit: int) -> tuple[Listing[T], str]:
        """Read all pages; they are one snapshot, so the version of the last is that of all."""
        listing = self._intake.begin(self.namespace or None)
        token = ""
        while True:
            page = await self._client.list(
                self._kind,
                self.namespace,
                labels=self._labels,
                fields=self._fields,
                limit=limit,
                continue_token=token,
            )
            self._intake.collect(listing, page.items, page.bad)
            token = page.continue_token
            if not token:
                return listing, page.resource_version

    async def _replace(self, listing: Listing[T]) -> None:
        # A handler added while this delivers hears of the whole store by itself: only the others are told.
        handlers = self._intake.handlers
        changes = self._intake.relist(listing, self.namespace or None)
        for start in range(0, len(changes), _CHANGES_PER_TURN):
            self._intake.deliver(changes[start : start + _CHANGES_PER_TURN], handlers)
            await asyncio.sleep(0)

    # --- watch

    async def _watch(self) -> float:
        loop = asyncio.get_running_loop()
        started, before = loop.time(), self._received
        error: Exception | None = None
        watch = self._client.watch(
            self._kind,
            self.namespace,
            resource_version=self._state.resource_version,
            labels=self._labels,
            fields=self._fields,
            timeout_seconds=int(self._timing.watch * (1.0 + random.random())),  # noqa: S311 - spread, not secrecy
            idle_seconds=self._timing.idle,
        )
        # The client gives up opening a watch after its timeout: one that has not failed by then is open,
        # even if the kind is so quiet that not a single line comes.
        opened = loop.call_later(self._client.timeout + 1.0, self._recovered)
        try:
            async with aclosing(watch) as events:
                await self._consume(events)
        except Exception as caught:  # noqa: BLE001 - the process outlives any answer; see _failed
            error = caught
        finally:
            opened.cancel()
        lasted = loop.time() - started
        delay = self._state.watch_over(error, events=self._received - before, lasted=lasted)
        if error is None:
            self._recovered()
            return delay
        return self._failed("watch", error, delay)

    async def _consume(self, events: AsyncIterator[WatchEvent[T]]) -> None:
        """Apply events as they come. This is the hot path: no call per event but the intake's."""
        apply, state, counts = self._intake.event, self._state, self._counts
        async for event_type, obj, version in events:
            apply(event_type, obj)
            if version:
                state.resource_version = version
            counts[event_type] = counts.get(event_type, 0) + 1
            self._received += 1
            if self._flush_timer is None:
                self._flush_timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush)
            if self.last_error is not None:
                self._recovered()
            if not self._received & (_EVENTS_PER_TURN - 1):
                await asyncio.sleep(0)

    def _flush(self) -> None:
        """Add the events counted since the last time: a counter costs more than an event may."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        kind = self._kind.RESOURCE.kind
        for event_type, count in self._counts.items():
            metrics.WATCH_EVENTS.labels(kind, event_type).inc(count)
        self._counts.clear()
        self._intake.count_objects()

    # --- errors

    def _failed(self, step: str, error: Exception, delay: float) -> float:
        """Remember and report an error; return the wait."""
        if self._state.is_routine(error, watching=step == "watch"):
            # Whatever was wrong before has ended: it worked until now.
            self._recovered()
            self._log.debug(f"{step} interrupted", error=str(error), retry_in=round(delay, 3))
            return delay
        self.last_error = error
        unexpected = not isinstance(error, KubeError)
        if self._reporter.due((step, type(error)), asyncio.get_running_loop().time()):
            self._log.warning(
                f"{step} failed, still trying",
                error=f"{type(error).__name__}: {error}",
                retry_in=round(delay, 3),
                exc_info=error if unexpected else None,
            )
        return delay

    def _recovered(self) -> None:
        self.last_error = None
        if self._reporter.clear():
            self._log.info("list and watch work again")
