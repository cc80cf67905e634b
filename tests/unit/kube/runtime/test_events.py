from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from slurm_operator.kube.decide.event_series import (
    BURST,
    FINISH,
    FIRST_INTERVAL,
    LONGEST_INTERVAL,
    REFILL_SECONDS,
    Counted,
    Create,
    Drop,
    EventCorrelator,
    Occurrence,
)
from slurm_operator.kube.errors import (
    BadRequest,
    ConnectionFailed,
    CredentialsError,
    DeadlineExceeded,
    FencedError,
    Forbidden,
    KubeError,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from slurm_operator.kube.models.kinds import Node, Pod
from slurm_operator.kube.models.meta import ObjectMeta, ObjectReference
from slurm_operator.kube.models.text_limits import NOTE_BYTES, shorten
from slurm_operator.kube.runtime.events import FailedWrite, backoff, event_body, fate, reference

START = datetime(2026, 1, 1, tzinfo=UTC)
POD = ObjectReference(api_version="v1", kind="Pod", namespace="ns", name="web-0", uid="u1")


def occurrence(note: str = "note", at: float = 0.0, **changes: Any) -> Occurrence:
    values: dict[str, Any] = {
        "regarding": POD,
        "type": "Normal",
        "reason": "Reason",
        "action": "Act",
        "note": note,
        "time": START + timedelta(seconds=at),
    }
    return Occurrence(**{**values, **changes})


def posted(correlator: EventCorrelator, event: Occurrence, now: float) -> Create:
    create = correlator.offer(event, now)
    assert isinstance(create, Create)
    correlator.posted(create, now)
    return create


def test_the_first_occurrence_creates_and_repeats_only_count() -> None:
    """A repeat sends nothing at once; one patch carries all repeats of the interval."""
    correlator = EventCorrelator()
    create = posted(correlator, occurrence(), 0.0)
    assert correlator.offer(occurrence(at=1), 1.0) == Counted(first=True)
    assert correlator.offer(occurrence(at=2), 2.0) == Counted(first=False)
    assert correlator.due(FIRST_INTERVAL - 1) == []
    assert correlator.next_due() == FIRST_INTERVAL
    (patch,) = correlator.due(FIRST_INTERVAL)
    assert (patch.name, patch.count, patch.last) == (create.name, 3, START + timedelta(seconds=2))
    assert correlator.due(FIRST_INTERVAL) == []
    assert correlator.next_due() is None


@pytest.mark.parametrize(
    "change",
    [
        {"type": "Warning"},
        {"reason": "Other"},
        {"action": "Other"},
        {"note": "other"},
        {"related": POD},
        {"regarding": ObjectReference(api_version="v1", kind="Pod", namespace="ns", name="web-0", uid="u2")},
    ],
)
def test_what_differs_is_another_event(change: dict[str, Any]) -> None:
    """Only the same thing about the same object is a repeat; a recreated object is another one."""
    correlator = EventCorrelator()
    posted(correlator, occurrence(), 0.0)
    assert isinstance(correlator.offer(occurrence(**change), 1.0), Create)


def test_a_new_version_of_the_object_continues_the_series() -> None:
    """The resourceVersion of the object is no part of the identity."""
    correlator = EventCorrelator()
    posted(correlator, occurrence(), 0.0)
    later = ObjectReference(
        api_version="v1", kind="Pod", namespace="ns", name="web-0", uid="u1", resource_version="7"
    )
    assert isinstance(correlator.offer(occurrence(regarding=later), 1.0), Counted)


def test_a_series_ends_with_silence() -> None:
    """After six quiet minutes the same thing is news again, and the old series is forgotten."""
    correlator = EventCorrelator()
    first = posted(correlator, occurrence(), 0.0)
    assert isinstance(correlator.offer(occurrence(), FINISH - 1), Counted)
    correlator.due(FINISH, everything=True)
    second = correlator.offer(occurrence(at=2 * FINISH), 2 * FINISH)
    assert isinstance(second, Create)
    assert second.name != first.name
    correlator.posted(second, 2 * FINISH)
    correlator.due(4 * FINISH)
    assert len(correlator) == 0


def test_an_endless_series_is_patched_ever_more_rarely() -> None:
    """One occurrence per second for a day costs few patches, never further apart than a series lasts."""
    correlator = EventCorrelator()
    posted(correlator, occurrence(), 0.0)
    patched = [0]
    for second in range(1, 86_400):
        assert isinstance(correlator.offer(occurrence(at=second), float(second)), Counted)
        if correlator.due(float(second)):
            patched.append(second)
    gaps = [after - before for before, after in pairwise(patched)]
    assert gaps[:3] == [10, 20, 40]
    assert max(gaps) == LONGEST_INTERVAL < FINISH
    assert len(patched) < 300


def test_no_patch_before_the_event_exists() -> None:
    """Repeats of an event that is still on its way wait for it."""
    correlator = EventCorrelator()
    create = correlator.offer(occurrence(), 0.0)
    assert isinstance(create, Create)
    correlator.offer(occurrence(at=1), 1.0)
    assert correlator.due(100.0) == []
    assert correlator.next_due() is None
    correlator.posted(create, 100.0)
    assert [patch.count for patch in correlator.due(100.0 + FIRST_INTERVAL)] == [2]


def test_a_lost_event_starts_anew() -> None:
    """When the server refused the event, the next occurrence is a first one again."""
    correlator = EventCorrelator()
    create = correlator.offer(occurrence(), 0.0)
    assert isinstance(create, Create)
    correlator.lost(create)
    assert isinstance(correlator.offer(occurrence(at=1), 1.0), Create)


def test_an_event_that_expired_is_created_with_its_count() -> None:
    """A series outlives its Event: the next patch becomes a create that carries the count."""
    correlator = EventCorrelator()
    first = posted(correlator, occurrence(), 0.0)
    correlator.offer(occurrence(at=1), 1.0)
    (patch,) = correlator.due(FIRST_INTERVAL)
    again = correlator.vanished(patch)
    assert again.count == 2
    assert again.name != first.name
    correlator.posted(again, FIRST_INTERVAL)
    correlator.offer(occurrence(at=20), 20.0)
    (patch,) = correlator.due(200.0)
    assert (patch.name, patch.count) == (again.name, 3)


def test_a_patch_that_did_not_get_through_is_due_again() -> None:
    """An unsent patch is due when its sender says, not an interval later."""
    correlator = EventCorrelator()
    posted(correlator, occurrence(), 0.0)
    correlator.offer(occurrence(at=1), 1.0)
    (patch,) = correlator.due(FIRST_INTERVAL)
    correlator.unsent(patch, FIRST_INTERVAL + 5)
    assert correlator.next_due() == FIRST_INTERVAL + 5
    assert correlator.due(FIRST_INTERVAL + 4) == []
    assert [item.count for item in correlator.due(FIRST_INTERVAL + 5)] == [2]


def test_a_crowd_of_normal_events_does_not_silence_a_warning() -> None:
    """After five hundred creations of one object its first Warning, and its other news, get through."""
    correlator = EventCorrelator()
    for number in range(500):
        correlator.offer(occurrence(f"created {number}", reason="SuccessfulCreate"), number / 50)
    assert isinstance(correlator.offer(occurrence("created more", reason="SuccessfulCreate"), 10.0), Drop)
    assert isinstance(correlator.offer(occurrence(type="Warning", reason="SyncFailed"), 10.0), Create)
    assert isinstance(correlator.offer(occurrence(type="Warning", reason="SuccessfulCreate"), 10.0), Create)
    assert isinstance(correlator.offer(occurrence(reason="Other"), 10.0), Create)


def test_different_notes_about_one_object_are_limited() -> None:
    """One reason gets a burst of events and then one per five minutes; other objects are not affected."""
    correlator = EventCorrelator()
    decisions = [correlator.offer(occurrence(f"note {number}"), 0.0) for number in range(BURST + 10)]
    assert [type(item) for item in decisions] == [Create] * BURST + [Drop] * 10
    assert decisions[-1] == Drop("rate_limited")
    other = ObjectReference(kind="Pod", namespace="ns", name="web-1", uid="u9")
    assert isinstance(correlator.offer(occurrence(regarding=other), 0.0), Create)
    assert isinstance(correlator.offer(occurrence("later"), REFILL_SECONDS), Create)
    assert isinstance(correlator.offer(occurrence("later still"), REFILL_SECONDS), Drop)


def test_memory_is_bounded() -> None:
    """However many objects have events, only so many are remembered."""
    correlator = EventCorrelator(max_tracked=10)
    for number in range(100):
        regarding = ObjectReference(kind="Pod", namespace="ns", name=f"p{number}", uid=str(number))
        posted(correlator, occurrence(regarding=regarding), float(number))
    assert len(correlator) == 10
    assert len(correlator._buckets) == 10


def test_names_are_unique_and_valid() -> None:
    """Events at the same microsecond about objects with long names have different names that fit."""
    correlator = EventCorrelator(burst=500)
    long = ObjectReference(kind="Pod", namespace="ns", name="x" * 253, uid="u")
    names = set()
    for number in range(500):
        create = correlator.offer(occurrence(str(number), regarding=long), 0.0)
        assert isinstance(create, Create)
        names.add(create.name)
    assert len(names) == 500
    assert all(len(name) <= 253 for name in names)


@pytest.mark.parametrize(
    "name", [f"{'x' * length}{mark}y{'x' * 60}" for length in range(225, 253) for mark in "-."]
)
def test_a_cut_name_is_a_valid_one(name: str) -> None:
    """Wherever a long name is cut, what stands before the suffix ends with a letter or digit."""
    create = EventCorrelator().offer(occurrence(regarding=ObjectReference(name=name[:253])), 0.0)
    assert isinstance(create, Create)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", create.name)
    assert len(create.name) <= 253


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 5000, "\U0001f600" * 5000, "x" * 1023 + "é"])
def test_a_long_note_is_cut_at_a_character(text: str) -> None:
    """A note never exceeds the limit in bytes, stays readable, and shows that it was cut."""
    cut = shorten(text)
    assert len(cut.encode()) <= NOTE_BYTES
    assert cut.endswith("…")
    assert text.startswith(cut[:-1])
    assert len(cut.encode()) > NOTE_BYTES - 8


