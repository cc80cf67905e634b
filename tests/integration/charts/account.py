"""The operator's ServiceAccount as the chart makes it: its rights and no others.

Integration tests run the operator with it, so that a right that the chart forgets is a test that fails.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kubebox.binaries import provide
from tests.integration.charts.charting import OPERATOR, render
from tests.integration.test_manager_process import kubeconfig_with_token

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box

NAMESPACE, RELEASE = "slurm-operator-account", "slurm-operator"
USER = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
_RBAC = ("--show-only", "templates/operator/rbac.yaml")
# Longer than any run of the tests.
_LIFETIME = "--duration=12h"


class Right(NamedTuple):
    """One thing that a role allows."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}.{self.group}".rstrip(".")


def granted(objects: list[dict[str, Any]]) -> set[Right]:
    """Return every right in the roles of a manifest."""
    return {
        Right(group, resource, verb)
        for item in objects
        for rule in item.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rights(*arguments: str) -> list[dict[str, Any]]:
    """Return what the chart renders for the operator's rights."""
    helm = provide(["helm"], print)["helm"]
    objects: list[dict[str, Any]] = render(
        helm, OPERATOR, *_RBAC, *arguments, release=RELEASE, namespace=NAMESPACE
    )
    return objects


@cache
def operator_kubeconfig(box: Box, *arguments: str) -> Path:
    """Give the operator an account in a box, once, with the chart's rights; return a kubeconfig for it."""
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    documents = [home, *rights(*arguments)]
    box.kubectl("apply", "--filename=-", stdin="\n---\n".join(map(json.dumps, documents)))
    token = box.kubectl("create", "token", RELEASE, "--namespace", NAMESPACE, _LIFETIME).strip()
    return kubeconfig_with_token(box, box.state / "operator.kubeconfig", token)
