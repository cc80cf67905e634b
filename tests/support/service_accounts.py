"""Service accounts: who they are, what they may do beyond a Role, and how to act as one."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import yaml

from kubebox import BoxError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubebox import Box

_DEADLINE = 60.0


def service_account(box: Box, namespace: str, name: str) -> str:
    """Create a service account and return a token of it."""
    box.kubectl("create", "serviceaccount", name, "-n", namespace)
    return box.kubectl("create", "token", name, "-n", namespace).strip()


def kubeconfig_with_token(box: Box, path: Path, token: str) -> Path:
    """Write a kubeconfig for whoever bears a token."""
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "box", "user": "u"}}],
                "clusters": [
                    {
                        "name": "box",
                        "cluster": {"server": box.server, "certificate-authority": str(box.ca_file)},
                    }
                ],
                "users": [{"name": "u", "user": {"token": token}}],
            }
        )
    )
    return path


def until_allowed(box: Box, namespace: str, account: str, *right: str) -> None:
    """Wait until the API server has heard of a right: it learns of new roles some moments later."""
    who = f"--as=system:serviceaccount:{namespace}:{account}"
    deadline = time.monotonic() + _DEADLINE
    while True:
        try:
            box.kubectl("auth", "can-i", *right, who)
        except BoxError:  # which is how kubectl says no
            assert time.monotonic() < deadline, f"{account} may still not {' '.join(right)}"
            time.sleep(0.1)
        else:
            return


@contextmanager
def sees_nodes(box: Box, namespace: str, account: str) -> Iterator[None]:
    """Let a service account see the Kubernetes nodes, which no Role can allow."""
    with _allowed(box, namespace, account, "--verb=get,list,watch", "--resource=nodes"):
        until_allowed(box, namespace, account, "list", "nodes")
        yield


@contextmanager
def reads_metrics(box: Box, namespace: str, account: str) -> Iterator[None]:
    """Let a service account read metrics of the operator."""
    with _allowed(box, namespace, account, "--verb=get", "--non-resource-url=/metrics"):
        until_allowed(box, namespace, account, "get", "/metrics")
        yield


@contextmanager
def _allowed(box: Box, namespace: str, account: str, *rule: str) -> Iterator[None]:
    name = f"{namespace}-{account}"
    box.kubectl("create", "clusterrole", name, *rule)
    try:
        who = f"--serviceaccount={namespace}:{account}"
        box.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", who)
        yield
    finally:
        box.kubectl("delete", "clusterrole,clusterrolebinding", name)
