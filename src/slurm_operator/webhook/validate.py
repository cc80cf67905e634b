"""From a request to a verdict: decode, look up what the rules ask about, validate, and log the result.

The log names who asked for what and which fields were refused, by the uid of the question, which the API
server's audit log has, too. It does not repeat what is in the fields.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from slurm_operator.api import Kind
from slurm_operator.webhook.lookups import LOGS
from slurm_operator.webhook.metrics import VERDICTS
from slurm_operator.webhook.rules import keys, wanted
from slurm_operator.webhook.rules.admission import ALLOWED, Undecodable, Verdict, decode, harmless, validate
from slurm_operator.webhook.rules.findings import Finding, Findings
from slurm_operator.webhook.rules.world import Wanted

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object
    from slurm_operator.webhook.lookups import Lookups
    from slurm_operator.webhook.rules.review import AdmissionRequest

_log = structlog.get_logger(__name__)

_CREATE, _UPDATE = "CREATE", "UPDATE"
_CLUSTERS = Wanted(clusters=True)


class Validator:
    """Validates writes of our kinds, and of Secrets with keys of daemons."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups

    async def validate(self, kind: type[Object], request: AdmissionRequest, seconds: float) -> Verdict:
        """Return the verdict about a write; what goes wrong here is a refusal, never an exception."""
        try:
            verdict = await self._validate(kind, request, seconds)
        except Exception as error:  # noqa: BLE001 - logged with its traceback, and answered
            # Input that no rule foresaw is rejected. The error is not repeated: it may quote a Secret.
            _log.exception("validation failed", **_facts(request))
            message = f"cannot be validated ({type(error).__name__}); for uid {request.uid} see {LOGS}"
            verdict = Verdict((Finding("object", message),))
        self._tell(kind, request, verdict)
        return verdict

    async def _validate(self, kind: type[Object], request: AdmissionRequest, seconds: float) -> Verdict:
        if request.operation not in (_CREATE, _UPDATE) or request.sub_resource or request.new is None:
            return ALLOWED
        if request.kind.kind != kind.RESOURCE.kind or request.kind.group != kind.RESOURCE.group:
            asked = f"{request.kind.group}/{request.kind.kind}"
            problem = f"{asked} is not validated at this path; correct the webhook configuration"
            return Verdict((Finding("kind", problem),))
        before = request.old if request.operation == _UPDATE else None
        try:
            if issubclass(kind, Kind):
                return await self._validate_kind(kind, request, request.new, before, seconds)
            return await self._validate_secret(request, request.new, before, seconds)
        except Undecodable as error:
            return Verdict((error.finding,))

    async def _validate_kind(
        self, kind: type[Kind], request: AdmissionRequest, after: bytes, before: bytes | None, seconds: float
    ) -> Verdict:
        if harmless(after, before):
            return ALLOWED
        new, old = decode(kind, after), _former(kind, before)
        world = await self._lookups.world(wanted(new, old), request.namespace, seconds)
        return Verdict(*validate(new, old, world))

    async def _validate_secret(
        self, request: AdmissionRequest, after: bytes, before: bytes | None, seconds: float
    ) -> Verdict:
        if request.operation != _UPDATE:
            return ALLOWED
        if before is None:
            return Verdict(
                (Finding("oldObject", "is missing, so the change to the keys cannot be validated"),)
            )
        new, old = decode(keys.Content, after), decode(keys.Content, before)
        losses = keys.lost(old, new, time.time())
        if new.dying or not losses:
            return ALLOWED
        world, findings = await self._lookups.world(_CLUSTERS, request.namespace, seconds), Findings()
        keys.check_loss(request.name, losses, world, findings)
        return Verdict(tuple(findings.errors.values()))

    def _tell(self, kind: type[Object], request: AdmissionRequest, verdict: Verdict) -> None:
        word = "denied" if not verdict.allowed else "warned" if verdict.warnings else "allowed"
        operation = request.operation if request.operation in (_CREATE, _UPDATE) else "other"
        VERDICTS.labels(kind.RESOURCE.kind, operation, word).inc()
        if verdict.allowed:
            _log.debug("admitted", **_facts(request), warnings=len(verdict.warnings))
        else:
            _log.info("denied", **_facts(request), fields=[finding.path for finding in verdict.errors])


def _former(kind: type[Kind], raw: bytes | None) -> Kind | None:
    """Return the object before the write; one that cannot be read must not stand in the way of a good one."""
    try:
        return decode(kind, raw) if raw is not None else None
    except Undecodable:
        return None


def _facts(request: AdmissionRequest) -> dict[str, object]:
    return {
        "uid": request.uid,
        "kind": request.kind.kind,
        "namespace": request.namespace,
        "name": request.name,
        "operation": request.operation,
        "user": request.user_info.username,
        "dry_run": bool(request.dry_run),
    }
