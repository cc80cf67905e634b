from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slurm_operator.kube.decide.expectations import (
    EXPIRY,
    UNKNOWN_EXPIRY,
    Expectations,
    Pending,
    generated_name,
)

KEY = "ns/set"


class Seen(NamedTuple):
    """One watch event."""

    added: bool
    name: str
    uid: str


def raised(*, names: tuple[str, ...] = (), uids: tuple[str, ...] = ()) -> Expectations[str]:
    expectations: Expectations[str] = Expectations()
    expectations.expect_creations(KEY, names, 0.0)
    expectations.expect_deletions(KEY, uids, 0.0)
    return expectations


def test_nothing_expected_is_satisfied() -> None:
    """A key without open writes never waits."""
    assert Expectations[str]().satisfied(KEY, 0.0)


def test_waits_for_every_creation_and_deletion() -> None:
    """A key waits until each name has appeared and each UID has gone."""
    expectations = raised(names=("a", "b"), uids=("u1",))
    assert expectations.pending(KEY) == Pending(("a", "b"), ("u1",))
    expectations.creation_observed(KEY, "a", "ua")
    assert not expectations.satisfied(KEY, 1.0)
    expectations.deletion_observed(KEY, "u1")
    assert not expectations.satisfied(KEY, 1.0)
    expectations.creation_observed(KEY, "b", "ub")
    assert expectations.satisfied(KEY, 1.0)
    assert len(expectations) == 0


def test_seeing_one_object_twice_does_not_stand_for_another() -> None:
    """A duplicated event lowers only its own expectation."""
    expectations = raised(names=("a", "b"))
    expectations.creation_observed(KEY, "a", "ua")
    expectations.creation_observed(KEY, "a", "ua")
    assert not expectations.satisfied(KEY, 1.0)


def test_an_older_object_of_the_same_name_does_not_count() -> None:
    """Once the UID is known, only that object satisfies, whenever its event came."""
    expectations = raised(names=("a",))
    expectations.creation_observed(KEY, "a", "old")
    expectations.created(KEY, "a", "new")
    assert not expectations.satisfied(KEY, 1.0)
    expectations.creation_observed(KEY, "a", "new")
    assert expectations.satisfied(KEY, 1.0)


def test_the_event_may_arrive_before_the_answer() -> None:
    """An event that overtakes the answer to its own create counts."""
    expectations = raised(names=("a",))
    expectations.creation_observed(KEY, "a", "ua")
    expectations.created(KEY, "a", "ua")
    assert expectations.satisfied(KEY, 1.0)


def test_a_failed_write_is_not_waited_for() -> None:
    """Withdrawn expectations leave the others open."""
    expectations = raised(names=("a", "b"), uids=("u1", "u2"))
    expectations.creation_failed(KEY, "a")
    expectations.deletion_failed(KEY, "u1")
    assert expectations.pending(KEY) == Pending(("b",), ("u2",))


def test_expires_after_the_last_raise() -> None:
    """What never comes true stops blocking five minutes after the last write was announced."""
    expectations = raised(names=("a",))
    expectations.expect_deletions(KEY, ["u"], 100.0)
    assert expectations.expires_in(KEY, 150.0) == EXPIRY - 50.0
    assert not expectations.satisfied(KEY, 99.0 + EXPIRY)
    assert expectations.satisfied(KEY, 100.0 + EXPIRY)
    assert expectations.expires_in(KEY, 0.0) is None


def test_a_deletion_of_unknown_outcome_expires_sooner() -> None:
    """It alone: the others are known to come. Seen in time, it blocks nothing."""
    expectations = raised(uids=("known", "unknown"))
    expectations.deletion_unknown(KEY, "unknown", 10.0)
    assert expectations.expires_in(KEY, 20.0) == UNKNOWN_EXPIRY - 10.0
    assert not expectations.satisfied(KEY, 9.0 + UNKNOWN_EXPIRY)
    assert expectations.pending(KEY).deletions == ("known", "unknown")
    assert not expectations.satisfied(KEY, 10.0 + UNKNOWN_EXPIRY)
    assert expectations.pending(KEY).deletions == ("known",)
    assert expectations.expires_in(KEY, 10.0 + UNKNOWN_EXPIRY) == EXPIRY - 10.0 - UNKNOWN_EXPIRY
    expectations.deletion_observed(KEY, "known")
    assert expectations.satisfied(KEY, 11.0 + UNKNOWN_EXPIRY)
    expectations = raised(uids=("unknown",))
    expectations.deletion_unknown(KEY, "unknown", 0.0)
    expectations.deletion_observed(KEY, "unknown")
    assert expectations.satisfied(KEY, 1.0)
    expectations.deletion_unknown("ns/other", "unknown", 0.0)
    assert len(expectations) == 0


def test_a_deletion_that_is_sent_again_is_expected_as_long_as_any() -> None:
    """What is unknown is the outcome of the attempt before."""
    expectations = raised(uids=("u",))
    expectations.deletion_unknown(KEY, "u", 0.0)
    assert expectations.satisfied(KEY, UNKNOWN_EXPIRY)
    expectations.expect_deletions(KEY, ("u",), UNKNOWN_EXPIRY)
    assert not expectations.satisfied(KEY, 2 * UNKNOWN_EXPIRY)