def test_a_short_note_is_left_alone() -> None:
    """A note at the limit is not touched."""
    assert shorten("x" * NOTE_BYTES) == "x" * NOTE_BYTES


def test_the_event_of_a_cluster_scoped_object_lives_in_default() -> None:
    """Events about Nodes go to the default namespace, as the API demands."""
    node = Node(metadata=ObjectMeta(name="n1", uid="u"))
    create = Create("n1.1", occurrence(regarding=reference(node)))
    body = event_body(create, "slurm-operator", "host")
    assert body["metadata"]["namespace"] == "default"
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}


def test_body_holds_everything_the_api_demands() -> None:
    """An event names its reporter, its time to the microsecond, and a series only when there is one."""
    pod = Pod(metadata=ObjectMeta(name="web-0", namespace="ns", uid="u"))
    event = occurrence(related=reference(pod))
    body = event_body(Create("web-0.1", event), "slurm-operator", "host")
    assert body["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert (body["reportingController"], body["reportingInstance"]) == ("slurm-operator", "host")
    assert body["related"]["name"] == "web-0"
    assert "series" not in body
    again = event_body(Create("web-0.2", event, count=5), "slurm-operator", "host")
    assert again["series"] == {"count": 5, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionFailed("cut"), FailedWrite.STOP),
        (DeadlineExceeded("late"), FailedWrite.STOP),
        (CredentialsError("no token file"), FailedWrite.STOP),
        (TooManyRequests("later", status=429), FailedWrite.STOP),
        (Unauthorized("who", status=401), FailedWrite.STOP),
        (ServerError("webhook", status=500), FailedWrite.LATER),
        (ServerError("unavailable", status=503), FailedWrite.LATER),
        (Forbidden("no", status=403), FailedWrite.REFUSED),
        (BadRequest("what", status=400), FailedWrite.REFUSED),
        (FencedError("lease"), FailedWrite.REFUSED),
    ],
)
def test_what_a_failure_means(error: KubeError, expected: FailedWrite) -> None:
    """Only what concerns every event stops the sending, and an event is given up by its own count."""
    assert fate(error) is expected
    assert fate(error, 11) is expected
    assert fate(error, 12) is (
        FailedWrite.REFUSED if expected is FailedWrite.REFUSED else FailedWrite.EXHAUSTED
    )


