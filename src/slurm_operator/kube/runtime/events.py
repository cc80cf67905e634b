"""Tell users what happened, with Events of events.k8s.io/v1, without ever getting in the way.

`event` may be called from anywhere on the loop: it decides (`event_series`), queues, and returns; it does not
block and does not raise. One task, `run`, sends in rounds.

What a failure means is decided by `fate`. When the server is away, overloaded or does not know us, the round
stops and everything waits for a growing pause while the bounded queue fills. When it fails on one Event (a
broken webhook in one namespace), only that Event is set aside, for a pause of its own, and the others go on.
Each Event counts its own tries and is given up after a dozen. A namespace that is being deleted, or a missing
permission, costs one log line and the Events concerned. What is dropped is counted by cause in
`slurm_operator_events_dropped_total`.

Notes come from error messages too, so whatever looks like a token or a key is hidden before it leaves the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import platform
import time
from collections import deque
from datetime import UTC, datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import structlog

from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.decide.event_series import (
    WORD_LIMIT,
    Counted,
    Create,
    Drop,
    EventCorrelator,
    Occurrence,
    Patch,
)
from slurm_operator.kube.errors import (
    AlreadyExists,
    ApiError,
    ConnectionFailed,
    CredentialsError,
    DecodeError,
    FencedError,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from slurm_operator.kube.models.kinds import Event
from slurm_operator.kube.models.meta import ObjectReference
from slurm_operator.kube.models.text_limits import shorten
from slurm_operator.kube.process import metrics
from slurm_operator.kube.process.log import scrub

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Object

log = structlog.get_logger(__name__)

# As many as client-go's broadcaster holds.
_MAX_QUEUE = 1000
# client-go gives up on an event after 12 tries.
_MAX_TRIES = 12
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
# Namespaces whose refusal has been logged; beyond this many the memory starts anew.
_MAX_REFUSALS = 1024

_STOPPING = (ConnectionFailed, CredentialsError, TooManyRequests, Unauthorized)


class FailedWrite(Enum):
    """What becomes of an Event that could not be written."""

    STOP = auto()
    """No other would fare better: nothing more is sent for a while."""
    LATER = auto()
    """It is tried again later; the others go on."""
    REFUSED = auto()
    """The server will not have it."""
    EXHAUSTED = auto()
    """It has been tried often enough."""


@dataclasses.dataclass
class _Waiting:
    create: Create
    tries: int = 0
    retry_at: float = 0.0


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
        observe: Callable[[Occurrence], None] | None = None,
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = shorten(instance or platform.node() or controller, WORD_LIMIT)
        self._max_queue = max_queue
        self._correlator = correlator or EventCorrelator()
        self._clock = clock
        self._observe = observe
        self._queue: deque[_Waiting] = deque()
        self._aside: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()
        self._stops = 0
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
            if self._observe is not None:
                self._observe(occurrence)
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
            due = [waiting.retry_at for waiting in self._aside]
            if (patch_at := self._correlator.next_due()) is not None:
                due.append(patch_at)
            delay = max(0.0, min(due) - self._clock()) if due else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            self._wake.clear()

    async def flush(self, deadline: float) -> bool:
        """Send everything that waits, within `deadline` seconds; return whether it all got through."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline):
                return await self._send(everything=True) is None and self._all_sent()
        return False

    def _accept(self, occurrence: Occurrence) -> None:
        if not occurrence.regarding.name:
            raise ValueError("the object an event is about must have a name")
        decision = self._correlator.offer(occurrence, self._clock())
        match decision:
            case Create():
                self._enqueue(decision)
                self._wake.set()
            case Counted(first=True):
                self._wake.set()
            case Drop(reason=cause):
                _dropped(cause)

    def _enqueue(self, create: Create) -> None:
        if len(self._queue) + len(self._aside) < self._max_queue:
            self._queue.append(_Waiting(create))
            return
        _dropped("queue_full")
        if self._aside:
            # What keeps failing must not keep out what was never tried.
            self._correlator.lost(self._aside.popleft().create)
            self._queue.append(_Waiting(create))
        else:
            self._correlator.lost(create)

    def _all_sent(self) -> bool:
        return not self._queue and not self._aside and self._correlator.next_due() is None

    async def _send(self, *, everything: bool = False) -> float | None:
        """Try once what is due; return the pause to make when the server cannot be reached."""
        async with self._sending:
            now = self._clock()
            aside, self._aside = self._aside, deque()
            for waiting in aside:
                again = everything or waiting.retry_at <= now
                (self._queue if again else self._aside).append(waiting)
            unsent: list[tuple[Patch, float]] = []
            try:
                await self._round(unsent, everything=everything)
            except KubeError as error:
                return self._pause(error)
            finally:
                # Not before the round is over, in which each is tried once.
                for patch, due in unsent:
                    self._correlator.unsent(patch, due)
            return None

    async def _round(self, unsent: list[tuple[Patch, float]], *, everything: bool) -> None:
        while True:
            await self._create_all()
            patches = deque(self._correlator.due(self._clock(), everything=everything))
            if not patches and not self._queue:
                return
            try:
                while patches:
                    if not await self._patch(patches[0]):
                        unsent.append((patches[0], self._clock() + _LONGEST_PAUSE))
                    patches.popleft()
                    # A new Event is news, a patch only a number.
                    await self._create_all()
            finally:
                unsent += [(patch, self._clock()) for patch in patches]

    async def _create_all(self) -> None:
        while self._queue:
            # It stays in the queue meanwhile: a cancelled request loses nothing.
            waiting = self._queue[0]
            try:
                await self._create(waiting.create)
            except KubeError as error:
                self._queue.popleft()
                self._put_off(waiting, error)
                if fate(error) is FailedWrite.STOP:
                    raise
            else:
                self._queue.popleft()

    def _put_off(self, waiting: _Waiting, error: KubeError) -> None:
        waiting.tries += 1
        match fate(error, waiting.tries):
            case FailedWrite.STOP:
                # At the end of the queue: one that makes the server hang must not do so in every round.
                self._aside.append(waiting)
            case FailedWrite.LATER:
                waiting.retry_at = self._clock() + backoff(waiting.tries)
                self._aside.append(waiting)
            case FailedWrite.REFUSED | FailedWrite.EXHAUSTED as end:
                self._correlator.lost(waiting.create)
                self._refused(waiting.create.occurrence, error, exhausted=end is FailedWrite.EXHAUSTED)

    async def _create(self, create: Create) -> None:
        # Our own, from a try whose answer was lost or unreadable, is there as well.
        with contextlib.suppress(AlreadyExists, DecodeError):
            await self._client.create(Event, event_body(create, self._controller, self._instance))
        self._stops = 0
        namespace = create.occurrence.namespace
        self._refusals = {item for item in self._refusals if item[0] != namespace}
        self._correlator.posted(create, self._clock())
        metrics.EVENTS_SENT.inc()

    async def _patch(self, patch: Patch) -> bool:
        """Send a patch; return whether it is done with."""
        occurrence = patch.occurrence
        body = {"series": _series(patch.count, patch.last)}
        try:
            with contextlib.suppress(DecodeError):
                await self._client.patch(Event, patch.name, occurrence.namespace, body, type=PatchType.MERGE)
        except NotFound:
            # Events live for an hour by default; the series may last longer.
            self._queue.append(_Waiting(self._correlator.vanished(patch)))
        except KubeError as error:
            match fate(error):
                case FailedWrite.STOP:
                    raise
                case FailedWrite.LATER:
                    return False
            self._correlator.lost(patch)
            self._refused(occurrence, error)
        else:
            self._stops = 0
            metrics.EVENTS_SENT.inc()
        return True

    def _pause(self, error: KubeError) -> float:
        self._stops += 1
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        pause = max(backoff(self._stops), min(retry_after or 0.0, _LONGEST_PAUSE))
        waiting = len(self._queue) + len(self._aside)
        log.debug("events wait for the API server", error=str(error), pause=pause, waiting=waiting)
        return pause

    def _refused(self, occurrence: Occurrence, error: KubeError, *, exhausted: bool = False) -> None:
        _dropped("unreachable" if exhausted else "fenced" if isinstance(error, FencedError) else "rejected")
        refusal = (occurrence.namespace, error.__class__.__name__)
        if refusal in self._refusals:
            return
        if len(self._refusals) >= _MAX_REFUSALS:
            self._refusals.clear()
        self._refusals.add(refusal)
        log.warning(
            "events of a namespace are dropped" if exhausted else "events of a namespace are refused",
            namespace=occurrence.namespace,
            kind=occurrence.regarding.kind,
            object=occurrence.regarding.name,
            reason=occurrence.reason,
            error=str(error),
        )


def fate(error: KubeError, tries: int = 0) -> FailedWrite:
    """Decide what becomes of an Event after so many tries, the last of which ended with an error."""
    if not isinstance(error, (*_STOPPING, ServerError)):
        return FailedWrite.REFUSED
    if tries >= _MAX_TRIES:
        return FailedWrite.EXHAUSTED
    return FailedWrite.STOP if isinstance(error, _STOPPING) else FailedWrite.LATER


def backoff(failures: int) -> float:
    """Return the pause after so many failures in a row."""
    return min(_FIRST_PAUSE * 2.0 ** min(failures, 10), _LONGEST_PAUSE)


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
