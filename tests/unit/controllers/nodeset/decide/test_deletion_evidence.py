"""How long what Slurm said counts, and whether another list is needed for the deletions that are left."""

from __future__ import annotations

from dataclasses import replace

from slurm_operator.controllers.nodeset.decide.actions import DeletePod, Proof, RemovalCause
from slurm_operator.controllers.nodeset.decide.deletion import (
    FRESH_SECONDS,
    LASTS_SECONDS,
    Confirmed,
    ahead_seconds,
    in_time,
    weigh,
)
from slurm_operator.controllers.nodeset.decide.observation import NodeAnswer
from tests.support.simulation.observations import observe
from tests.support.slurm.views import NOW, view

LISTED = DeletePod("gpu-0", "uid-0", "gpu-0", RemovalCause.DELETION, "drained")
NAMED = DeletePod("gpu-1", "uid-1", "gpu-1", RemovalCause.DELETION, "absent", proof=Proof.NAME)


def test_an_answer_about_one_node_does_not_last_as_long_as_a_newer_list() -> None:
    """Newer lists let go what rests on lists; what rests on the answer too may go while the answer counts."""
    seen = observe(view=replace(view(), listed_at=NOW), asked={"gpu-1": NodeAnswer(NOW - 1.5, exists=False)})
    confirmed = Confirmed(began=NOW - 2, ended=NOW - 1)
    assert weigh(seen, confirmed, [LISTED]).until == NOW + FRESH_SECONDS + LASTS_SECONDS
    both = weigh(seen, confirmed, [LISTED, NAMED])
    assert both.ready == (LISTED, NAMED)
    assert both.until == confirmed.ended + LASTS_SECONDS
    later = weigh(replace(seen, now=both.until), confirmed, [LISTED, NAMED])
    assert later.ready == ()
    newer = replace(seen, now=both.until, view=replace(view(), listed_at=both.until))
    assert weigh(newer, confirmed, [LISTED, NAMED]).open == (NAMED,)


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


def test_another_list_is_asked_for_as_long_before_as_a_list_takes() -> None:
    """So that it is here when this one counts no more, and not earlier; half a second is left to begin."""
    found = []
    for took in (0.05, 1.0, 3.0):
        seen = observe(view=replace(view(), listed_at=NOW - took, answered_at=NOW))
        found.append(ahead_seconds(seen))
    assert found == [0.25, 1.0, 1.5]
    assert ahead_seconds(observe(view=replace(view(), listed_at=NOW, answered_at=None))) == 0.25
    assert ahead_seconds(observe(view=None)) == 0.25
