"""The spec of a Token and the time: what cannot work, and when to requeue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.token.token_plan import (
    RECHECK,
    CannotIssue,
    Keep,
    Why,
    complaint,
    requeue_after,
)
from slurm_operator.slurm.web_token import mint, read
from tests.support.controllers.token_cases import (
    HOUR,
    KEY,
    NOW,
    a_token,
    cannot_issue,
    decided,
    issued,
    why,
    written,
)

# --- the spec


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"jwtKeyRef": {"name": "", "key": "k"}}, "spec.jwtKeyRef"),
        ({"jwtKeyRef": {"name": "n", "key": ""}}, "spec.jwtKeyRef"),
        ({"jwtKeyRef": None}, "spec.jwtKeyRef"),
        ({"lifetime": "0"}, "spec.lifetime"),
        ({"lifetime": "-5m"}, "spec.lifetime"),
        ({"lifetime": "soon"}, "spec.lifetime"),
        ({"username": "Alice_B"}, "spec.secretRef.name: 'alice-jwt-Alice_B'"),
        ({"username": ""}, "spec.secretRef.name"),
        ({"secretRef": {"name": "Bad", "key": "k"}}, "spec.secretRef.name: 'Bad'"),
        ({"secretRef": {"name": "n" * 254, "key": "k"}}, "spec.secretRef.name"),
        ({"secretRef": {"name": "n", "key": "a/b"}}, "spec.secretRef.key"),
        (
            {"secretRef": {"name": "auth-jwt", "key": "jwt.key"}},
            "spec.secretRef.name: 'auth-jwt'",
        ),
    ],
)
def test_what_is_wrong_with_a_spec(spec: dict[str, Any], field: str) -> None:
    """A spec that cannot work is told by its field, before anything is read or written."""
    found = complaint(a_token(**spec))
    assert found is not None
    assert found.startswith(field)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"lifetime": ""},
        {"lifetime": "1us"},
        {"lifetime": "2540400h"},
        {"username": "Alice_B", "secretRef": {"name": "alice", "key": ""}},
        {"jwtKeyRef": None, "jwtHs256KeyRef": {"name": "n", "key": "k"}},
    ],
)
def test_what_is_right_with_a_spec(spec: dict[str, Any]) -> None:
    """The shortest and the longest lifetime, and any user with a Secret of its own name, are fine."""
    assert complaint(a_token(**spec)) is None


# --- the time


@pytest.mark.parametrize(
    ("lifetime", "ago", "refresh", "expected"),
    [
        ("10m", 5, True, 180.0),
        ("10m", 5, False, RECHECK.total_seconds()),
        ("10m", 8, False, 120.0),
        ("10m", 7.999, True, 1.0),
        ("1000h", 0, True, RECHECK.total_seconds()),
        ("1s", 0, True, 1.0),
    ],
)
def test_when_to_requeue(lifetime: str, ago: float, refresh: bool, expected: float) -> None:  # noqa: FBT001 - a row
    """The next reconcile comes when the token is due or expires, in a second at the soonest, and not later
    than a clock that was set may wait."""
    token = a_token(lifetime=lifetime, refresh=refresh)
    claims = read(issued(life=token.lifetime(), ago=timedelta(minutes=ago)))
    assert requeue_after(token, Keep(claims), NOW) == pytest.approx(expected, abs=0.5)


def test_when_nothing_will_change() -> None:
    """Only an expiry is checked again, for a wrong clock; all else waits for an event, not for time."""
    token, claims = a_token(refresh=False), read(issued(ago=2 * HOUR))
    assert requeue_after(token, CannotIssue(Reason.KEY_MISSING, "", claims), NOW) is None
    assert requeue_after(token, CannotIssue(Reason.SECRET_CONFLICT, ""), NOW) is None
    assert requeue_after(token, CannotIssue(Reason.EXPIRED, "", claims), NOW) == RECHECK.total_seconds()


@given(
    life=st.integers(min_value=1, max_value=2**31 - 2),
    elapsed=st.floats(min_value=0, max_value=2.0**31),
    refresh=st.booleans(),
)
def test_no_token_is_forgotten(life: int, elapsed: float, refresh: bool) -> None:  # noqa: FBT001 - Hypothesis'
    """Whatever the lifetime and the moment: a token is issued when it is due, or reconciled before it is."""
    token = a_token(lifetime=f"{life}s", refresh=refresh)
    value = mint(KEY, "alice", timedelta(seconds=life), NOW)
    now = NOW + timedelta(seconds=elapsed)
    decision = decided(token, written(token, value), now=now)
    if refresh and elapsed >= life * 0.8:
        assert why(decision) is Why.DUE
    elif not refresh and elapsed >= life:
        assert cannot_issue(decision) is Reason.EXPIRED
    else:
        assert isinstance(decision, Keep)
        after = requeue_after(token, decision, now)
        assert after is not None
        assert after <= max(1.0, (life * 0.8 if refresh else life) - elapsed + 0.001)
