"""The election without a network: decisions one by one, then all of them under a hostile schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slurm_operator.kube.decide.election import (
    Acquire,
    Action,
    Election,
    ElectionTiming,
    Follow,
    LeaseRecord,
    Renew,
    decide,
    micro_time,
)
from tests.support.property_settings import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

WALL = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
THEIRS = LeaseRecord("them", 15.0, "a", "r", 4)


def _record(holder: str, duration: float = 15.0) -> LeaseRecord:
    return LeaseRecord(holder, duration, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z", 4)


@pytest.mark.parametrize(
    ("record", "age", "expected"),
    [
        (None, 0, Acquire()),
        (_record(""), 0, Acquire()),
        (_record("me"), 0, Renew()),
        (_record("me"), 1000, Renew()),
        (_record("them"), 0, Follow(15)),
        (_record("them"), 14, Follow(1)),
        (_record("them"), 15, Acquire()),
        (_record("them", 60), 15, Follow(45)),
        (_record("them", 1), 14, Follow(1)),
    ],
)
def test_decide(record: LeaseRecord | None, age: float, expected: Action) -> None:
    """A free lease is taken, one's own renewed, another's waited out for the longer of both durations."""
    assert decide(record, identity="me", observed_at=100, now=100 + age, lease_duration=15) == expected


@pytest.mark.parametrize(
    "durations", [(10, 10, 2), (15, 14, 2), (15, 10, 9), (15, 10, 0), (15, 10, -1), (1, 10, 2)]
)
def test_timing_refuses_unsafe_durations(durations: tuple[float, float, float]) -> None:
    """Durations that would let two processes lead, or one lose its lease by itself, are refused."""
    with pytest.raises(ValueError, match=r"want lease duration x 0\.9 > renew deadline > retry period"):
        ElectionTiming(*durations)


def test_a_renewal_seen_late_restarts_the_wait() -> None:
    """The wait counts from when the record was last seen to change, not from what it says."""
    election = Election("me", ElectionTiming())
    election.observe(_record("them"), "1", now=0)
    election.observe(_record("them"), "2", now=10)
    assert election.next(14) == Follow(1)
    election.observe(LeaseRecord("them", 15.0, "a", "later", 4), "3", now=14)
    assert election.next(16) == Follow(13)


def test_a_deleted_lease_of_another_is_waited_out() -> None:
    """Who has seen a holder does not lead the moment the lease is deleted: the holder may still write."""
    election = Election("me", ElectionTiming())
    election.observe(THEIRS, "1", now=0)
    election.observe(None, "", now=1)
    assert election.next(1) == Follow(14)
    assert election.version == ""
    assert election.next(15) == Acquire()


def test_an_own_deleted_lease_is_written_again() -> None:
    """A leader whose lease was deleted creates it again at once and keeps its term."""
    election = Election("me", ElectionTiming())
    claim = election.claim(WALL)
    election.confirm(claim, "1", began=0, now=1)
    election.observe(None, "", now=2)
    assert election.next(2) == Renew()
    assert election.claim(WALL).acquired == claim.acquired


def test_first_claim() -> None:
    """The first holder of a lease has made no transition."""
    stamp = "2026-01-02T03:04:05.000006Z"
    assert Election("me", ElectionTiming()).claim(WALL) == LeaseRecord("me", 15.0, stamp, stamp, 0)


def test_claim_after_another_counts_a_transition() -> None:
    """Taking over, also from a holder that released, counts one transition and starts a new term."""
    for holder in ("them", ""):
        election = Election("me", ElectionTiming())
        election.observe(_record(holder), "1", now=0)
        claim = election.claim(WALL)
        assert (claim.holder, claim.transitions, claim.acquired) == ("me", 5, micro_time(WALL))


def test_renewal_keeps_the_term() -> None:
    """Renewing moves nothing but the renew time."""
    election = Election("me", ElectionTiming())
    first = election.claim(WALL)
    election.confirm(first, "1", began=0, now=1)
    later = election.claim(WALL + timedelta(seconds=2))
    assert (later.acquired, later.transitions) == (first.acquired, first.transitions)
    assert later.renewed > first.renewed


def test_resignation_frees_only_an_own_lease() -> None:
    """Releasing empties the holder and shortens the lease to a second; another's lease is left alone."""
    election = Election("me", ElectionTiming())
    election.observe(THEIRS, "1", now=0)
    assert election.resignation(WALL) is None
    election.confirm(_record("me"), "2", began=0, now=0)
    freed = election.resignation(WALL)
    assert freed is not None
    assert (freed.holder, freed.duration, freed.transitions) == ("", 1.0, 4)
    assert freed.spec()["leaseDurationSeconds"] == 1


