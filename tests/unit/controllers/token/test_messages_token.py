"""The sentences about Tokens: conditions and Events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.token.token_plan import (
    CannotIssue,
    TokenObservation,
    Why,
    available,
    complaint,
    decide,
    moved,
    reissued,
)
from tests.support import message_golden
from tests.support.controllers.token_cases import (
    HOUR,
    NOW,
    OTHER_KEY,
    a_key,
    a_token,
    decided,
    issued,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_operator.controllers.token.token_plan import Decision

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "uid-other", "controller": True}


def decisions() -> Iterator[Decision]:
    """Yield every decision that leaves a Token without the token it asks for."""
    token, fixed = a_token(), a_token(refresh=False)
    yield decide(TokenObservation(token, None, None), NOW)
    yield decide(TokenObservation(token, None, written(token, issued())), NOW)
    yield decided(token, None, key=a_key(None))
    yield decided(token, None, key=a_key(b""))
    yield decided(token, written(token, issued(), deletionTimestamp="2026-11-15T12:00:00Z"))
    yield decided(token, written(token, issued(), labels={}, ownerReferences=[]))
    yield decided(token, written(token, issued(), labels={}, ownerReferences=[OWNER]))
    yield decided(token, None, rival="older")
    yield decided(fixed, written(fixed, issued(ago=HOUR)))
    yield decided(fixed, written(fixed, issued(key=OTHER_KEY)))
    yield decided(fixed, written(fixed, issued(user="bob")))
    yield decided(fixed, written(fixed, "no token"))


def sentences() -> Iterator[str]:
    seen: set[Reason] = set()
    for decision in decisions():
        if isinstance(decision, CannotIssue):
            seen.add(decision.reason)
            yield f"Ready {decision.reason}: {decision.message}"
    assert seen == {
        Reason.EXPIRED,
        Reason.KEY_INVALID,
        Reason.KEY_MISSING,
        Reason.KEY_ROTATED,
        Reason.SECRET_CONFLICT,
        Reason.SECRET_OUTDATED,
        Reason.SECRET_TERMINATING,
    }
    for spec in (
        {"lifetime": "0"},
        {"lifetime": "soon"},
        {"username": "A_B"},
        {"secretRef": {"name": "auth-jwt"}},
    ):
        yield f"Ready {Reason.INVALID_SPEC}: {complaint(a_token(**spec))}"
    yield f"Ready {Reason.ISSUED}: {available(a_token())}"
    for why in Why:
        yield f"Event TokenReissued: {reissued(a_token(), why)}"
    yield f"Event DeleteSucceeded: {moved(a_token(), 'alice-jwt-bob')}"


def test_token() -> None:
    """Each sentence is as in the golden file."""
    message_golden.compare("Token", sentences())
