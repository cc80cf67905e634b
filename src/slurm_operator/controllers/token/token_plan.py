"""What to do about a Token: a pure decision from the Token, its key, the Secret of its name, and the time.

A Secret is written for one of four reasons. It does not exist. Its token no longer matches the Token: the
signing key, the user or the lifetime has changed, four fifths of its lifetime are over, or another client has
edited it. The token is valid, but the labels, the owner or a missing `immutable` are wrong; then the same
token stays. Or `refresh` was turned on: then the immutable Secret is deleted and created with a new token.
Anything else is left as it is and reported in the condition. A missing key, a Secret that belongs to another
owner, an expired token: none of these is an error that is retried forever.

With `refresh: false` the Secret is immutable, and a token in it is never replaced. When the token is no
longer usable, the condition's message explains how to get a new one: delete the Secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.token.token_secret import (
    drifted,
    former_owners,
    is_controlled,
    is_orphan,
    present,
)
from slurm_operator.objects.token_checks import problems
from slurm_operator.slurm import web_token as jwt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm_operator.api import Token
    from slurm_operator.kube.models.kinds import Secret

# A reconcile at least this often: timers do not notice that the wall clock was set.
RECHECK: Final = timedelta(minutes=5)
_SOONEST: Final = timedelta(seconds=1)
# Slinky slurm-operator cut both ends of a life to whole seconds, each by itself.
_ROUNDING: Final = timedelta(seconds=1)

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class Why(StrEnum):
    """Why a token is issued, as the Event's message words it."""

    NEW = "there was no token"
    DAMAGED = "the Secret did not contain a valid token"
    KEY_ROTATED = "the JWT key has changed"
    USER_CHANGED = "the previous token was for another user"
    LIFETIME_CHANGED = "spec.lifetime has changed"
    FROM_THE_FUTURE = "the previous token was issued in the future, so a clock was wrong"
    DUE = "four fifths of the previous token's lifetime have passed"
    UNLOCKED = "spec.refresh was turned on"


@dataclass(frozen=True, slots=True)
class TokenObservation:
    """What there is."""

    token: Token
    key: Secret | None
    """The Secret with the signing key."""
    live: Secret | None
    """The Secret of the name that the token is written to, regardless of its owner."""
    rival: str = ""
    """The name of an older Token that wants the same Secret."""


@dataclass(frozen=True, slots=True, repr=False)
class Issue:
    """Sign a new token and write it; with `replace`, into a new Secret in place of the immutable one."""

    key: bytes
    why: Why
    replace: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Restore:
    """Write the Secret again around the token that is in it."""

    value: str
    claims: jwt.TokenClaims


@dataclass(frozen=True, slots=True)
class Keep:
    """All is well."""

    claims: jwt.TokenClaims


@dataclass(frozen=True, slots=True)
class CannotIssue:
    """Nothing can or may be done now; the condition says why."""

    reason: Reason
    message: str
    claims: jwt.TokenClaims | None = None


Decision = Issue | Restore | Keep | CannotIssue


# -------------------------------------------------------------------------------------------------- the spec
def complaint(token: Token) -> str | None:
    """Return what is wrong with the spec, by the name of the field, or None."""
    return next((f"{problem.field}: {problem.message}" for problem in problems(token)), None)


def older_rival(token: Token, others: Iterable[Token]) -> str:
    """Return the name of the oldest Token that wants the same Secret, if that is not this one."""
    rivals = [other for other in others if other.secret_name == token.secret_name and not other.deleting]
    first = min([token, *rivals], key=_seniority)
    return "" if first.metadata.uid == token.metadata.uid else first.metadata.name


def _seniority(token: Token) -> tuple[datetime, str]:
    return token.metadata.creation_timestamp or _NEVER, token.metadata.name


# ---------------------------------------------------------------------------------------------- the decision
def decide(seen: TokenObservation, now: datetime) -> Decision:
    """Decide about a Token of whose spec there is no `complaint`."""
    key = _signing_key(seen)
    if isinstance(key, CannotIssue):
        return key
    if (conflict := _conflict(seen)) is not None:
        return conflict
    if seen.live is None:
        return Issue(key, Why.NEW)
    if seen.live.deleting:
        name = seen.live.metadata.name
        return CannotIssue(
            Reason.SECRET_TERMINATING, f"Secret {name!r} is being deleted; it will be recreated"
        )
    return _about(seen.token, seen.live, key, now)


def _about(token: Token, live: Secret, key: bytes, now: datetime) -> Decision:
    """Decide about a Secret that is ours."""
    value = present(token, live)
    claims = _claims(value)
    why = next(_faults(token, value, claims, key, now), None)
    if live.immutable and token.spec.refresh:
        return Issue(key, why or Why.UNLOCKED, replace=True)
    if why is not None or claims is None:
        why = why or Why.DAMAGED
        return _locked(token, claims, why) if live.immutable else Issue(key, why)
    return Restore(value, claims) if drifted(token, live) else Keep(claims)


