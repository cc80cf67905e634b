"""What a view answers about a node, and what two views differ in."""

from __future__ import annotations

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.decide.node_list_trust import Evidence
from slurm_operator.slurm.model.view import (
    EMPTY,
    Absent,
    Answer,
    AnswerReason,
    Known,
    NodeDelta,
    Unknown,
    deltas,
)
from tests.support.slurm.views import NOW, job, jobs, node, view


def why(answer: Answer) -> AnswerReason:
    assert isinstance(answer, Unknown)
    assert answer.message
    return answer.reason


def test_a_listed_node_is_known_as_of_the_request() -> None:
    """A node of a fresh list is known, with the moment at which that list was asked for."""
    listed = node("n1", "MIXED")
    assert view(listed, listed_at=995.0).node("n1", NOW) == Known(listed, 995.0)


def test_without_a_list_nothing_is_known() -> None:
    """Before the first list every node is unknown, and after a failure the reason is that failure."""
    assert why(EMPTY.node("n1", NOW)) is AnswerReason.NO_VIEW
    failed = view(listed_at=None, failure=errors.RestUnreachable("refused"))
    assert why(failed.node("n1", NOW)) is AnswerReason.SLURM_UNREACHABLE


def test_a_view_ages() -> None:
    """A node is known until the list is older than it may be, and not a moment longer."""
    fresh = view(node("n1"), listed_at=NOW, stale_after=30.0)
    assert isinstance(fresh.node("n1", NOW + 30.0), Known)
    assert why(fresh.node("n1", NOW + 30.1)) is AnswerReason.VIEW_STALE
    assert why(fresh.node("gone", NOW + 30.1)) is AnswerReason.VIEW_STALE


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (errors.RestUnreachable("x"), AnswerReason.SLURM_UNREACHABLE),
        (errors.CircuitOpen("x", retry_after=1.0), AnswerReason.SLURM_UNREACHABLE),
        (errors.ControllerDown("x"), AnswerReason.SLURMCTLD_DOWN),
        (errors.TokenRefused("x"), AnswerReason.TOKEN_REFUSED),
        (errors.Refused("x"), AnswerReason.SLURM_REFUSED),
        (errors.BadReply("x"), AnswerReason.REPLY_UNREADABLE),
        (errors.NoCommonVersion("x"), AnswerReason.REPLY_UNREADABLE),
    ],
)
def test_a_stale_view_says_what_is_wrong(failure: errors.SlurmError, reason: AnswerReason) -> None:
    """While it is fresh a view answers through failures; when it is stale the failure is the reason."""
    failing = view(node("n1"), failure=failure)
    assert isinstance(failing.node("n1", NOW), Known)
    assert why(failing.node("n1", NOW + 60)) is reason


def test_a_suspicious_list_says_nothing() -> None:
    """While a list is doubted nothing is known about any node, listed or not."""
    doubted = view(node("n1"), suspicion="half of it is gone")
    assert doubted.node("n1", NOW) == Unknown(AnswerReason.LIST_SUSPICIOUS, "half of it is gone")
    assert why(doubted.node("other", NOW)) is AnswerReason.LIST_SUSPICIOUS


def test_only_what_was_asked_afterwards_counts() -> None:
    """With `newer_than`, a list that was asked for before that moment, or at it, says nothing."""
    seen = view(node("n1"), listed_at=990.0)
    assert why(seen.node("n1", NOW, newer_than=990.0)) is AnswerReason.VIEW_PENDING
    assert why(seen.node("gone", NOW, newer_than=995.0)) is AnswerReason.VIEW_PENDING
    assert isinstance(seen.node("n1", NOW, newer_than=989.9), Known)


def test_absence_comes_with_its_evidence() -> None:
    """Absent says how many lists in a row agree and since when, for a lost name and for one never seen."""
    seen = view(others=Evidence(7, 900.0), absent={"lost": Evidence(4, 950.0)})
    assert seen.node("lost", NOW) == Absent(999.0, 4, 950.0)
    assert seen.node("never", NOW) == Absent(999.0, 7, 900.0)


def test_a_missing_name_is_unknown_until_confirmed() -> None:
    """A name that a list leaves out is not absent while that is in doubt or nothing is proven yet."""
    in_doubt = view(others=Evidence(7, 900.0), doubts={"lost": Evidence(2, 990.0)})
    assert why(in_doubt.node("lost", NOW)) is AnswerReason.NODE_MISSING
    young = view(others=Evidence(1, 990.0), complete=False)
    assert why(young.node("never", NOW)) is AnswerReason.NODE_MISSING


def test_a_slurmctld_that_just_started_proves_no_absence() -> None:
    """Shortly after slurmctld's start, or when it does not say how long it runs, a missing name says so."""
    for fields in ({"just_started": True}, {"up_since": None}):
        young = view(complete=False, **fields)
        assert why(young.node("n1", NOW)) is AnswerReason.CONTROLLER_JUST_STARTED


def test_uptime_and_age() -> None:
    """The uptime is a lower bound that grows with time, unless nobody knows; what was never seen is old."""
    seen = view(up_since=400.0, listed_at=990.0)
    assert (seen.uptime(NOW), seen.age(NOW)) == (600.0, 10.0)
    assert (EMPTY.uptime(NOW), EMPTY.age(NOW)) == (None, float("inf"))


def test_deltas_of_nodes() -> None:
    """Nodes that came, changed or went are told with both records; those that stayed are not."""
    same, before, after = node("same"), node("n1", "MIXED"), node("n1", "IDLE")
    gone, came = node("gone"), node("came")
    assert set(deltas(view(same, before, gone), view(node("same"), after, came))) == {
        NodeDelta("n1", before, after),
        NodeDelta("gone", gone, None),
        NodeDelta("came", None, came),
    }


def test_deltas_of_confirmed_absence() -> None:
    """A node whose absence is confirmed is told once more, with what was last known of it."""
    last = node("n1")
    doubted = view(doubts={"n1": Evidence(1, 990.0, last)})
    confirmed = view(absent={"n1": Evidence(3, 990.0, last)})
    assert deltas(view(last), doubted) == (NodeDelta("n1", last, None),)
    assert deltas(doubted, confirmed) == (NodeDelta("n1", last, None),)
    assert deltas(confirmed, confirmed) == ()


def test_deltas_of_jobs() -> None:
    """A node is told when the jobs on it change, although its own record does not."""
    busy, other = node("n1", "MIXED"), node("n2")
    idle = view(busy, other)
    held = view(busy, other, jobs=jobs(job(7, "n1")))
    assert deltas(idle, held) == (NodeDelta("n1", busy, busy),)
    assert deltas(held, view(busy, other, jobs=jobs(job(7, "n1")))) == ()
    assert deltas(held, idle) == (NodeDelta("n1", busy, busy),)
