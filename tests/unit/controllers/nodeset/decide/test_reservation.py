from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.shared import Condition
from slurm_operator.controllers.nodeset.decide import observation
from slurm_operator.controllers.nodeset.decide.actions import (
    AddFinalizer,
    DeleteReservation,
    RemoveFinalizer,
    WriteReservation,
)
from slurm_operator.controllers.nodeset.decide.observation import NodeAnswer
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.reservation import window_text
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.slurm.model.records import Reservation
from tests.support.simulation.kubernetes import make_nodeset, moment
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, node, number, view

KEPT = wellknown.FINALIZER_RESERVATION
START = moment(NOW + 3600)
RESERVATIONS = (AddFinalizer, DeleteReservation, RemoveFinalizer, WriteReservation)


def scheduled(kind: str = "ScheduledUpdate", **fields: Any) -> Any:
    kept, start = fields.pop("kept", True), fields.pop("start", START)
    window = {"startTime": start.strftime("%Y-%m-%dT%H:%M:%SZ"), "duration": "1h", **fields.pop("window", {})}
    finalizers = (wellknown.FINALIZER_DRAIN, *((KEPT,) if kept else ()))
    made = fields.pop("made", None)
    strategy = {"type": kind, "scheduledUpdate": window}
    nodeset = make_nodeset(replicas=1, finalizers=finalizers, updateStrategy=strategy, **fields)
    if made is None:
        return nodeset
    condition = Condition(
        type="ReservationCreated", status="True", reason="Created", message=window_text(made)
    )
    status = msgspec.structs.replace(nodeset.status, conditions=(condition,))
    return msgspec.structs.replace(nodeset, status=status)


def booked(begins: datetime, *flags: str, nodes: str = "gpu-0") -> Reservation:
    return Reservation(
        name="SlurmOperatorMaint-gpu",
        start_time=number(begins.timestamp()),
        end_time=number((begins + timedelta(hours=1)).timestamp()),
        flags=("MAINT", "IGNORE_JOBS", "SPEC_NODES", *flags),
        node_list=nodes,
        users="slurm",
    )


def act(nodeset: Any, there: Reservation | None = None, *, asked: Any = (), **fields: Any) -> list[Any]:
    found = {there.name: there} if there is not None else {}
    seen = view(node("gpu-0"), reservations=found, **({"reservations_listed_at": NOW - 1} | fields))
    told = {observation.reservation_key("SlurmOperatorMaint-gpu"): one for one in asked}
    decided = plan(observe(pod(0), nodeset=nodeset, view=seen, asked=told))
    return [one for one in decided.actions if isinstance(one, RESERVATIONS)]


def test_the_finalizer_comes_before_the_reservation() -> None:
    """What would be left behind after a crash is never made first."""
    assert act(scheduled(kept=False)) == [AddFinalizer(KEPT)]
    (write,) = act(scheduled())
    assert isinstance(write, WriteReservation)
    assert not write.exists
    assert (write.spec.node_list, write.spec.users) == ("gpu-0", ("slurm",))
    assert write.spec.flags == ("IGNORE_JOBS", "MAINT")
    assert (write.spec.start_time, write.spec.duration_minutes) == (START, 60)


def test_a_window_that_is_as_wished_is_left_alone() -> None:
    """At rest nothing is written."""
    assert act(scheduled(), booked(START)) == []


def test_a_window_that_is_over_does_not_open_again() -> None:
    """Neither one that was made and is gone, nor one whose start has passed."""
    assert act(scheduled(made=START)) == []
    assert act(scheduled(start=moment(NOW - 60))) == []
    assert act(scheduled(start=moment(NOW - 60), window={"flags": ["force_start"]}))


def test_a_window_of_an_earlier_version_is_not_made_again() -> None:
    """The sentence in the condition is the memory of it, also in the words of 0.1.0."""
    nodeset = scheduled()
    said = Condition(
        type="ReservationCreated",
        status="True",
        reason="Created",
        message=f"the maintenance window opens at {START:%Y-%m-%dT%H:%M:%SZ}",
    )
    status = msgspec.structs.replace(nodeset.status, conditions=(said,))
    assert act(nodeset)
    assert act(msgspec.structs.replace(nodeset, status=status)) == []


