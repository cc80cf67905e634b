"""Whether to write to the reservation once more: Slurm took the last write, and yet lists it otherwise. Pure.

Slurm may take what is sent and make something else of it: leave a flag out, move a start, drop a node. A plan
compares its wish with the list and would ask for the same again with each list. So what was wished is kept,
with all that the lists had when it was written. If a later list has one of these again, writing changes
nothing: people hear of it, and nothing is sent until they wish for something else, the list changes, or
slurmctld starts anew, which may have lost what it took. If the list has become something new, which is still
not what was wished, it is tried again after a while. A deletion is tried again in any case, for a NodeSet
that goes waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.nodeset.actions import DeleteReservation, WriteReservation

if TYPE_CHECKING:
    from slurm_operator.slurm.model import Reservation

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
