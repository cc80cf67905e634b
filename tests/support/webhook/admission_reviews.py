"""Questions as the API server asks them."""

from __future__ import annotations

from typing import Any

from slurm_operator.api import KINDS
from slurm_operator.webhook.rules.registration import WEBHOOKS
from tests.support.webhook.rule_cases import manifest

PATHS = {webhook.resource.kind: webhook.path for webhook in WEBHOOKS}
_RESOURCES = {kind.RESOURCE.kind: kind.RESOURCE for kind in KINDS}


def question(
    body: dict[str, Any] | None = None, version: str = "v1", namespace: str = "slurm", **request: Any
) -> dict[str, Any]:
    """Return a review of the creation of an object, or of what the arguments say."""
    body = manifest("NodeSet") if body is None else body
    resource = _RESOURCES.get(body.get("kind", ""))
    group, _, object_version = body.get("apiVersion", "").rpartition("/")
    return {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "request": {
            "uid": "question-1",
            "kind": {"group": group, "version": object_version, "kind": body.get("kind", "")},
            "resource": {"group": group, "version": object_version, "resource": resource and resource.plural},
            "name": "x",
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": "alice"},
            "object": body,
            "oldObject": None,
            "dryRun": False,
            "options": {},
            **request,
        },
    }