def test_pauses_grow_and_stay_bounded() -> None:
    """However often it failed, the pause is finite and at most half a minute."""
    assert [backoff(failures) for failures in (1, 2, 3, 4, 5, 5000)] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


class EventStorm(RuleBasedStateMachine):
    """Any mixture of occurrences, lost writes and time: counts are never wrong and requests stay few."""

    def __init__(self) -> None:
        super().__init__()
        self.correlator = EventCorrelator()
        self.now = 0.0
        self.queue: list[Create] = []
        # What a perfect server would show: count per Event name, and what was really sent.
        self.true: dict[str, int] = {}
        self.shown: dict[str, int] = {}
        self.current: dict[str, str] = {}

    @rule(note=st.sampled_from(["a", "b"]), times=st.integers(1, 20))
    def happen(self, note: str, times: int) -> None:
        for _ in range(times):
            decision = self.correlator.offer(occurrence(note, self.now), self.now)
            if isinstance(decision, Create):
                self.queue.append(decision)
                self.current[note] = decision.name
                self.true[decision.name] = 1
            elif isinstance(decision, Counted):
                self.true[self.current[note]] += 1

    @rule(refused=st.booleans())
    def create_next(self, refused: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        if not self.queue:
            return
        create = self.queue.pop(0)
        if refused:
            self.correlator.lost(create)
            self.true.pop(create.name)
        else:
            self.shown[create.name] = create.count
            self.correlator.posted(create, self.now)

    @rule(seconds=st.sampled_from([1.0, 15.0, 100.0, 400.0]), lost=st.booleans())
    def wait(self, seconds: float, lost: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        self.now += seconds
        for patch in self.correlator.due(self.now):
            if lost:
                self.correlator.unsent(patch, self.now)
            else:
                assert patch.count > self.shown[patch.name]
                self.shown[patch.name] = patch.count

    @rule()
    def flush(self) -> None:
        while self.queue:
            self.create_next(refused=False)
        for patch in self.correlator.due(self.now, everything=True):
            self.shown[patch.name] = patch.count
        assert self.shown.items() >= self.true.items()

    @invariant()
    def never_shows_too_much(self) -> None:
        assert all(count <= self.true.get(name, count) for name, count in self.shown.items())


TestEventStorm = EventStorm.TestCase
