"""The decisions of the LoginSet controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.api import LoginSet
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.loginset import keys_trouble
from slurm_operator.kube.models.kinds import Secret

LOGINSET = msgspec.convert({"metadata": {"name": "login", "namespace": "ns", "uid": "u1"}}, LoginSet)
FILES = {f"ssh_host_{kind}_key{end}": b"x" for kind in ("rsa", "ecdsa", "ed25519") for end in ("", ".pub")}


def secret(data: dict[str, bytes] | None = None, **metadata: Any) -> Secret:
    body = {"metadata": {"name": "login-ssh-host-keys", "namespace": "ns"} | metadata}
    return msgspec.structs.replace(msgspec.convert(body, Secret), data=FILES if data is None else data)


def owner(kind: str = "LoginSet", name: str = "login", uid: str = "u1") -> list[dict[str, Any]]:
    return [{"kind": kind, "name": name, "uid": uid, "controller": True}]


@pytest.mark.parametrize("found", [secret(), secret(ownerReferences=owner())])
def test_usable_host_keys(found: Secret) -> None:
    """A complete Secret that is ours, or has no owner, is used as it is."""
    assert keys_trouble(LOGINSET, found) is None


@pytest.mark.parametrize(
    ("found", "cause", "words"),
    [
        (secret({"ssh_host_rsa_key": b"x"}), Reason.INVALID_SPEC, " ssh_host_ecdsa_key,"),
        (secret(FILES | {"ssh_host_rsa_key": b""}), Reason.INVALID_SPEC, " ssh_host_rsa_key:"),
        (secret(ownerReferences=owner("Token", "t", "u2")), Reason.NAME_TAKEN, "Token 't'"),
        (secret(ownerReferences=owner(uid="u0")), Reason.NAME_TAKEN, "LoginSet"),
        (secret(deletionTimestamp="2026-01-01T00:00:00Z"), Reason.NAME_TAKEN, "'login-ssh-host-keys'"),
    ],
)
def test_unusable_host_keys(found: Secret, cause: Reason, words: str) -> None:
    """A Secret that lacks keys or belongs to another is a trouble that names what is wrong."""
    trouble = keys_trouble(LOGINSET, found)
    assert trouble is not None
    assert trouble.cause is cause
    assert words in trouble.message