def test_the_fence_counts_from_before_the_request() -> None:
    """However late the answer comes, the right to write ends a renew deadline after the request began."""
    election = Election("me", ElectionTiming())
    assert not election.may_start_write(0)
    election.confirm(_record("me"), "1", began=100, now=108)
    assert election.may_start_write(109.9)
    assert not election.may_start_write(110)
    assert election.seconds_to_deadline(108) == 2
    assert election.write_seconds(109) == 4.5
    election.concede()
    assert not election.may_start_write(101)


@given(slow=st.floats(0.95, 1.05), fast=st.floats(0.95, 1.05), start=st.floats(0, 9.99))
def test_the_last_write_is_over_before_the_next_leader(slow: float, fast: float, start: float) -> None:
    """Whatever the speed of both clocks, within a tenth, the longest write ends before another can lead."""
    holder, other = Election("me", ElectionTiming()), Election("other", ElectionTiming())
    holder.confirm(_record("me"), "1", began=0, now=0)
    other.observe(_record("me"), "1", now=0)
    write_ends = (start + holder.write_seconds(start)) / slow
    assert isinstance(other.next(write_ends * fast), Follow)


def test_fractions_of_a_second_are_promised_whole() -> None:
    """The lease in the API never promises less than what the holder relies on."""
    assert LeaseRecord("me", 2.5, "a", "r", 0).spec()["leaseDurationSeconds"] == 3


def test_micro_time_is_utc_with_six_digits() -> None:
    """Times are written as the API wants them, whatever zone and precision they come in."""
    there = timezone(timedelta(hours=2))
    assert micro_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=there)) == "2026-01-02T01:04:05.000000Z"


# --- a hostile schedule


@dataclass
class Server:
    """One Lease with optimistic concurrency."""

    record: LeaseRecord | None = None
    version: int = 0

    def write(self, record: LeaseRecord, version: str) -> bool:
        if version != (str(self.version) if self.record else ""):
            return False
        self.record, self.version = record, self.version + 1
        return True


@dataclass
class Request:
    """A request on its way: maybe served, maybe answered, maybe given up by its sender."""

    claim: LeaseRecord | None
    version: str
    began: float
    served: bool = False
    accepted: bool = False
    seen: tuple[LeaseRecord | None, str] = (None, "")

    def serve(self, server: Server) -> None:
        self.served = True
        if self.claim is None:
            self.seen = (server.record, str(server.version) if server.record else "")
        else:
            self.accepted = server.write(self.claim, self.version)
            self.seen = (self.claim, str(server.version))


@dataclass
class Candidate:
    """One process: its clock (offset and speed), its election, its request under way."""

    offset: float
    speed: float
    election: Election
    request: Request | None = None
    known: bool = False
    writes_may_land_until: float = float("-inf")
    ghosts: list[Request] = field(default_factory=list)

    def clock(self, time: float) -> float:
        return self.offset + self.speed * time


