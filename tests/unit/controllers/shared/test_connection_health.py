from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_operator.api.shared import Condition
from slurm_operator.controllers.shared.connection_health import (
    ConnectionHealth,
    ConnectionProblem,
    Observed,
    RecheckAfter,
    assess,
    health_changed,
    sentence,
    transition,
)
from slurm_operator.slurm import errors
from slurm_operator.slurm.model.view import EMPTY, ClusterView, NodeDelta, ViewUpdate

URL = "http://rest:6820"
NOW = 100.0
DOWN = errors.ControllerDown("502")
REFUSED = errors.TokenRefused("511")

NOTHING = EMPTY
GOOD = replace(EMPTY, listed_at=95.0)
BROKEN = replace(GOOD, failure=DOWN)
NEVER = replace(EMPTY, failure=DOWN)
DOUBTED = replace(GOOD, suspicion="shows 1 nodes, and 9 that were there are missing")

READY = Condition(type="Ready", status="True", reason="Connected")
NOT = Condition(type="Ready", status="False", reason="SlurmctldDown")
MISSING = Condition(type="Ready", status="False", reason="RestApiNotFound")
UNKNOWN = Condition(type="Ready", status="Unknown", reason="JwtSecretUnreadable")
SUSPICIOUS = Condition(type="Ready", status="True", reason="ListSuspicious")


def seen(
    view: ClusterView,
    *,
    since: float = 0.0,
    failing_since: float | None = None,
    suspicious_since: float | None = None,
) -> Observed:
    return Observed(URL, view, since, failing_since, suspicious_since)


@pytest.mark.parametrize(
    ("observed", "previous", "expected"),
    [
        (seen(GOOD), None, (True, "Connected")),
        (seen(GOOD), NOT, (True, "Connected")),
        (seen(NOTHING, since=99.0), None, (None, "Connecting")),
        (seen(NOTHING, since=99.0), MISSING, (None, "Connecting")),
        (seen(NOTHING, since=99.0), UNKNOWN, (None, "Connecting")),
        (seen(NOTHING, since=99.0), NOT, 9.0),
        (seen(NOTHING, since=90.0), NOT, (None, "Connecting")),
        (seen(NOTHING, since=99.0), READY, 9.0),
        (seen(NOTHING, since=90.0), READY, (None, "Connecting")),
        (seen(BROKEN, failing_since=98.0), READY, 3.0),
        (seen(BROKEN, failing_since=None), READY, 5.0),
        (seen(BROKEN, failing_since=95.0), READY, (False, "SlurmctldDown")),
        (seen(BROKEN, failing_since=98.0), NOT, (False, "SlurmctldDown")),
        (seen(BROKEN, failing_since=98.0), None, (False, "SlurmctldDown")),
        (seen(NEVER, since=98.0, failing_since=99.9), READY, 3.0),
        (seen(NEVER, since=98.0, failing_since=99.9), NOT, (False, "SlurmctldDown")),
        (seen(NEVER, since=98.0, failing_since=99.9), None, (False, "SlurmctldDown")),
        (seen(NEVER, since=95.0, failing_since=99.9), READY, (False, "SlurmctldDown")),
        (seen(replace(NEVER, failure=REFUSED)), None, (False, "TokenRefused")),
        (
            seen(replace(NEVER, failure=errors.CircuitOpen("open", retry_after=3.0))),
            None,
            (False, "SlurmrestdUnreachable"),
        ),
        (seen(DOUBTED, suspicious_since=90.0), READY, 5.0),
        (seen(DOUBTED, suspicious_since=None), READY, 15.0),
        (seen(DOUBTED, suspicious_since=85.0), READY, (True, "ListSuspicious")),
        (seen(DOUBTED, suspicious_since=99.0), SUSPICIOUS, (True, "ListSuspicious")),
        (seen(DOUBTED, suspicious_since=99.0), NOT, (True, "ListSuspicious")),
        (seen(GOOD), SUSPICIOUS, (True, "Connected")),
        (seen(replace(DOUBTED, failure=DOWN), failing_since=98.0), SUSPICIOUS, 3.0),
    ],
)
def test_what_a_connection_is_said_to_be(
    observed: Observed, previous: Condition | None, expected: tuple[bool | None, str] | float
) -> None:
    """Good is said at once; bad when it lasts, or was never good; a new connection waits for its answer."""
    found = assess(observed, previous, NOW, grace=5.0)
    if isinstance(found, RecheckAfter):
        assert found.seconds == pytest.approx(expected)
    else:
        assert (found.ready, found.reason) == expected
        assert URL in found.message


