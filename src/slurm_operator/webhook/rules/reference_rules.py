"""What rules say of fields that name other objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_operator.api.shared import ConfigMapKeySelector, LocalObjectReference, SecretKeySelector
    from slurm_operator.webhook.rules.findings import Findings


def check_controller_ref(ref: LocalObjectReference, findings: Findings) -> None:
    """Refuse an object that belongs to no Controller."""
    check_name(ref, "spec.controllerRef", "Controller", findings)


def check_name(ref: LocalObjectReference, path: str, kind: str, findings: Findings) -> None:
    """Refuse a reference without a name."""
    if not ref.name:
        findings.require(
            f"{path}.name", f"is empty; set the name of the {kind}, which must be in the same namespace"
        )


def check_secret(ref: SecretKeySelector | None, path: str, content: str, findings: Findings) -> None:
    """Refuse a reference to a Secret that lacks one of its two halves; none at all is the schema's matter."""
    _check_selector(ref, path, "Secret", content, findings)


def check_config_map(ref: ConfigMapKeySelector | None, path: str, content: str, findings: Findings) -> None:
    """Refuse a reference to a ConfigMap that lacks one of its two halves."""
    _check_selector(ref, path, "ConfigMap", content, findings)


def _check_selector(
    ref: SecretKeySelector | ConfigMapKeySelector | None,
    path: str,
    kind: str,
    content: str,
    findings: Findings,
) -> None:
    if ref is None:
        return
    if not ref.name:
        findings.require(f"{path}.name", f"is empty; set the name of the {kind} with {content}")
    if not ref.key:
        findings.require(f"{path}.key", f"is empty; set the key in the {kind} that holds {content}")