class HostileSchedule(RuleBasedStateMachine):
    """Three candidates whose requests are delayed, lost, or served after their sender gave up."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.names = self._names()
        self.server = Server()
        self.candidates: list[Candidate] = []
        self.terms = 0

    def _names(self) -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield f"process-{number}"

    def _election(self) -> Election:
        return Election(next(self.names), ElectionTiming(15, 10, 2))

    @initialize(
        clocks=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.95, 1.05)), min_size=3, max_size=3)
    )
    def start(self, clocks: list[tuple[float, float]]) -> None:
        self.candidates = [Candidate(offset, speed, self._election()) for offset, speed in clocks]

    def _send(self, candidate: Candidate) -> None:
        """Do what the elector's thread does: read when unsure, else claim if the election says so."""
        now, election = candidate.clock(self.time), candidate.election
        if not candidate.known:
            candidate.request = Request(None, "", now)
        elif isinstance(election.next(now), Follow):
            candidate.known = False
        else:
            stamp = WALL + timedelta(microseconds=self.time * 1000 + self.terms)
            self.terms += 1
            candidate.request = Request(election.claim(stamp), election.version, now)

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.9, 2.0, 4.0, 5.1, 9.9, 10.1, 14.9, 16.0]))
    def pass_time(self, seconds: float) -> None:
        self.time += seconds

    @rule(who=st.integers(0, 2))
    def attempt(self, who: int) -> None:
        candidate = self.candidates[who]
        if candidate.request is None:
            self._send(candidate)

    @rule(who=st.integers(0, 2))
    def serve(self, who: int) -> None:
        request = self.candidates[who].request
        if request is not None and not request.served:
            request.serve(self.server)

    @rule(who=st.integers(0, 2))
    def answer(self, who: int) -> None:
        candidate = self.candidates[who]
        request, now = candidate.request, candidate.clock(self.time)
        if request is None or not request.served:
            return
        candidate.request = None
        record, version = request.seen
        if request.claim is None:
            candidate.election.observe(record, version, now)
            candidate.known = True
        elif request.accepted:
            candidate.election.confirm(request.claim, version, request.began, now)
        else:
            candidate.known = False

    @rule(who=st.integers(0, 2))
    def step(self, who: int) -> None:
        """Run one whole undisturbed attempt, so that long histories are reached."""
        for _ in range(2):
            self.attempt(who)
            self.serve(who)
            self.answer(who)

    @rule(who=st.integers(0, 2))
    def give_up(self, who: int) -> None:
        candidate = self.candidates[who]
        if candidate.request is not None:
            if not candidate.request.served:
                candidate.ghosts.append(candidate.request)
            candidate.request, candidate.known = None, False

    @rule(who=st.integers(0, 2))
    def late_arrival(self, who: int) -> None:
        if self.candidates[who].ghosts:
            self.candidates[who].ghosts.pop().serve(self.server)

    @rule(who=st.integers(0, 2))
    def crash_and_restart(self, who: int) -> None:
        old = self.candidates[who]
        new = Candidate(old.offset, old.speed, self._election(), ghosts=old.ghosts)
        self.candidates[who] = new
        # What the dead process had sent may still land.
        new.writes_may_land_until = old.writes_may_land_until

    @precondition(lambda self: self.candidates)
    @rule(who=st.integers(0, 2))
    def release(self, who: int) -> None:
        """Stop in good order: all writes are over, then the lease is freed."""
        candidate = self.candidates[who]
        candidate.election.concede()
        candidate.writes_may_land_until = self.time
        freed = candidate.election.resignation(WALL + timedelta(days=1, microseconds=self.time * 1000))
        if freed is not None:
            self.server.write(freed, candidate.election.version)
        self.crash_and_restart(who)

    @invariant()
    def writes_of_two_never_overlap(self) -> None:
        """Nobody may begin a write while a write that another began may still land."""
        for candidate in self.candidates:
            now = candidate.clock(self.time)
            if not candidate.election.may_start_write(now):
                continue
            for other in self.candidates:
                if other is not candidate:
                    assert other.writes_may_land_until <= self.time
                    assert not other.election.may_start_write(other.clock(self.time))
            candidate.writes_may_land_until = (
                self.time + candidate.election.write_seconds(now) / candidate.speed
            )


TestHostileSchedule = HostileSchedule.TestCase
TestHostileSchedule.settings = settings(max_examples=examples(150), stateful_step_count=60, deadline=None)
