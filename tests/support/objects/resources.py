"""Custom resources and references in the fewest words, for tests of what is made from them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from slurm_operator.api import Accounting, Controller, Kind, LoginSet, NodeSet, RestApi
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from slurm_operator.objects.content_references import Found

T = TypeVar("T", bound=Kind)

KEYS = {
    "slurmKeyRef": {"name": "auth-slurm", "key": "slurm.key"},
    "jwtKeyRef": {"name": "auth-jwt", "key": "jwt.key"},
}
STORAGE = {"host": "db", "username": "slurm", "passwordKeyRef": {"name": "db", "key": "password"}}
SECRETS = {
    "auth-slurm": {"slurm.key": b"k"},
    "auth-jwt": {"jwt.key": b"j"},
    "db": {"password": b"p"},
    "sssd": {"sssd.conf": b"[sssd]"},
    "login-ssh-host-keys": {"ssh_host_rsa_key": b"r"},
}


def _make(kind: type[T], name: str, spec: dict[str, Any], metadata: dict[str, Any], status: Any = None) -> T:
    body = {
        "metadata": {"name": name, "namespace": "NS", "uid": f"uid-{name}"} | metadata,
        "spec": spec,
        "status": status or {},
    }
    return msgspec.convert(body, kind)


def controller(metadata: dict[str, Any] | None = None, **spec: Any) -> Controller:
    return _make(Controller, "slurm", KEYS | spec, metadata or {})


def accounting(metadata: dict[str, Any] | None = None, **spec: Any) -> Accounting:
    return _make(Accounting, "acct", KEYS | {"storageConfig": STORAGE} | spec, metadata or {})


def restapi(metadata: dict[str, Any] | None = None, **spec: Any) -> RestApi:
    return _make(RestApi, "slurm", {"controllerRef": {"name": "slurm"}} | spec, metadata or {})


def loginset(metadata: dict[str, Any] | None = None, **spec: Any) -> LoginSet:
    required = {"controllerRef": {"name": "slurm"}, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}
    return _make(LoginSet, "login", required | spec, metadata or {})


def node_set(name: str, status: dict[str, Any] | None = None, **spec: Any) -> NodeSet:
    return _make(NodeSet, name, {"controllerRef": {"name": "slurm"}} | spec, {}, status)


def found(secrets: dict[str, dict[str, bytes] | None] | None = None, **config_maps: dict[str, str]) -> Found:
    """Return all usual Secrets, changed as asked (None: it does not exist), and the ConfigMaps given."""
    present = {name: data for name, data in (SECRETS | (secrets or {})).items() if data is not None}
    return Found(
        {name: Secret(data=data) for name, data in present.items()},
        {name: ConfigMap(data=data) for name, data in config_maps.items()},
    )
