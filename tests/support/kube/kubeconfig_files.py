"""Kubeconfigs and service accounts as the tests of the configuration write them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import yaml

from slurm_operator.kube.client.config import ClientConfig, load_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.certificates import Pki

SERVER = "https://10.9.8.7:6443"
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(
    path: Path,
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    name: str = "x",
    namespace: str | None = None,
    **top: Any,
) -> Path:
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    } | top
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def load(path: Path, context: str | None = None, **env: str) -> ClientConfig:
    return load_config(str(path), context, env=env)


async def authorization(config: ClientConfig) -> str | None:
    return (await config.auth.headers()).get("Authorization")


def service_account(folder: Path, pki: Pki) -> Path:
    account = folder / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("pod-token\n", encoding="utf-8")
    (account / "ca.crt").write_bytes(pki.ca)
    (account / "namespace").write_text("slinky\n", encoding="utf-8")
    return account
