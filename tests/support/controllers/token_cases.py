"""Tokens, keys and Secrets for the tests of what is decided about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import Token
from slurm_operator.controllers.token.token_plan import (
    CannotIssue,
    Decision,
    Issue,
    Keep,
    TokenObservation,
    Why,
    decide,
)
from slurm_operator.controllers.token.token_secret import desired
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.slurm.web_token import mint

if TYPE_CHECKING:
    from slurm_operator.api.reasons import Reason

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
KEY, OTHER_KEY = b"k" * 64, b"o" * 64
HOUR = timedelta(hours=1)


def a_token(
    *, name: str = "alice", uid: str = "uid-alice", meta: dict[str, Any] | None = None, **spec: Any
) -> Token:
    body = {
        "metadata": {"name": name, "namespace": "slurm", "uid": uid, "generation": 1, **(meta or {})},
        "spec": {
            "jwtKeyRef": {"name": "auth-jwt", "key": "jwt.key"},
            "username": "alice",
            "lifetime": "1h",
            **spec,
        },
    }
    return msgspec.convert(body, Token)


def a_key(value: bytes | None = KEY, name: str = "jwt.key") -> Secret:
    data = {} if value is None else {name: value}
    return secret({"metadata": {"name": "auth-jwt", "namespace": "slurm", "uid": "uid-key"}}, data)


def secret(body: dict[str, Any], data: dict[str, bytes]) -> Secret:
    found = msgspec.convert({key: value for key, value in body.items() if key != "data"}, Secret)
    return msgspec.structs.replace(found, data=data)


def written(token: Token, value: str, **changes: Any) -> Secret:
    """Return the Secret that the operator would have written, as the API server gives it back."""
    body = desired(token, value)
    body["metadata"].update(uid="uid-secret", resourceVersion="7", **changes)
    return secret(body, {token.secret_key: value.encode()})


def made_by_go(token: Token, value: str) -> Secret:
    """Return the Secret as Slinky makes it: without our label, owned by the Secret with the key."""
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "auth-jwt", "uid": "uid-key", "controller": True}
    return written(token, value, labels={}, ownerReferences=[owner])


def decided(
    token: Token, live: Secret | None, *, key: Secret | None = None, now: datetime = NOW, rival: str = ""
) -> Decision:
    return decide(TokenObservation(token, a_key() if key is None else key, live, rival), now)


def issued(
    user: str = "alice", life: timedelta = HOUR, key: bytes = KEY, ago: timedelta = timedelta(0)
) -> str:
    return mint(key, user, life, NOW - ago)


def why(decision: Decision) -> Why:
    assert isinstance(decision, Issue)
    assert not decision.replace
    return decision.why


def cannot_issue(decision: Decision | Keep | CannotIssue) -> Reason:
    assert isinstance(decision, CannotIssue)
    return decision.reason
