"""A NodeSet that is deleted together with the Controller of an external Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import observation
from slurm_operator.controllers.nodeset.decide.actions import DeleteReservation, RecordExternal
from slurm_operator.controllers.nodeset.decide.observation import ControllerState, NodeAnswer
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.slurm.errors import RestUnreachable, WrongCluster
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, drained_node, node, view
from tests.unit.controllers.nodeset.decide.test_finalizer import DRAIN, deleted, leave, released

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.slurm.model.view import ClusterView

OUTLIVED: Any = {"controller": ControllerState.OUTLIVED}


def test_while_slurm_answers_the_nodeset_is_drained() -> None:
    """The busy worker keeps the NodeSet, and the drained one goes."""
    decided = leave(
        pod(0), pod(1), slurm=(node("gpu-0", "MIXED", alloc=1), drained_node("gpu-1")), **OUTLIVED
    )
    assert deleted(decided) == ["gpu-1"]
    assert released(decided) == []
    assert decided.blocked


SILENT = [
    view(node("gpu-0", "MIXED", alloc=1), listed_at=NOW - 31.0, failure=RestUnreachable("silent")),
    view(listed_at=None, failure=RestUnreachable("refused")),
    None,
]


@pytest.mark.parametrize("silent", SILENT, ids=["stale", "refused", "no connection"])
@pytest.mark.parametrize("protected", [True, False])
def test_a_slurm_that_does_not_answer_lets_nothing_go(
    silent: ClusterView | None,
    protected: bool,  # noqa: FBT001 - a column
) -> None:
    """Its jobs go on: after an outage or a restart of the operator the NodeSet waits, and says what to do."""
    decided = leave(pod(0, protected=protected), view=silent, **OUTLIVED)
    assert (released(decided), deleted(decided)) == ([], [])
    assert [one.pod for one in decided.blocked] == ["gpu-0"]
    (told,) = [one for one in decided.waits if one.reason is Reason.CONTROLLER_GONE]
    assert wellknown.ANNOTATION_SKIP_DRAIN in told.message
    assert decided.requeue is not None


def test_a_process_that_has_just_started_does_not_complain_yet() -> None:
    """Slurm has its first seconds to answer."""
    decided = leave(pod(0), view=None, since=NOW - 1.0, **OUTLIVED)
    assert released(decided) == []
    assert [one for one in decided.waits if one.reason is Reason.CONTROLLER_GONE] == []


def test_a_person_may_let_it_go() -> None:
    """The annotation releases it, as it always does."""
    assert released(leave(pod(0, protected=False), view=None, skip=True, **OUTLIVED)) == [DRAIN]


@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize("deleting", [True, False])
def test_that_slurm_is_external_is_written_down(external: bool, deleting: bool) -> None:  # noqa: FBT001 - columns
    """Once, and before any worker is made, so that a new process knows it without the Controller."""
    written = {wellknown.ANNOTATION_EXTERNAL_SLURM: "true"}
    for marks in ({}, written):
        nodeset = make_nodeset(replicas=1, annotations=marks, deleting=deleting, finalizers=(DRAIN,))
        decided = plan(observe(nodeset=nodeset, external=external))
        found = [one for one in decided.actions if isinstance(one, RecordExternal)]
        assert found == ([] if external == bool(marks) else [RecordExternal(external)])
        assert not found or decided.actions[0] == found[0]
    unknown = plan(observe(nodeset=make_nodeset(annotations=written), external=None))
    assert not [one for one in unknown.actions if isinstance(one, RecordExternal)]


def test_another_slurm_at_the_same_address_lets_nothing_go() -> None:
    """It answers, and cannot say what runs: the NodeSet waits for the right one, or for a person."""
    other = view(listed_at=None, failure=WrongCluster("expected", "other"))
    assert released(leave(pod(0, protected=False), view=other, **OUTLIVED)) == []


def test_a_failure_that_is_young_lets_nothing_go() -> None:
    """One request that fails is no silence."""
    failing = view(node("gpu-0", "MIXED", alloc=1), listed_at=NOW - 5.0, failure=RestUnreachable("cut"))
    assert released(leave(pod(0, protected=False), view=failing, **OUTLIVED)) == []


def test_before_the_first_answer_nothing_goes() -> None:
    """A connection that was made just now has been asked, and has neither answered nor failed."""
    assert released(leave(pod(0, protected=False), view=view(listed_at=None), **OUTLIVED)) == []


RESERVATION = wellknown.FINALIZER_RESERVATION
DELETE = DeleteReservation("SlurmOperatorMaint-gpu")


def reserved(*, deleting: bool = True, skip: bool = False, told: bool = False, **fields: Any) -> Plan:
    """Plan for a NodeSet without workers whose window is booked in a Slurm that outlives its Controller."""
    marks = {wellknown.ANNOTATION_SKIP_DRAIN: "true"} if skip else {}
    nodeset = make_nodeset(deleting=deleting, finalizers=(RESERVATION,), annotations=marks)
    asked = {observation.reservation_key(DELETE.name): NodeAnswer(NOW - 9, exists=False)} if told else {}
    return plan(observe(nodeset=nodeset, asked=asked, **fields, **OUTLIVED))


def test_the_reservation_is_deleted_before_the_nodeset_is_gone() -> None:
    """The Slurm goes on, and without the NodeSet nothing would delete the window."""
    answers = view(reservations_listed_at=NOW - 1)
    assert reserved(view=answers).actions == (DELETE,)
    assert released(reserved(view=answers, told=True)) == [RESERVATION]
    assert reserved(view=answers, skip=True).actions == (DELETE,)


def test_a_slurm_that_does_not_answer_keeps_the_reservation_of_a_nodeset() -> None:
    """The NodeSet waits and says what to do; the annotation releases it, as it releases the drain."""
    decided = reserved(view=None)
    assert released(decided) == []
    (told,) = [one for one in decided.waits if one.reason is Reason.CONTROLLER_GONE]
    assert wellknown.ANNOTATION_SKIP_DRAIN in told.message
    assert released(reserved(view=None, skip=True)) == [RESERVATION]
    assert released(reserved(view=None, deleting=False)) == []
