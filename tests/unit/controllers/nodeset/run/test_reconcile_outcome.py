"""When a reconcile of a NodeSet is to be followed by another one without an event."""

from __future__ import annotations

from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
from slurm_operator.kube.errors import Conflict, ConnectionFailed


def test_the_earliest_look_counts() -> None:
    """Of several that were asked for, the first one serves all; without any, events have to do."""
    outcome = ReconcileOutcome()
    assert outcome.requeue() is None
    for seconds in (30.0, 0.05, 300.0):
        outcome.requeue_after(seconds)
    assert outcome.requeue() == 0.05


def test_a_look_survives_an_error() -> None:
    """What was asked for beside a failure is kept, but no sooner than in a second."""
    outcome = ReconcileOutcome()
    outcome.failed("create", "pod 'gpu-0'", ConnectionFailed("cut off"))
    assert outcome.requeue() is None
    outcome.requeue_after(30.0)
    assert outcome.requeue() == 30.0
    outcome.requeue_after(0.05)
    assert outcome.requeue() == 1.0


def test_a_conflict_asks_for_a_look() -> None:
    """Somebody was faster, which is no error; what they did may send no event."""
    outcome = ReconcileOutcome()
    outcome.failed("change", "pod 'gpu-0'", Conflict("changed", status=409))
    assert outcome.errors == []
    assert outcome.requeue() == 1.0