def test_a_forced_window_is_not_made_when_it_is_over() -> None:
    """Slurm would drop it at once, and it would be made again for ever; one that comes back is made."""
    yesterday = moment(NOW - 86_400)
    assert act(scheduled(start=yesterday, window={"flags": ["FORCE_START"]})) == []
    assert act(scheduled(start=yesterday, window={"flags": ["FORCE_START", "DAILY"]}))
    assert act(scheduled(start=moment(NOW - 60), window={"flags": ["FORCE_START"]}))


def test_a_new_start_makes_a_new_window() -> None:
    """That an earlier window was made says nothing about this one."""
    assert act(scheduled(made=moment(NOW - 90_000)))


def test_an_open_window_only_gets_its_nodes_changed() -> None:
    """A worker that came later is taken in; the rest waits until the window is over."""
    open_now = booked(moment(NOW - 60), nodes="gpu-9")
    (write,) = act(scheduled(start=moment(NOW - 60), made=moment(NOW - 60)), open_now)
    assert write.exists
    assert (write.spec.node_list, write.spec.start_time, write.spec.flags) == ("gpu-0", None, ())


def test_a_recurring_window_keeps_the_start_that_slurm_has_moved_on_to() -> None:
    """Slurm moves the start of a weekly window each week; that is no change to undo."""
    first = moment(NOW - 7 * 86400)
    nodeset = scheduled(start=first, made=first, window={"flags": ["WEEKLY"]})
    assert act(nodeset, booked(first + timedelta(days=8), "WEEKLY")) == []


def test_a_reservation_is_gone_before_its_finalizer() -> None:
    """And Slurm must have said so, when asked to delete it: neither silence nor a list is that answer."""
    other = scheduled("RollingUpdate")
    assert act(other, booked(START)) == [DeleteReservation("SlurmOperatorMaint-gpu")]
    assert act(other) == [DeleteReservation("SlurmOperatorMaint-gpu")]
    assert act(other, asked=[NodeAnswer(NOW - 9, exists=True)]) == [
        DeleteReservation("SlurmOperatorMaint-gpu")
    ]
    assert act(other, asked=[NodeAnswer(NOW - 9, exists=False)]) == [RemoveFinalizer(KEPT)]
    assert act(other, reservations_listed_at=None) == []


def test_the_condition_remembers_that_the_window_was_made() -> None:
    """It says when the window opens, and stays when the reservation is over."""
    nodeset = scheduled()
    seen = observe(
        pod(0),
        nodeset=nodeset,
        view=view(
            node("gpu-0"),
            reservations={"SlurmOperatorMaint-gpu": booked(START)},
            reservations_listed_at=NOW - 1,
        ),
    )
    told = {one.type: one for one in report(seen, plan(seen)).conditions}
    assert told["ReservationCreated"].message == window_text(START)
    over = observe(
        pod(0), nodeset=scheduled(made=START), view=view(node("gpu-0"), reservations_listed_at=NOW - 1)
    )
    told = {one.type: one for one in report(over, plan(over)).conditions}
    assert (told["ReservationCreated"].status, told["ReservationCreated"].reason) == ("False", "NotExists")
    assert START.tzinfo is UTC


def test_a_window_that_nobody_can_look_for_is_not_denied() -> None:
    """A window that is wanted no more is gone when Slurm says so, not while nobody can ask."""
    blind = observe(
        pod(0),
        nodeset=scheduled("RollingUpdate", made=START),
        view=view(node("gpu-0"), reservations_listed_at=None),
    )
    told = {one.type: one for one in report(blind, plan(blind)).conditions}
    assert (told["ReservationCreated"].status, told["ReservationCreated"].message) == (
        "True",
        window_text(START),
    )