KINDS: list[type[errors.SlurmError]] = [
    *(errors.RestUnreachable, errors.ControllerDown, errors.TokenRefused, errors.BadReply),
    *(errors.NoCommonVersion, errors.Refused, errors.Overloaded, errors.ReplyTooLarge),
]


def test_a_reply_beyond_a_limit_names_the_limit() -> None:
    """The condition says which limit it was, for it is what has to be compared with the cluster."""
    failure = errors.ReplyTooLarge("list nodes", "it lists more than 65536 nodes")
    found = assess(Observed(URL, ClusterView(failure=failure), since=0.0), None, now=100.0)
    assert isinstance(found, ConnectionHealth)
    assert found.reason == "ReplyTooLarge"
    assert found.message.endswith("it lists more than 65536 nodes")


def test_each_failure_has_a_sentence_of_its_own() -> None:
    """No two kinds of failure are described by the same words, and each says where."""
    sentences = {sentence(kind.kind, URL) for kind in KINDS}
    assert len(sentences) == len(KINDS)
    assert all(URL in one for one in sentences)
    assert URL in sentence("SomethingNew", URL)


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_of_the_day_are_not_repeated(kind: type[errors.SlurmError]) -> None:
    """Two failures of one kind give the same message, whatever times and numbers their own texts have."""
    first, second = (
        assess(seen(replace(GOOD, failure=kind(text))), NOT, NOW) for text in ("after 10.2 s", "after 3.1 s")
    )
    assert first == second
    assert isinstance(first, ConnectionHealth)


def test_the_nodes_of_the_day_are_not_named() -> None:
    """A list that is doubted gives the same message whatever it lacks, so each list is no write."""
    first, second = (
        assess(seen(replace(DOUBTED, suspicion=text)), NOT, NOW) for text in ("3 of 9", "4 of 9")
    )
    assert first == second
    assert isinstance(first, ConnectionHealth)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (NOTHING, GOOD, True),
        (NOTHING, NEVER, True),
        (GOOD, BROKEN, True),
        (BROKEN, GOOD, True),
        (BROKEN, replace(BROKEN, failure=REFUSED), True),
        (GOOD, replace(GOOD, listed_at=99.0), False),
        (BROKEN, replace(BROKEN, failure=errors.ControllerDown("504")), False),
        (GOOD, DOUBTED, True),
        (DOUBTED, GOOD, True),
        (DOUBTED, replace(DOUBTED, suspicion="half of it"), False),
    ],
)
def test_only_health_moves_a_condition(before: ClusterView, after: ClusterView, changed: bool) -> None:  # noqa: FBT001 - a column
    """Nodes that change, ages and texts wake no controller; a failure that begins, ends or changes does."""
    changes = (NodeDelta("n", None, None),)
    assert health_changed(ViewUpdate(after, before, changes)) is changed


WRONG = Condition(type="Ready", status="False", reason=errors.WrongCluster.kind)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (None, READY, "SlurmApiConnected"),
        (NOT, READY, "SlurmApiConnected"),
        (READY, READY, None),
        (READY, NOT, "SlurmApiLost"),
        (None, NOT, None),
        (NOT, Condition(type="Ready", status="False", reason="BadReply"), None),
        (NOT, Condition(type="Ready", status="False", reason="TokenRefused"), "SlurmTokenRefused"),
        (None, Condition(type="Ready", status="False", reason="TokenRefused"), "SlurmTokenRefused"),
        (READY, Condition(type="Ready", status="False", reason="RestApiNotFound"), "SlurmApiLost"),
        (READY, Condition(type="Ready", status="Unknown", reason="Connecting"), None),
        (READY, WRONG, "SlurmClusterNameMismatch"),
        (READY, SUSPICIOUS, "SlurmListSuspicious"),
        (NOT, SUSPICIOUS, "SlurmListSuspicious"),
        (SUSPICIOUS, SUSPICIOUS, None),
        (SUSPICIOUS, READY, None),
        (SUSPICIOUS, NOT, "SlurmApiLost"),
    ],
)
def test_an_event_for_each_transition_that_matters(
    old: Condition | None, new: Condition, reason: str | None
) -> None:
    """Connected, lost, refused and doubted are events; what stays bad, or is not known yet, is none."""
    found = transition(old, new)
    assert (found and found.reason) == reason
    if found is not None:
        assert found.type == ("Normal" if new == READY else "Warning")


def test_a_problem_is_not_ready() -> None:
    """What keeps a connection from being made is said like what breaks one."""
    assert ConnectionProblem("Missing", "it").health == ConnectionHealth(
        ready=False, reason="Missing", message="it"
    )
