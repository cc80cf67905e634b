"""A reservation that Slurm lists otherwise than it was written: when it is written again."""

from __future__ import annotations

from datetime import UTC, datetime

from slurm_operator.controllers.nodeset.decide.actions import DeleteReservation, WriteReservation
from slurm_operator.controllers.nodeset.decide.reservation import Turn, accepted, complaint, turn
from slurm_operator.slurm.model.records import Reservation, ReservationSpec
from tests.support.slurm.views import number

WISH = WriteReservation(ReservationSpec(name="maint", flags=("MAINT",)), exists=True)
OTHER = WriteReservation(ReservationSpec(name="maint", flags=("MAINT", "FLEX")), exists=True)
START = datetime(2027, 1, 2, 3, 4, tzinfo=UTC)
BARE = Reservation(name="maint", start_time=number(START.timestamp()), node_list="n1", users="slurm")
MOVED = Reservation(name="maint", node_list="n2")


def test_what_was_never_written_is_written_at_once() -> None:
    """So is another wish than the last one, whatever Slurm made of that."""
    assert turn(None, WISH, BARE) is Turn.NOW
    assert turn(accepted(None, WISH, BARE), OTHER, BARE) is Turn.NOW


def test_what_changes_nothing_is_not_written_again() -> None:
    """A wish that Slurm took, and after which it lists what it listed before, is in vain."""
    assert turn(accepted(None, WISH, BARE), WISH, BARE) is Turn.IN_VAIN
    assert turn(accepted(None, WISH, None), WISH, None) is Turn.IN_VAIN


def test_a_list_that_changed_gives_a_wish_another_chance_after_a_while() -> None:
    """A list that swings between two states is no change: each of them has had its chance."""
    once = accepted(None, WISH, BARE)
    assert turn(once, WISH, MOVED) is Turn.LATER
    twice = accepted(once, WISH, MOVED)
    assert turn(twice, WISH, BARE) is Turn.IN_VAIN
    assert turn(twice, WISH, None) is Turn.LATER


def test_a_deletion_is_never_in_vain() -> None:
    """A NodeSet that goes waits for it, so it is sent again after a while."""
    gone = DeleteReservation("maint")
    assert turn(accepted(None, gone, BARE), gone, BARE) is Turn.LATER


def test_people_are_told_what_slurm_made_of_it() -> None:
    """The message names the field, the reservation, what is listed, and what to do."""
    told = complaint(WISH, BARE)
    for word in ("spec.updateStrategy.scheduledUpdate", "'maint'", "'n1'", "'slurm'", "2027-01-02T03:04:00Z"):
        assert word in told
    others = {complaint(WISH, None), complaint(DeleteReservation("maint"), BARE), complaint(WISH, MOVED)}
    assert len(others | {told}) == 4
