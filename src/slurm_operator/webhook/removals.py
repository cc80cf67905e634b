"""Evictions and deletions of workers, recorded as requests to drain.

A worker that may run jobs is protected: a PodDisruptionBudget refuses its eviction and a
ValidatingAdmissionPolicy its deletion. Both come after mutating webhooks, so this one records the request as
an annotation on the pod before it is refused. The operator then drains the Slurm node and deletes the pod
when it is idle. See `api.removal` for the annotation.

The webhook never refuses and never changes a request. The API server does not send the object of a deletion,
so the pod is looked up; whatever fails or is late, and whatever comes in a burst, is allowed unrecorded. A
client that insists repeats its request, and the refusal names the command that makes it by hand.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import structlog

from slurm_operator.api import removal, wellknown
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import Conflict, KubeError, NotFound
from slurm_operator.kube.models.kinds import Pod, metadata_only
from slurm_operator.kube.models.meta import Part
from slurm_operator.webhook.binding import is_worker
from slurm_operator.webhook.metrics import REMOVALS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Object
    from slurm_operator.webhook.rules.review import AdmissionRequest

T = TypeVar("T", bound=Part)

_log = structlog.get_logger(__name__)

_POD: Final = metadata_only(Pod)
_EVICTION: Final = "eviction"
_FIELD_MANAGER: Final = "slurm-operator-webhook"
# Two short requests each. A drain of a node sends a few evictions a second.
_AT_ONCE: Final = 16


class Preconditions(Part, frozen=True):
    """Which pod is meant."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Part, frozen=True):
    """How to delete; also the options of a creation, as far as they matter here."""

    dry_run: tuple[str, ...] | None = None
    preconditions: Preconditions | None = None


class Eviction(Part, frozen=True):
    """The body of an eviction."""

    delete_options: DeleteOptions | None = None


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request to remove a pod: how and by whom, and the uid of the pod if it is stated."""

    by: str
    uid: str = ""


class RequestOutcome(StrEnum):
    """What became of a request; the values of a metric's label."""

    RECORDED = "recorded"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"


def asked(request: AdmissionRequest) -> RecordedRequest | None:
    """Return what a request asks for; None if it removes no pod. Raises MsgspecError if it is unreadable."""
    if request.dry_run or not request.name:
        return None
    options = _decode(request.given_options, DeleteOptions)
    match request.operation, request.sub_resource:
        case "DELETE", "":
            how, deletion = "deletion", options
        case "CREATE", "eviction":
            # `kubectl drain --dry-run=server` says so here, and nowhere else.
            how, deletion = _EVICTION, _decode(request.new, Eviction).delete_options or DeleteOptions()
        case _:
            return None
    pod = deletion.preconditions or Preconditions()
    # To record is to make another version of the pod, by which such a deletion would fail.
    if options.dry_run or deletion.dry_run or pod.resource_version:
        return None
    return RecordedRequest(f"{how} by {request.user_info.username}", pod.uid or "")


def value(request: RecordedRequest, pod: Object, now: datetime) -> str | None:
    """Return what to write into the annotation of a pod; None if there is nothing to record."""
    metadata = pod.metadata
    protected = (
        is_worker(pod)
        and metadata.labels.get(wellknown.LABEL_POD_PROTECT) == wellknown.TRUE
        and metadata.annotations.get(wellknown.ANNOTATION_ALLOW_DELETION) != wellknown.TRUE
        and metadata.deletion_timestamp is None
    )
    if not protected or request.uid not in ("", metadata.uid) or not removal.due(metadata.annotations, now):
        return None
    return removal.text(now, request.by)


class Recorder:
    """Records requests on workers, a limited number at once."""

    def __init__(
        self,
        client: Client,
        namespaces: Collection[str] = (),
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._namespaces = frozenset(namespaces)
        self._wall = wall
        self._pods: set[tuple[str, str]] = set()

    async def record(self, request: AdmissionRequest, seconds: float) -> None:
        """Record a request if it is one, within a time; what fails is logged and counted, never raised."""
        pod = (request.namespace, request.name)
        if self._namespaces and request.namespace not in self._namespaces:
            outcome = RequestOutcome.UNCHANGED
        elif len(self._pods) >= _AT_ONCE or pod in self._pods:
            outcome = RequestOutcome.SKIPPED
        else:
            self._pods.add(pod)
            try:
                outcome = await self._outcome(request, seconds)
            finally:
                self._pods.discard(pod)
        REMOVALS.labels(outcome.value).inc()

    async def _outcome(self, request: AdmissionRequest, seconds: float) -> RequestOutcome:
        facts = {
            "uid": request.uid,
            "namespace": request.namespace,
            "pod": request.name,
            "user": request.user_info.username,
            "operation": request.sub_resource or request.operation,
        }
        try:
            async with asyncio.timeout(seconds):
                written = await self._write(request, seconds)
        except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
            _log.warning(
                "cannot record a request to remove a worker",
                **facts,
                error=str(error) or "deadline exceeded",
            )
            return RequestOutcome.FAILED
        if not written:
            return RequestOutcome.UNCHANGED
        _log.info("recorded a request to remove a worker", **facts)
        return RequestOutcome.RECORDED

    async def _write(self, request: AdmissionRequest, seconds: float) -> bool:
        wanted = asked(request)
        if wanted is None:
            return False
        try:
            pod = await self._client.get(_POD, request.name, request.namespace, timeout=seconds)
            text = value(wanted, pod, self._wall())
            if text is None:
                return False
            annotations = {wellknown.ANNOTATION_REMOVAL_REQUESTED: text}
            # At `status`, which can change metadata as well: the webhook needs no permission to change specs.
            await self._client.patch(
                _POD,
                request.name,
                request.namespace,
                {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}},
                type=PatchType.MERGE,
                subresource="status",
                field_manager=_FIELD_MANAGER,
                timeout=seconds,
            )
        except (NotFound, Conflict):  # it is gone, or another pod has its name by now
            return False
        return True


def _decode(raw: bytes | None, kind: type[T]) -> T:
    return kind() if raw is None else msgspec.json.decode(raw, type=kind)
