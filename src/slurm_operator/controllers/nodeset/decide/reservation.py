"""The maintenance window of a ScheduledUpdate: a reservation in Slurm.

It is made once for each start time: that it has been made is kept in the condition `ReservationCreated`, so
that a window that is over does not open again. A reservation that the Go operator made is recognised by the
same condition. While the Controller exists, the finalizer stays until Slurm has confirmed that the
reservation is gone, in its answer to the deletion; that Slurm cannot be queried, or that a list does not have
it, is no such confirmation. If the Controller is deleted and its Slurm with it, the finalizer is removed at
once. An external Slurm goes on, and so does the reservation: the finalizer stays as for any other Slurm,
unless that Slurm cannot be asked and the NodeSet is to be deleted without a drain.

Whether to write to the reservation once more: Slurm took the last write, and yet lists it otherwise. Pure.

Slurm may accept a request and store something else: leave a flag out, move a start, drop a node. A plan
compares the wanted reservation with the list and would send the same request again with each list. So the
request is kept, with all that the lists had when it was sent. If a later list has one of these again, writing
changes nothing: that is reported in the condition `Degraded`, and nothing is sent until the user asks for
something else, the list changes, or slurmctld restarts, which may have lost what it accepted. If the list has
something new, which is still not what was requested, the request is repeated after a while. A deletion is
repeated in any case, because the deletion of a NodeSet waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.shared import find_condition
from slurm_operator.api.updates import UpdateStrategyType
from slurm_operator.controllers.nodeset.decide import finalizer, messages, observation
from slurm_operator.controllers.nodeset.decide.actions import (
    AddFinalizer,
    DeleteReservation,
    RemoveFinalizer,
    WriteReservation,
)
from slurm_operator.controllers.nodeset.decide.observation import ControllerState
from slurm_operator.slurm.model import hostlist
from slurm_operator.slurm.model.records import ReservationSpec

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
    from slurm_operator.slurm.model.records import Reservation

_RECURRING: Final = frozenset({"HOURLY", "DAILY", "WEEKLY", "WEEKEND", "WEEKDAY"})
_FORCE: Final = "FORCE_START"
# Slurm adds this one by itself.
_IMPLIED: Final = frozenset({"SPEC_NODES"})
# A list of reservations older than this says nothing: twice the time between two of them, and a bit.
_STALE_AFTER: Final = 90.0


def known(seen: Observation) -> bool:
    """Return whether it can be said which reservations there are."""
    view = seen.view
    if view is None or view.reservations_listed_at is None or view.reservations_listed_at <= seen.since:
        return False
    return seen.now - view.reservations_listed_at <= _STALE_AFTER and view.failure is None


def present(seen: Observation) -> Reservation | None:
    """Return the NodeSet's reservation, if Slurm has it."""
    return None if seen.view is None else seen.view.reservations.get(seen.nodeset.reservation_name)


def reserve(seen: Observation, slurm: SlurmState) -> list[Action]:
    """Return what to do about the reservation and its finalizer."""
    kept = wellknown.FINALIZER_RESERVATION in seen.nodeset.metadata.finalizers
    if not wanted(seen):
        return _give_up(seen) if kept else []
    nodes = tuple(
        sorted(
            worker.slurm_name
            for worker in seen.workers
            if worker.active and slurm.node(worker.slurm_name) is not None
        )
    )
    if not nodes or not known(seen):
        return []
    return _keep(seen, _spec(seen, nodes)) if kept else [AddFinalizer(wellknown.FINALIZER_RESERVATION)]


def _keep(seen: Observation, spec: ReservationSpec) -> list[Action]:
    """Return what makes the reservation what it should be."""
    there = present(seen)
    if spec.start_time is None:
        return []
    due = spec.start_time > seen.wall or (_FORCE in spec.flags and not _over(seen, spec))
    if there is None:
        return [WriteReservation(spec, exists=False)] if due and not made(seen) else []
    change = _change(seen, there, spec)
    if change is None:
        return []
    if not due and change.start_time == spec.start_time:
        # Slurm moves no window into the past, and the one that is there is not asked for any more.
        return [DeleteReservation(there.name)]
    return [WriteReservation(change, exists=True)]


def _over(seen: Observation, spec: ReservationSpec) -> bool:
    """Return whether a window would be over once it is created: Slurm drops it, and no list shows it."""
    if spec.start_time is None or not _RECURRING.isdisjoint(spec.flags):
        return False
    return spec.start_time + timedelta(minutes=spec.duration_minutes or 0) <= seen.wall


def wanted(seen: Observation) -> bool:
    """Return whether there should be a window."""
    spec = seen.nodeset.spec
    return (
        spec.update_strategy.type == UpdateStrategyType.SCHEDULED_UPDATE
        and (seen.daemon or spec.replicas > 0)
        and not seen.nodeset.deleting
        and seen.controller is ControllerState.STAYS
    )


def open_ended(seen: Observation) -> bool:
    """Return whether a window is there, or to come or to go: what becomes of it, no event tells."""
    return wanted(seen) or wellknown.FINALIZER_RESERVATION in seen.nodeset.metadata.finalizers


def made(seen: Observation) -> bool:
    """Return whether a window has already been made for this start time."""
    condition = find_condition(seen.nodeset.status.conditions, wellknown.CONDITION_RESERVATION_CREATED)
    if condition is None:
        return False
    start = _start(seen)
    # The Go operator keeps the start in the time of the transition.
    return start is not None and (
        condition.message.endswith(_opens(start)) or condition.last_transition_time == start
    )


