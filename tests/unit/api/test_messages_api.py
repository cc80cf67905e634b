"""The sentences of the CRDs: what the API server says without the webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import KINDS
from slurm_operator.api.schema import crd
from tests.support import message_golden

if TYPE_CHECKING:
    from collections.abc import Iterator


def rules(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the messages of all rules below a schema, with the fields that they are about."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"{path}{rule.get('fieldPath', '')}: {rule['message']}"
    for name, inner in schema.get("properties", {}).items():
        yield from rules(inner, f"{path}.{name}")


def test_crds() -> None:
    """Each sentence is as in the golden file."""
    lines = [
        line
        for kind in KINDS
        for version in crd(kind)["spec"]["versions"]
        for line in rules(version["schema"]["openAPIV3Schema"], kind.RESOURCE.kind)
    ]
    message_golden.compare("CRD rules", lines)