def _signing_key(seen: TokenObservation) -> bytes | CannotIssue:
    ref, token, live = seen.token.jwt_key, seen.token, seen.live
    claims = _claims(present(token, live)) if live is not None and is_controlled(token, live) else None
    left = "" if claims is None else f"; until then the token in Secret {token.secret_name!r} is kept"
    name, data_key = ("", "") if ref is None else (ref.name, ref.key)
    if seen.key is None:
        message = f"spec.jwtKeyRef: Secret {name!r} does not exist: create it with Slurm's jwt.key{left}"
        return CannotIssue(Reason.KEY_MISSING, message, claims)
    key = (seen.key.data or {}).get(data_key)
    if key is None:
        message = f"spec.jwtKeyRef: Secret {name!r} has no key {data_key!r}: add it{left}"
        return CannotIssue(Reason.KEY_MISSING, message, claims)
    if not key:
        message = f"spec.jwtKeyRef: {data_key!r} in Secret {name!r} is empty: put Slurm's jwt.key there{left}"
        return CannotIssue(Reason.KEY_INVALID, message, claims)
    return key


def _conflict(seen: TokenObservation) -> CannotIssue | None:
    """Say why the Secret of this name is not for us; None if it is, or if we may make it."""
    live, name = seen.live, seen.token.secret_name
    advice = "choose another name in spec.secretRef, or delete the object that is not needed"
    if live is not None and is_controlled(seen.token, live):
        return None
    if live is not None and not former_owners(live, seen.key) and not is_orphan(live):
        owner = live.controller_owner
        whose = "has no owner" if owner is None else f"belongs to {owner.kind} {owner.name!r}"
        message = f"Secret {name!r} already exists and {whose}, so this Token does not change it"
        return CannotIssue(Reason.SECRET_CONFLICT, f"{message}: {advice}")
    if seen.rival:
        return CannotIssue(
            Reason.SECRET_CONFLICT, f"Older Token {seen.rival!r} also writes to Secret {name!r}: {advice}"
        )
    return None


def _faults(
    token: Token, value: str, claims: jwt.TokenClaims | None, key: bytes, now: datetime
) -> Iterator[Why]:
    """Yield why the token in the Secret has to be replaced, the gravest first."""
    if claims is None or claims.issued_at is None or claims.expires_at is None:
        yield Why.DAMAGED
        return
    if not jwt.signed_by(value, key):
        yield Why.KEY_ROTATED
    if claims.user != token.username:
        yield Why.USER_CHANGED
    if not token.spec.refresh:
        if now >= claims.expires_at:
            yield Why.DUE
        return
    if abs(claims.expires_at - claims.issued_at - token.lifetime()) > _ROUNDING:
        yield Why.LIFETIME_CHANGED
    if claims.issued_at > now + jwt.CLOCK_SKEW:
        yield Why.FROM_THE_FUTURE
    if now >= jwt.renew_at(claims):
        yield Why.DUE


def _locked(token: Token, claims: jwt.TokenClaims | None, why: Why) -> CannotIssue:
    """Say what is wrong with a token that may never be replaced."""
    name = token.secret_name
    reason, message = {
        Why.DUE: (Reason.EXPIRED, "The token has expired"),
        Why.KEY_ROTATED: (Reason.KEY_ROTATED, "The JWT key has changed since the token was issued"),
        Why.USER_CHANGED: (
            Reason.SECRET_OUTDATED,
            f"The token in Secret {name!r} is not for user {token.username!r}",
        ),
    }.get(why, (Reason.SECRET_OUTDATED, f"Secret {name!r} has no token under {token.secret_key!r}"))
    advice = f"delete Secret {name!r} to get a new one, or set spec.refresh to have it renewed"
    return CannotIssue(reason, f"{message}, and spec.refresh is false: {advice}", claims)


def _claims(value: str) -> jwt.TokenClaims | None:
    try:
        return jwt.read(value)
    except ValueError:
        return None


# ----------------------------------------------------------------------------------------------- the messages
def reissued(token: Token, why: Why) -> str:
    """Return the note of the Event for a token that replaces another."""
    return f"Issued a new token in Secret {token.secret_name!r}: {why}"


def moved(token: Token, former: str) -> str:
    """Return the note of the Event for a Secret that this Token no longer uses."""
    return f"Deleted Secret {former!r}: the token is now in {token.secret_name!r}"


def available(token: Token) -> str:
    """Return the message of the condition of a Token whose Secret is as it should be."""
    return (
        f"Secret {token.secret_name!r} has a token for user {token.username!r} under the key "
        f"{token.secret_key!r}"
    )


# -------------------------------------------------------------------------------------------------- the time
def requeue_after(token: Token, outcome: Keep | CannotIssue, now: datetime) -> float | None:
    """Return after how many seconds the passing of time alone may have changed something, if ever."""
    if outcome.claims is None or outcome.claims.expires_at is None:
        return None
    if isinstance(outcome, CannotIssue):
        # What has expired stays so, unless it was the clock that was wrong. All else comes with an event.
        return RECHECK.total_seconds() if outcome.reason is Reason.EXPIRED else None
    at = jwt.renew_at(outcome.claims) if token.spec.refresh else outcome.claims.expires_at
    return min(max(at - now, _SOONEST), RECHECK).total_seconds()
