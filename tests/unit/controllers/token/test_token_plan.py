"""What is decided about a Token, for everything that can be found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from slurm_operator.api.reasons import Reason
from slurm_operator.api.wellknown import LABEL_TOKEN_SECRET
from slurm_operator.controllers.token.token_plan import (
    CannotIssue,
    Issue,
    Keep,
    Restore,
    TokenObservation,
    Why,
    decide,
)
from slurm_operator.controllers.token.token_secret import desired
from slurm_operator.objects.labels import recommended
from slurm_operator.slurm.web_token import read
from tests.support.controllers.token_cases import (
    HOUR,
    KEY,
    NOW,
    OTHER_KEY,
    a_key,
    a_token,
    cannot_issue,
    decided,
    issued,
    why,
    written,
)

# --- issue, restore, keep


def test_no_secret_yet() -> None:
    """Without a Secret a token is issued, signed with the key."""
    decision = decided(a_token(), None)
    assert why(decision) is Why.NEW
    assert isinstance(decision, Issue)
    assert decision.key == KEY


def test_at_rest() -> None:
    """What was written is kept."""
    token, value = a_token(), issued()
    assert decided(token, written(token, value)) == Keep(read(value))


@pytest.mark.parametrize(("minutes", "due"), [(0, False), (47.9, False), (48, True), (59, True), (600, True)])
def test_age(minutes: float, due: bool) -> None:  # noqa: FBT001 - a row of the table
    """A token is kept for four fifths of its life, and then renewed, also long after it expired."""
    token = a_token()
    decision = decided(token, written(token, issued(ago=timedelta(minutes=minutes))))
    if due:
        assert why(decision) is Why.DUE
    else:
        assert isinstance(decision, Keep)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (issued(key=OTHER_KEY), Why.KEY_ROTATED),
        (issued(key=OTHER_KEY, ago=2 * HOUR), Why.KEY_ROTATED),
        (issued(user="bob"), Why.USER_CHANGED),
        (issued(life=HOUR / 2), Why.LIFETIME_CHANGED),
        (issued(life=HOUR * 2), Why.LIFETIME_CHANGED),
        (issued(ago=-timedelta(minutes=2)), Why.FROM_THE_FUTURE),
        ("", Why.DAMAGED),
        ("edited by hand", Why.DAMAGED),
        (f"{issued().rpartition('.')[0]}.{issued().rpartition('.')[2]}", Why.KEY_ROTATED),
    ],
)
def test_what_is_replaced(value: str, expected: Why) -> None:
    """A token that is not what the Token asks for is replaced at once."""
    token = a_token()
    assert why(decided(token, written(token, value))) is expected


def test_a_clock_a_little_ahead() -> None:
    """A token that another replica issued with a clock some seconds ahead is kept."""
    token = a_token()
    assert isinstance(decided(token, written(token, issued(ago=-timedelta(seconds=30)))), Keep)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_life_cut_to_seconds(off: int) -> None:
    """A token of Slinky slurm-operator, whose life may be a second off, is not replaced for that."""
    token = a_token()
    value = issued(life=HOUR + timedelta(seconds=off))
    assert isinstance(decided(token, written(token, value)), Keep)


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {}},
        {"labels": {LABEL_TOKEN_SECRET: "true", "stale": "1"}},
        {"annotations": {"stale": "1"}},
        {"ownerReferences": []},
    ],
)
def test_drift(changes: dict[str, Any]) -> None:
    """What a user changed around a good token is put right, and the token stays the same."""
    token, value = a_token(), issued()
    decision = decided(token, written(token, value, **changes))
    assert isinstance(decision, Restore)
    assert (decision.value, decision.claims) == (value, read(value))


def test_more_in_the_secret() -> None:
    """Another key in the Secret is a reason to apply, which leaves it there if another manager owns it."""
    token, value = a_token(), issued()
    live = written(token, value)
    crowded = msgspec.structs.replace(live, data={**(live.data or {}), "more": b"1"})
    assert isinstance(decided(token, crowded), Restore)


def test_labels_of_the_token_are_copied() -> None:
    """A change of the Token's own labels or annotations reaches the Secret, without a new token."""
    value = issued()
    before = a_token(meta={"labels": {"team": "a"}, "annotations": {"note": "1"}})
    after = a_token(meta={"labels": {"team": "b"}, "annotations": {"note": "1"}})
    assert isinstance(decided(before, written(before, value)), Keep)
    assert isinstance(decided(after, written(before, value)), Restore)


