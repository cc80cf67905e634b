"""The maintenance window of a ScheduledUpdate: a reservation in Slurm.

It is made once for each start time: that it has been made is kept in the condition `ReservationCreated`, so
that a window that is over does not open again. A reservation that the Go operator made is recognised by the
same condition. While the Controller exists, the finalizer stays until Slurm has confirmed that the
reservation is gone, in its answer to the deletion; that Slurm cannot be queried, or that a list does not have
it, is no such confirmation. If the Controller is deleted, the finalizer is removed at once.

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
from slurm_operator.controllers.nodeset.decide import observation
from slurm_operator.controllers.nodeset.decide.actions import (
    AddFinalizer,
    DeleteReservation,
    RemoveFinalizer,
    WriteReservation,
)
from slurm_operator.controllers.nodeset.decide.observation import Fate
from slurm_operator.slurm import hostlist
from slurm_operator.slurm.model import ReservationSpec

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.slurm_state import Sight
    from slurm_operator.slurm.model import Reservation

_RECURRING: Final = frozenset({"HOURLY", "DAILY", "WEEKLY", "WEEKEND", "WEEKDAY"})
_FORCE: Final = "FORCE_START"
# Slurm adds this one by itself.
_IMPLIED: Final = frozenset({"SPEC_NODES"})
# A list of reservations older than this says nothing: twice the time between two of them, and a bit.
_STALE_AFTER: Final = 90.0


def known(seen: Observation) -> bool:
    """Tell whether it can be said which reservations there are."""
    view = seen.view
    if view is None or view.reservations_taken is None or view.reservations_taken <= seen.since:
        return False
    return seen.now - view.reservations_taken <= _STALE_AFTER and view.failure is None


def present(seen: Observation) -> Reservation | None:
    """Return the NodeSet's reservation, if Slurm has it."""
    return None if seen.view is None else seen.view.reservations.get(seen.nodeset.reservation_name)


def reserve(seen: Observation, sight: Sight) -> list[Action]:
    """Return what to do about the reservation and its finalizer."""
    finalizer = wellknown.FINALIZER_RESERVATION
    kept = finalizer in seen.nodeset.metadata.finalizers
    if not wanted(seen):
        return _give_up(seen) if kept else []
    nodes = tuple(
        sorted(
            worker.slurm_name
            for worker in seen.workers
            if worker.active and sight.node(worker.slurm_name) is not None
        )
    )
    if not nodes or not known(seen):
        return []
    return _keep(seen, _spec(seen, nodes)) if kept else [AddFinalizer(finalizer)]


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
    """Tell whether there should be a window."""
    spec = seen.nodeset.spec
    return (
        spec.update_strategy.type == UpdateStrategyType.SCHEDULED_UPDATE
        and (seen.daemon or spec.replicas > 0)
        and not seen.nodeset.deleting
        and seen.controller is Fate.STAYS
    )


def open_ended(seen: Observation) -> bool:
    """Tell whether a window is there, or to come or to go: what becomes of it, no event tells."""
    return wanted(seen) or wellknown.FINALIZER_RESERVATION in seen.nodeset.metadata.finalizers


def made(seen: Observation) -> bool:
    """Tell whether a window has already been made for this start time."""
    condition = find_condition(seen.nodeset.status.conditions, wellknown.CONDITION_RESERVATION_CREATED)
    if condition is None:
        return False
    start = _start(seen)
    # The Go operator keeps the start in the time of the transition.
    return start is not None and (
        condition.message == window_text(start) or condition.last_transition_time == start
    )


def window_text(start: datetime) -> str:
    """Return the sentence that the condition has about a window; it is also the memory that it was made."""
    return f"the maintenance window opens at {start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


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
    if seen.controller is not Fate.STAYS:
        return release
    if not known(seen):
        return []
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

Wish = WriteReservation | DeleteReservation


class Turn(Enum):
    """When the reservation may be written to."""

    NOW = "now"
    LATER = "after a while"
    IN_VAIN = "not before something changes"


@dataclass(frozen=True, slots=True)
class Booking:
    """What Slurm took, and what its lists had whenever that was sent."""

    wish: Wish
    listed: frozenset[Reservation | None]


def taken(before: Booking | None, wish: Wish, listed: Reservation | None) -> Booking:
    """Return what is known when Slurm has taken a wish."""
    known = before.listed if before is not None and before.wish == wish else frozenset()
    return Booking(wish, known | {listed})


def turn(before: Booking | None, wish: Wish, listed: Reservation | None) -> Turn:
    """Tell when to send a wish, given a list that is newer than what was last sent."""
    if before is None or before.wish != wish:
        return Turn.NOW
    if isinstance(wish, WriteReservation) and listed in before.listed:
        return Turn.IN_VAIN
    return Turn.LATER


def complaint(wish: Wish, listed: Reservation | None) -> str:
    """Say what Slurm makes of a wish that it took, and what to do."""
    name = wish.name if isinstance(wish, DeleteReservation) else wish.spec.name
    if listed is None:
        shown = "does not list it"
    elif isinstance(wish, DeleteReservation):
        shown = "still lists it"
    else:
        start = listed.start_time.time
        begins = f"{start:%Y-%m-%dT%H:%M:%SZ}" if start is not None else "no time"
        shown = (
            f"lists it with nodes {listed.node_list!r}, users {listed.users!r}, flags "
            f"{','.join(listed.flags)!r}, from {begins}"
        )
    return (
        f"spec.updateStrategy.scheduledUpdate: Slurm has taken the last change of reservation {name!r}, but "
        f"{shown}: change the spec, or mend the reservation with scontrol"
    )
