"""Tell users what happened, with Events of events.k8s.io/v1, without ever getting in the way.

`event` may be called from anywhere on the loop: it decides (`eventseries`), queues, and returns; it does not
block and does not raise. One task, `run`, sends. An API server that is away is retried with a growing pause
while the bounded queue fills; a namespace that is being deleted, or a missing permission, costs one log line
and the Events concerned. What is dropped is counted by cause in `slurm_operator_events_dropped_total`.

Notes come from error messages too, so whatever looks like a token or a key is hidden before it leaves the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import structlog

from slurm_operator.kube import metrics
from slurm_operator.kube.client import PatchType
from slurm_operator.kube.errors import (
    AlreadyExists,
    ApiError,
    ConnectionFailed,
    DecodeError,
    FencedError,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from slurm_operator.kube.eventseries import (
    WORD_LIMIT,
    Counted,
    Create,
    Drop,
    EventCorrelator,
    Occurrence,
    Patch,
    shorten,
)
from slurm_operator.kube.log import scrub
from slurm_operator.kube.models import Event
from slurm_operator.kube.parts import ObjectReference

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.kube.client import Client
    from slurm_operator.kube.meta import Object

log = structlog.get_logger(__name__)

# As many as client-go's broadcaster holds.
_MAX_QUEUE = 1000
# client-go gives up on an event after 12 tries.
_MAX_TRIES = 12
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
# Namespaces whose refusal has been logged; beyond this many the memory starts anew.
_MAX_REFUSALS = 1024

_TRANSIENT = (ConnectionFailed, ServerError, TooManyRequests, Unauthorized)


class EventRecorder:
    """Records Events about objects; `run` must be running for any to be sent."""

    def __init__(
        self,
        client: Client,
        *,
        controller: str = "slurm-operator",
        instance: str = "",
        max_queue: int = _MAX_QUEUE,
        correlator: EventCorrelator | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = shorten(instance or platform.node() or controller, WORD_LIMIT)
        self._max_queue = max_queue
        self._correlator = correlator or EventCorrelator()
        self._clock = clock
        self._queue: deque[Create] = deque()
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()
        self._tries = 0
        self._refusals: set[tuple[str, str]] = set()

    def event(
        self,
        regarding: Object | ObjectReference,
        type: Literal["Normal", "Warning"],  # noqa: A002 - Kubernetes' word
        reason: str,
        action: str,
        note: str,
        related: Object | ObjectReference | None = None,
    ) -> None:
        """Record that something happened to an object."""
        try:
            occurrence = Occurrence(
                regarding=reference(regarding),
                type=type,
                reason=shorten(reason, WORD_LIMIT),
                action=shorten(action or reason, WORD_LIMIT),
                note=shorten(scrub(note)),
                time=datetime.now(UTC),
                related=None if related is None else reference(related),
            )
            self._accept(occurrence)
        except Exception:
            # An Event is a courtesy: whatever is wrong with it must not stop the work it reports.
            log.exception("event could not be recorded", reason=reason)
            _dropped("error")

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            pause = await self._send()
            if pause is not None:
                await asyncio.sleep(pause)
                continue
            due = self._correlator.next_due()
            delay = None if due is None else max(0.0, due - self._clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            self._wake.clear()

    async def flush(self, deadline: float) -> bool:
        """Send everything that waits, within `deadline` seconds; tell whether it all got through."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline):
                return await self._send(everything=True) is None
        return False

    def _accept(self, occurrence: Occurrence) -> None:
        if not occurrence.regarding.name:
            raise ValueError("the object an event is about must have a name")
        decision = self._correlator.offer(occurrence, self._clock())
        match decision:
            case Create() if len(self._queue) >= self._max_queue:
                self._correlator.lost(decision)
                _dropped("queue_full")
            case Create():
                self._queue.append(decision)
                self._wake.set()
            case Counted(first=True):
                self._wake.set()
            case Drop(reason=cause):
                _dropped(cause)

    async def _send(self, *, everything: bool = False) -> float | None:
        """Send what is due; return the pause to make when the server cannot be reached."""
        async with self._sending:
            try:
                while True:
                    while self._queue:
                        await self._create(self._queue[0])
                        self._queue.popleft()
                        self._tries = 0
                    patches = self._correlator.due(self._clock(), everything=everything)
                    if not patches and not self._queue:
                        return None
                    await self._patch_all(patches)
                    self._tries = 0
            except _TRANSIENT as error:
                return self._failed(error)

    async def _create(self, create: Create) -> None:
        occurrence = create.occurrence
        body = event_body(create, self._controller, self._instance)
        try:
            await self._client.create(Event, body)
        except (AlreadyExists, DecodeError):
            # Our own, from a try whose answer was lost or unreadable.
            pass
        except _TRANSIENT:
            raise
        except KubeError as error:
            self._correlator.lost(create)
            self._refused(occurrence, error)
            return
        self._refusals = {item for item in self._refusals if item[0] != occurrence.namespace}
        self._correlator.posted(create, self._clock())
        metrics.EVENTS_SENT.inc()

    async def _patch_all(self, patches: list[Patch]) -> None:
        for index, patch in enumerate(patches):
            try:
                await self._patch(patch)
            except (*_TRANSIENT, asyncio.CancelledError):
                for unsent in patches[index:]:
                    self._correlator.unsent(unsent)
                raise

    async def _patch(self, patch: Patch) -> None:
        occurrence = patch.occurrence
        body = {"series": _series(patch.count, patch.last)}
        try:
            await self._client.patch(Event, patch.name, occurrence.namespace, body, type=PatchType.MERGE)
        except NotFound:
            # Events live for an hour by default; the series may last longer.
            self._queue.append(self._correlator.vanished(patch))
        except DecodeError:
            metrics.EVENTS_SENT.inc()
        except _TRANSIENT:
            raise
        except KubeError as error:
            self._correlator.lost(patch)
            self._refused(occurrence, error)
        else:
            metrics.EVENTS_SENT.inc()

    def _failed(self, error: KubeError) -> float:
        self._tries += 1
        if self._tries >= _MAX_TRIES and self._queue:
            create = self._queue.popleft()
            self._correlator.lost(create)
            self._tries = 0
            _dropped("unreachable")
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        pause = min(_FIRST_PAUSE * 2.0**self._tries, _LONGEST_PAUSE)
        log.debug("events wait for the API server", error=str(error), pause=pause, waiting=len(self._queue))
        return max(pause, min(retry_after or 0.0, _LONGEST_PAUSE))

    def _refused(self, occurrence: Occurrence, error: KubeError) -> None:
        _dropped("fenced" if isinstance(error, FencedError) else "rejected")
        refusal = (occurrence.namespace, error.__class__.__name__)
        if refusal in self._refusals:
            return
        if len(self._refusals) >= _MAX_REFUSALS:
            self._refusals.clear()
        self._refusals.add(refusal)
        log.warning(
            "events of a namespace are refused",
            namespace=occurrence.namespace,
            kind=occurrence.regarding.kind,
            object=occurrence.regarding.name,
            reason=occurrence.reason,
            error=str(error),
        )


def reference(target: Object | ObjectReference) -> ObjectReference:
    """Return a reference to an object."""
    if isinstance(target, ObjectReference):
        return target
    resource = target.RESOURCE
    metadata = target.metadata
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def event_body(create: Create, controller: str, instance: str) -> dict[str, Any]:
    """Return the Event to create."""
    occurrence = create.occurrence
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": create.name, "namespace": occurrence.namespace},
        "eventTime": _micro_time(occurrence.time),
        "type": occurrence.type,
        "reason": occurrence.reason,
        "action": occurrence.action,
        "note": occurrence.note,
        "regarding": msgspec.to_builtins(occurrence.regarding),
        "reportingController": controller,
        "reportingInstance": instance,
    }
    if occurrence.related is not None:
        body["related"] = msgspec.to_builtins(occurrence.related)
    if create.count > 1:
        body["series"] = _series(create.count, occurrence.time)
    return body


def _series(count: int, last: datetime) -> dict[str, Any]:
    return {"count": count, "lastObservedTime": _micro_time(last)}


def _micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _dropped(reason: str) -> None:
    metrics.EVENTS_DROPPED.labels(reason).inc()