# --- refresh: false


def test_locked() -> None:
    """An immutable Secret with a good token is kept to the last second."""
    token = a_token(refresh=False)
    assert isinstance(decided(token, written(token, issued(ago=timedelta(seconds=3599)))), Keep)


@pytest.mark.parametrize(
    ("value", "reason", "named"),
    [
        (issued(ago=HOUR), Reason.EXPIRED, "spec.refresh"),
        (issued(key=OTHER_KEY), Reason.KEY_ROTATED, "JWT key"),
        (issued(user="bob"), Reason.SECRET_OUTDATED, "user 'alice'"),
        ("no token", Reason.SECRET_OUTDATED, "'SLURM_JWT'"),
    ],
)
def test_locked_and_of_no_use(value: str, reason: Reason, named: str) -> None:
    """What cannot be replaced is a condition that says what is wrong and how to get a new token."""
    token = a_token(refresh=False)
    decision = decided(token, written(token, value))
    assert cannot_issue(decision) is reason
    assert isinstance(decision, CannotIssue)
    assert named in decision.message
    assert "delete Secret 'alice-jwt-alice'" in decision.message


def test_locked_with_another_lifetime() -> None:
    """A lifetime that was changed later does not touch a token that is never replaced."""
    token = a_token(refresh=False, lifetime="12h")
    assert isinstance(decided(token, written(token, issued())), Keep)


def test_refresh_is_turned_off() -> None:
    """The token of the moment stays, and its Secret becomes immutable."""
    decision = decided(a_token(refresh=False), written(a_token(), issued()))
    assert isinstance(decision, Restore)
    assert desired(a_token(refresh=False), decision.value)["immutable"] is True


def test_refresh_is_turned_off_too_late() -> None:
    """A token that expired in a Secret that can still be written is replaced one last time."""
    live = written(a_token(), issued(ago=2 * HOUR))
    assert why(decided(a_token(refresh=False), live)) is Why.DUE


def test_refresh_is_turned_on() -> None:
    """An immutable Secret cannot be unlocked, so it is replaced by another one."""
    live = written(a_token(refresh=False), issued())
    decision = decided(a_token(), live)
    assert isinstance(decision, Issue)
    assert (decision.why, decision.replace) == (Why.UNLOCKED, True)


def test_locked_metadata() -> None:
    """What is missing around a locked token is added; what is more than wanted stays."""
    token, value = a_token(refresh=False), issued()
    less = written(token, value, labels={})
    more = written(token, value, labels=recommended({LABEL_TOKEN_SECRET: "true", "more": "1"}))
    assert isinstance(decided(token, less), Restore)
    assert isinstance(decided(token, more), Keep)


# --- the key


def test_no_key_yet() -> None:
    """Without its Secret or key nothing is issued, and the condition names the field and the Secret."""
    seen = TokenObservation(a_token(), None, None)
    decision = decide(seen, NOW)
    assert cannot_issue(decision) is Reason.KEY_MISSING
    assert isinstance(decision, CannotIssue)
    assert decision.message.startswith("spec.jwtKeyRef: Secret 'auth-jwt' ")
    assert cannot_issue(decided(a_token(), None, key=a_key(None))) is Reason.KEY_MISSING
    assert cannot_issue(decided(a_token(), None, key=a_key(b""))) is Reason.KEY_INVALID


def test_the_key_is_lost() -> None:
    """A Secret that is there keeps its token when the key goes, and the status goes on showing its times."""
    token, value = a_token(), issued(ago=HOUR)
    decision = decide(TokenObservation(token, None, written(token, value)), NOW)
    assert cannot_issue(decision) is Reason.KEY_MISSING
    assert isinstance(decision, CannotIssue)
    assert decision.claims == read(value)
    assert f"Secret {token.secret_name!r}" in decision.message
