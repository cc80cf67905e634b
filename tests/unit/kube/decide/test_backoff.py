from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.decide.backoff import Backoff, TokenBucket


def test_delay_doubles_from_base_to_cap() -> None:
    """The n-th failure in a row waits base · 2^(n-1), never more than the cap."""
    backoff = Backoff(rate=None)
    delays = [backoff.when("a", 0.0) for _ in range(20)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[17] == pytest.approx(655.36)
    assert delays[18:] == [1000.0, 1000.0]


def test_bounds_are_parameters() -> None:
    """A slow connection may use one second to a quarter of an hour."""
    backoff = Backoff(1.0, 900.0, rate=None)
    delays = [backoff.when("slurm", 0.0) for _ in range(12)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]


def test_a_key_may_fail_for_ever() -> None:
    """Thousands of failures in a row stay at the cap instead of overflowing."""
    backoff = Backoff(rate=None)
    assert [backoff.when("a", 0.0) for _ in range(5000)][-1] == 1000.0


def test_keys_are_independent() -> None:
    """One key's failures do not delay another's."""
    backoff = Backoff(rate=None)
    for _ in range(10):
        backoff.when("broken", 0.0)
    assert backoff.when("fine", 0.0) == 0.005


def test_forget_starts_over_and_frees_the_entry() -> None:
    """A forgotten key starts from the base delay and costs no memory."""
    backoff = Backoff(rate=None)
    backoff.when("a", 0.0)
    backoff.when("a", 0.0)
    assert backoff.retries("a") == 2
    backoff.forget("a")
    backoff.forget("never seen")
    assert (backoff.retries("a"), len(backoff)) == (0, 0)
    assert backoff.when("a", 0.0) == 0.005


def test_overall_bucket_spreads_a_mass_failure() -> None:
    """A hundred keys may retry at once; from then on ten per second, whatever their own delay."""
    backoff = Backoff()
    delays = [backoff.when(key, 50.0) for key in range(120)]
    assert delays[:100] == [0.005] * 100
    assert delays[100:] == pytest.approx([max(0.005, 0.1 * n) for n in range(1, 21)])


def test_bucket_refills_with_time_up_to_its_burst() -> None:
    """An hour of silence refills the bucket to its burst and not further."""
    bucket = TokenBucket(10.0, 5)
    assert [bucket.reserve(0.0) for _ in range(6)] == pytest.approx([0, 0, 0, 0, 0, 0.1])
    assert [bucket.reserve(3600.0) for _ in range(6)] == pytest.approx([0, 0, 0, 0, 0, 0.1])


@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 20),
    gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60),
)
def test_bucket_never_exceeds_rate_and_burst(rate: float, burst: int, gaps: list[float]) -> None:
    """In every window of t seconds at most burst + rate · t tokens may be used."""
    bucket = TokenBucket(rate, burst)
    used = [now + bucket.reserve(now) for now in itertools.accumulate(gaps)]
    assert used == sorted(used)
    for first, last in itertools.combinations(range(len(used)), 2):
        assert last - first + 1 <= burst + rate * (used[last] - used[first]) + 1e-6


def test_bucket_survives_a_clock_that_steps_back() -> None:
    """A clock that steps back neither gives tokens nor takes the ones that are there."""
    bucket = TokenBucket(1.0, 2)
    assert bucket.reserve(100.0) == 0.0
    assert bucket.reserve(50.0) == 0.0
    assert bucket.reserve(100.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"base": 0.0}, "base"),
        ({"base": 2.0, "cap": 1.0}, "cap"),
        ({"cap": float("inf")}, "cap"),
        ({"factor": 1.0}, "factor"),
        ({"rate": 0.0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"burst": 0}, "burst"),
    ],
)
def test_bad_bounds_are_refused(arguments: dict[str, float], field: str) -> None:
    """A bound that makes no sense is an error that names it."""
    with pytest.raises(ValueError, match=f"^{field} must be"):
        Backoff(**arguments)  # type: ignore[arg-type]  # burst is an int; the table mixes both
