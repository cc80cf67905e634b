"""The ServiceAccounts that the chart makes, for the operator and the webhook: their rights and no others.

Integration tests run both with them, so that a right that the chart forgets is a test that fails.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kubebox.binaries import provide
from tests.support.charts.helm import OPERATOR, render
from tests.support.service_accounts import kubeconfig_with_token, until_allowed

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box

NAMESPACE, RELEASE = "slurm-operator-account", "slurm-operator"
USER = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
_LEASES = f"{RELEASE}-leader-election"
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


def rights(*arguments: str, component: str = "operator", namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Return what the chart renders for the rights of the operator or of the webhook."""
    helm = provide(["helm"], print)["helm"]
    only = ("--show-only", f"templates/{component}/rbac.yaml")
    objects: list[dict[str, Any]] = render(
        helm, OPERATOR, *only, *arguments, release=RELEASE, namespace=namespace
    )
    return objects


@cache
def operator_kubeconfig(box: Box, *arguments: str, namespace: str = NAMESPACE) -> Path:
    """Give the operator an account in a box, once, with the chart's rights; return a kubeconfig for it.

    A second account of one box, for other values of the chart, needs a namespace of its own.
    """
    path = _kubeconfig(box, *arguments, component="operator", namespace=namespace)
    until_allowed(box, namespace, RELEASE, "list", "nodes")
    return path


def webhook_kubeconfig(box: Box, namespace: str, *arguments: str) -> Path:
    """Give the webhook an account in a namespace, with the chart's rights; return a kubeconfig for it."""
    path = _kubeconfig(box, *arguments, component="webhook", namespace=namespace)
    account = f"{RELEASE}-webhook"
    until_allowed(box, namespace, account, "get", "configmaps", f"--namespace={namespace}")
    return path


def _kubeconfig(box: Box, *arguments: str, component: str, namespace: str) -> Path:
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    second = ("--set", "uniqueNames=true") if namespace != NAMESPACE else ()
    made = rights(*second, *arguments, component=component, namespace=namespace)
    _apply(box, home, *made)
    (account,) = (item["metadata"]["name"] for item in made if item["kind"] == "ServiceAccount")
    token = box.kubectl("create", "token", account, "--namespace", namespace, _LIFETIME).strip()
    return kubeconfig_with_token(box, box.state / f"{namespace}-{component}.kubeconfig", token)


def allow_lease(box: Box, namespace: str) -> None:
    """Let the operator have its Lease in a namespace, with the rights that the chart gives for that."""
    ours = [item for item in rights() if item["metadata"]["name"] == _LEASES]
    _apply(box, *(item | {"metadata": item["metadata"] | {"namespace": namespace}} for item in ours))
    until_allowed(box, NAMESPACE, RELEASE, "create", "leases.coordination.k8s.io", f"--namespace={namespace}")


def _apply(box: Box, *objects: dict[str, Any]) -> None:
    box.kubectl("apply", "--filename=-", stdin="\n---\n".join(map(json.dumps, objects)))