def test_keys_do_not_mix() -> None:
    """An event for one key says nothing about another."""
    expectations = raised(names=("a",))
    expectations.creation_observed("ns/other", "a", "u")
    assert not expectations.satisfied(KEY, 1.0)
    assert expectations.satisfied("ns/other", 1.0)


def test_forget_drops_the_key() -> None:
    """A deleted object leaves nothing behind."""
    expectations = raised(names=("a",))
    expectations.forget(KEY)
    assert expectations.satisfied(KEY, 0.0)
    assert len(expectations) == 0


def test_generated_names_differ_and_fit() -> None:
    """Generated names are valid labels of at most 63 characters that keep as much of the prefix as fits."""
    names = {generated_name("compute-") for _ in range(100)}
    assert len(names) > 90
    assert all(name.startswith("compute-") and len(name) == len("compute-") + 5 for name in names)
    assert len(generated_name("x" * 80)) == 63


class WatchedWrites(RuleBasedStateMachine):
    """A controller's writes against an API server whose watch delays, reorders and repeats its events."""

    def __init__(self) -> None:
        super().__init__()
        self.expectations: Expectations[str] = Expectations()
        self.now = 0.0
        self.last_write = 0.0
        self.server: dict[str, str] = {}
        self.uids = 0
        self.undelivered: list[Seen] = []
        self.delivered: list[Seen] = []
        # What must have been delivered before the controller may act again.
        self.must_see: dict[str, str | None] = {}
        self.must_miss: set[str] = set()
        self.never: set[str] = set()

    def deliver(self, event: Seen) -> None:
        self.delivered.append(event)
        if event.added:
            self.expectations.creation_observed(KEY, event.name, event.uid)
            if self.must_see.get(event.name, "") in (event.uid, None):
                self.must_see.pop(event.name)
                self.never.discard(event.name)
        else:
            self.expectations.deletion_observed(KEY, event.uid)
            self.must_miss.discard(event.uid)

    @rule(
        name=st.sampled_from(["web-0", "web-1", "web-2"]),
        outcome=st.sampled_from(["ok", "failed", "lost answer", "lost request"]),
        overtakes=st.booleans(),
    )
    def create(self, name: str, outcome: str, overtakes: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        if name in self.server:
            return
        self.expectations.expect_creations(KEY, [name], self.now)
        self.last_write = self.now
        self.must_see.pop(name, None)
        self.never.discard(name)
        if outcome == "failed":
            self.expectations.creation_failed(KEY, name)
            return
        if outcome == "lost request":
            self.must_see[name] = None
            self.never.add(name)
            return
        self.uids += 1
        uid = f"u{self.uids}"
        self.server[name] = uid
        self.must_see[name] = uid if outcome == "ok" else None
        event = Seen(added=True, name=name, uid=uid)
        if overtakes:
            self.deliver(event)
        else:
            self.undelivered.append(event)
        if outcome == "ok":
            self.expectations.created(KEY, name, uid)

    @rule(name=st.sampled_from(["web-0", "web-1", "web-2"]), outcome=st.sampled_from(["ok", "failed"]))
    def delete(self, name: str, outcome: str) -> None:
        if name not in self.server:
            return
        uid = self.server[name]
        self.expectations.expect_deletions(KEY, [uid], self.now)
        self.last_write = self.now
        if outcome == "failed":
            self.expectations.deletion_failed(KEY, uid)
            self.must_miss.discard(uid)
            return
        del self.server[name]
        self.must_miss.add(uid)
        self.undelivered.append(Seen(added=False, name=name, uid=uid))

    @precondition(lambda self: self.undelivered)
    @rule(data=st.data())
    def deliver_any(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.undelivered) - 1))
        self.deliver(self.undelivered.pop(index))

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        self.deliver(data.draw(st.sampled_from(self.delivered)))

    @rule(seconds=st.sampled_from([1.0, EXPIRY / 2]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def controller_looks(self) -> None:
        expired = self.now - self.last_write >= EXPIRY
        open_writes = bool(self.must_see or self.must_miss)
        assert self.expectations.satisfied(KEY, self.now) == (expired or not open_writes)
        if expired or not open_writes:
            self.must_see.clear()
            self.must_miss.clear()
            self.never.clear()

    @rule()
    def watch_catches_up(self) -> None:
        while self.undelivered:
            self.deliver(self.undelivered.pop(0))
        if not self.never:
            assert self.expectations.satisfied(KEY, self.now)
            self.must_see.clear()
            self.must_miss.clear()

    @invariant()
    def pending_names_what_is_open(self) -> None:
        pending = self.expectations.pending(KEY)
        assert set(pending.creations) == set(self.must_see)
        assert set(pending.deletions) == self.must_miss


TestWatchedWrites = WatchedWrites.TestCase
