"""Whether another list is needed for the deletions that are left."""

from __future__ import annotations

from slurm_operator.controllers.nodeset.engine.evidence import in_time


def test_what_will_be_done_in_time_needs_no_other_list() -> None:
    """Ninety went in two seconds: ten more will, within a second, but not a hundred."""
    assert in_time(done=90, took=2.0, left=10, remaining=1.0)
    assert not in_time(done=90, took=2.0, left=100, remaining=1.0)


def test_what_may_just_be_done_in_time_is_not_relied_on() -> None:
    """Nor is what has not begun, or has no time left."""
    assert not in_time(done=90, took=2.0, left=45, remaining=1.0)
    assert not in_time(done=0, took=2.0, left=1, remaining=1.0)
    assert not in_time(done=0, took=0.0, left=1, remaining=1.0)
    assert not in_time(done=90, took=2.0, left=1, remaining=0.0)
    assert not in_time(done=90, took=2.0, left=1, remaining=-1.0)
