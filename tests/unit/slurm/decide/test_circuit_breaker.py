from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.decide.circuit_breaker import Breaker, BreakerState, BreakerTiming, Permit

TIMING = BreakerTiming(threshold=3, base=1.0, cap=8.0)


def admitted(breaker: Breaker, now: float) -> Permit:
    permit = breaker.admit(now)
    assert permit is not None
    return permit


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker(TIMING)
    for _ in range(TIMING.threshold):
        breaker.failed(admitted(breaker, now), now)
    return breaker


def test_it_opens_at_the_threshold_and_not_before() -> None:
    """Single failures are life; only several in a row open the circuit."""
    breaker = Breaker(TIMING)
    breaker.failed(admitted(breaker, 0.0), 0.0)
    breaker.failed(admitted(breaker, 0.0), 0.0)
    assert breaker.state(0.0) is BreakerState.CLOSED
    breaker.failed(admitted(breaker, 0.0), 0.0)
    assert breaker.state(0.0) is BreakerState.OPEN
    assert breaker.admit(0.5) is None
    assert breaker.wait(0.25) == 0.75


def test_a_success_between_failures_starts_the_count_anew() -> None:
    """Failures count only in a row."""
    breaker = Breaker(TIMING)
    for _ in range(10):
        breaker.failed(admitted(breaker, 0.0), 0.0)
        breaker.failed(admitted(breaker, 0.0), 0.0)
        breaker.succeeded(admitted(breaker, 0.0))
    assert breaker.state(0.0) is BreakerState.CLOSED


def test_one_probe_goes_out_when_the_pause_is_over() -> None:
    """A server that comes back is met by one request, not by everybody at once."""
    breaker = opened()
    assert breaker.state(1.0) is BreakerState.HALF_OPEN
    probe = admitted(breaker, 1.0)
    assert probe.probe
    assert breaker.admit(1.0) is None
    assert breaker.wait(1.0) == 0.0
    breaker.succeeded(probe)
    assert breaker.state(1.0) is BreakerState.CLOSED
    assert breaker.admit(1.0) is not None
    assert breaker.admit(1.0) is not None


def test_pauses_double_up_to_the_cap() -> None:
    """However long a server is away, the next attempt is never further off than the cap."""
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(2000):
        wait = breaker.wait(now)
        assert wait is not None
        pauses.append(wait)
        now += wait
        breaker.failed(admitted(breaker, now), now)
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert max(pauses) <= 8.0 + 1e-6


def test_a_probe_that_tells_nothing_makes_room_for_the_next() -> None:
    """A probe whose caller went away must not keep the circuit open for ever."""
    breaker = opened()
    breaker.dropped(admitted(breaker, 1.0))
    assert admitted(breaker, 1.0).probe


def test_late_failures_say_nothing_new() -> None:
    """Requests that were under way when the circuit opened do not make its pause longer."""
    breaker = Breaker(TIMING)
    permits = [admitted(breaker, 0.0) for _ in range(10)]
    for permit in permits:
        breaker.failed(permit, 0.0)
    assert breaker.wait(0.0) == 1.0
    probe = admitted(breaker, 1.0)
    breaker.failed(permits[0], 1.0)
    assert breaker.wait(1.0) == 0.0
    breaker.failed(probe, 1.0)
    assert breaker.wait(1.0) == 2.0


def test_a_late_success_closes_it() -> None:
    """Whoever answers a request of long ago answers."""
    breaker = Breaker(TIMING)
    late = admitted(breaker, 0.0)
    for _ in range(3):
        breaker.failed(admitted(breaker, 0.0), 0.0)
    assert breaker.state(0.0) is BreakerState.OPEN
    breaker.succeeded(late)
    assert breaker.state(0.0) is BreakerState.CLOSED


def test_reset_forgets_everything() -> None:
    """After a reset the next request is sent, and what came before does not count."""
    breaker = opened()
    late = admitted(breaker, 1.0)
    breaker.reset()
    breaker.failed(late, 1.0)
    breaker.failed(admitted(breaker, 1.0), 1.0)
    breaker.failed(admitted(breaker, 1.0), 1.0)
    assert breaker.state(1.0) is BreakerState.CLOSED


def test_a_sign_ends_the_pause_for_one_request() -> None:
    """The next attempt can be made at once; all others still wait for it, and pauses are short again."""
    breaker, now = opened(), 0.0
    for _ in range(5):
        now += breaker.wait(now) or 0.0
        breaker.failed(admitted(breaker, now), now)
    assert breaker.wait(now) == TIMING.cap
    breaker.hasten(now)
    probe = admitted(breaker, now)
    assert probe.probe
    assert breaker.admit(now) is None
    breaker.hasten(now)
    assert breaker.admit(now) is None, "an attempt that is under way stays the only one"
    breaker.failed(probe, now)
    assert breaker.wait(now) == TIMING.base


def test_a_sign_says_nothing_where_there_is_no_pause() -> None:
    """A circuit that is closed stays so, and still opens at the threshold."""
    breaker = Breaker(TIMING)
    breaker.failed(admitted(breaker, 0.0), 0.0)
    breaker.failed(admitted(breaker, 0.0), 0.0)
    breaker.hasten(0.0)
    assert not admitted(breaker, 0.0).probe
    breaker.failed(admitted(breaker, 0.0), 0.0)
    assert breaker.state(0.0) is BreakerState.OPEN


@given(st.lists(st.sampled_from(["admit", "succeed", "fail", "drop", "wait", "hasten"]), max_size=200))
def test_it_never_locks_out_for_longer_than_the_cap(steps: list[str]) -> None:
    """In any order of events at most one probe is out, and a pause later a request gets through again."""
    breaker, now = Breaker(TIMING), 0.0
    out: list[Permit] = []
    for step in steps:
        if step == "admit":
            wait, permit = breaker.wait(now), breaker.admit(now)
            assert (permit is None) == (wait is not None)
            out += [permit] if permit is not None else []
        elif step == "wait":
            now += 1.0
        elif step == "hasten":
            breaker.hasten(now)
        elif out and step == "succeed":
            breaker.succeeded(out.pop(0))
        elif out and step == "fail":
            breaker.failed(out.pop(0), now)
        elif out:
            breaker.dropped(out.pop(0))
        assert (breaker.wait(now) or 0.0) <= TIMING.cap
    for permit in out:
        breaker.dropped(permit)
    assert breaker.admit(now + TIMING.cap) is not None
