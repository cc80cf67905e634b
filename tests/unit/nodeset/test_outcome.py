"""When a pass over a NodeSet is to be followed by another one that no event brings."""

from __future__ import annotations

from slurm_operator.controllers.nodeset.run.one_pass import Outcome
from slurm_operator.kube.errors import Conflict, ConnectionFailed


def test_the_earliest_look_counts() -> None:
    """Of several that were asked for, the first one serves all; without any, events have to do."""
    outcome = Outcome()
    assert outcome.again() is None
    for seconds in (30.0, 0.05, 300.0):
        outcome.look(seconds)
    assert outcome.again() == 0.05


def test_a_look_survives_an_error() -> None:
    """What was asked for beside a failure is kept, but no sooner than in a second."""
    outcome = Outcome()
    outcome.failed("Pod 'gpu-0' could not be created", ConnectionFailed("cut off"))
    assert outcome.again() is None
    outcome.look(30.0)
    assert outcome.again() == 30.0
    outcome.look(0.05)
    assert outcome.again() == 1.0


def test_a_conflict_asks_for_a_look() -> None:
    """Somebody was faster, which is no error; what they did may send no event."""
    outcome = Outcome()
    outcome.failed("Pod 'gpu-0' could not be changed", Conflict("changed", status=409))
    assert outcome.errors == []
    assert outcome.again() == 1.0