def window_text(start: datetime) -> str:
    """Return the sentence that the condition has about a window; it is also the memory that it was made."""
    return f"The {_opens(start)}"


def _opens(start: datetime) -> str:
    """Return how the sentence ends, also in conditions that earlier versions of the operator wrote."""
    return f"maintenance window opens at {messages.moment(start.astimezone(UTC))}"


def window(seen: Observation) -> str | None:
    """Return the sentence about the window that is asked for."""
    start = _start(seen)
    return None if start is None else window_text(start)


def _start(seen: Observation) -> datetime | None:
    try:
        return seen.nodeset.spec.update_strategy.scheduled_update.opens()
    except ValueError:
        return None


def _give_up(seen: Observation) -> list[Action]:
    release: list[Action] = [RemoveFinalizer(wellknown.FINALIZER_RESERVATION)]
    if finalizer.without_slurm(seen):
        return release
    if not known(seen):
        abandoned = seen.controller is ControllerState.OUTLIVED and finalizer.lets_go(seen)
        return release if abandoned and seen.nodeset.deleting else []
    name = seen.nodeset.reservation_name
    told = seen.asked.get(observation.reservation_key(name))
    # A list may be half of one: only the answer to a deletion says that there is none.
    gone = told is not None and not told.exists and told.at > seen.since and present(seen) is None
    return release if gone else [DeleteReservation(name)]


def _spec(seen: Observation, nodes: tuple[str, ...]) -> ReservationSpec:
    window = seen.nodeset.spec.update_strategy.scheduled_update
    flags = {*wellknown.RESERVATION_FLAGS, *(flag.upper() for flag in window.flags or ())}
    try:
        minutes = int(window.length().total_seconds() // 60)
    except ValueError:
        minutes = 0
    return ReservationSpec(
        name=seen.nodeset.reservation_name,
        node_list=hostlist.fold(nodes),
        users=(wellknown.RESERVATION_USER,),
        start_time=_start(seen),
        duration_minutes=max(1, minutes),
        flags=tuple(sorted(flags)),
    )


def _change(seen: Observation, there: Reservation, spec: ReservationSpec) -> ReservationSpec | None:
    """Return what to send for a reservation that exists; None if it is as it should be."""
    begins, ends = there.start_time.time, there.end_time.time
    same_nodes = set(hostlist.expand(there.node_list)) == set(hostlist.expand(spec.node_list))
    if begins is not None and ends is not None and begins <= seen.wall <= ends:
        # While it is open only its nodes change: a new worker must not be left outside.
        return None if same_nodes else ReservationSpec(name=spec.name, node_list=spec.node_list)
    recurs = not _RECURRING.isdisjoint(spec.flags) and not _RECURRING.isdisjoint(there.flags)
    moved_on = recurs and begins is not None and spec.start_time is not None and begins > spec.start_time
    past = spec.start_time is not None and spec.start_time <= seen.wall
    start = begins if moved_on and (past or made(seen)) else spec.start_time
    flags = {*there.flags} - _IMPLIED - {_FORCE}
    same = (
        same_nodes
        and flags == {*spec.flags} - _IMPLIED - {_FORCE}
        and {*there.users.split(",")} == {*spec.users}
        and begins == start
    )
    if same:
        return None
    return ReservationSpec(
        name=spec.name,
        node_list=spec.node_list,
        users=spec.users,
        start_time=start,
        duration_minutes=spec.duration_minutes,
        flags=spec.flags,
    )


AGAIN_SECONDS: Final = 30.0

ReservationChange = WriteReservation | DeleteReservation


class Turn(Enum):
    """When the reservation may be written to."""

    NOW = "now"
    LATER = "after a while"
    IN_VAIN = "not before something changes"


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """What Slurm took, and what its lists had whenever that was sent."""

    change: ReservationChange
    listed: frozenset[Reservation | None]


def accepted(
    before: AcceptedChange | None, change: ReservationChange, listed: Reservation | None
) -> AcceptedChange:
    """Return what is known when Slurm has accepted a change."""
    known = before.listed if before is not None and before.change == change else frozenset()
    return AcceptedChange(change, known | {listed})


def turn(before: AcceptedChange | None, change: ReservationChange, listed: Reservation | None) -> Turn:
    """Tell when to send a change, given a list that is newer than what was last sent."""
    if before is None or before.change != change:
        return Turn.NOW
    if isinstance(change, WriteReservation) and listed in before.listed:
        return Turn.IN_VAIN
    return Turn.LATER


def complaint(change: ReservationChange, listed: Reservation | None) -> str:
    """Say what Slurm makes of a change that it accepted, and what to do."""
    name = change.name if isinstance(change, DeleteReservation) else change.spec.name
    if listed is None:
        shown = "does not list it"
    elif isinstance(change, DeleteReservation):
        shown = "still lists it"
    else:
        start = listed.start_time.time
        begins = messages.moment(start) if start is not None else "no time"
        shown = (
            f"lists it with nodes {listed.node_list!r}, users {listed.users!r}, flags "
            f"{','.join(listed.flags)!r}, from {begins}"
        )
    return (
        f"spec.updateStrategy.scheduledUpdate: Slurm accepted the last change of reservation {name!r}, but "
        f"{shown}: change the spec, or correct the reservation with scontrol"
    )
