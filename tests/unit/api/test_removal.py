from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api import removal, wellknown

NOW = datetime(2026, 11, 16, 17, 0, tzinfo=UTC)
KEY = wellknown.ANNOTATION_REMOVAL_REQUESTED


def test_a_request_says_when_and_who_and_expires() -> None:
    """A request that is not repeated holds for fifteen minutes."""
    asked = removal.read({KEY: removal.text(NOW, "eviction by alice")})
    assert asked == removal.RemovalRequest(NOW, "eviction by alice")
    assert asked.live(NOW + timedelta(minutes=14, seconds=59))
    assert not asked.live(NOW + timedelta(minutes=15))


def test_a_request_without_a_time_holds_until_it_is_removed() -> None:
    """A value written by hand that has no time never expires."""
    asked = removal.read({KEY: "now"})
    assert asked is not None
    assert asked.live(NOW + timedelta(days=10_000))
    assert not removal.due({KEY: "now"}, NOW)
    assert removal.read({KEY: "true"}) == removal.RemovalRequest(None)
    assert removal.read({KEY: "please, alice"}) == removal.RemovalRequest(None, "please, alice")


def test_a_request_is_recorded_again_only_when_it_is_old() -> None:
    """Within thirty seconds the same request is not written twice, also by a clock that is behind."""
    said = {KEY: removal.text(NOW, "x")}
    assert removal.due({}, NOW)
    assert not removal.due(said, NOW + timedelta(seconds=29))
    assert not removal.due(said, NOW - timedelta(seconds=29))
    assert removal.due(said, NOW + timedelta(seconds=30))
    assert removal.due(said, NOW - timedelta(hours=1))


@given(st.text(max_size=400))
def test_any_value_can_be_read(value: str) -> None:
    """No value of the annotation is an error, and none is longer than its limit when written again."""
    found = removal.read({KEY: value})
    assert (found is None) == (value in ("", "false"))
    if found is not None:
        found.live(NOW)
        assert len(removal.text(NOW, found.by)) <= 240
