"""Keep the books in Slurm: records of nodes whose workers are gone for good, and the maintenance window.

A record is deleted if two plans in a row say so, the second on a list that was asked for after the first and
that still counts (`deletion`) when the deletion leaves. What a newer plan does not want deleted any more,
because its worker comes back, is left alone also while others are being deleted.

The reservation is written only on a list of reservations that is newer than what was last written to it, and
not again and again if Slurm makes something else of it (`reservation`).
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.nodeset.decide import observation, reservation
from slurm_operator.controllers.nodeset.decide.actions import (
    DeleteRecord,
    DeleteReservation,
    WriteReservation,
)
from slurm_operator.controllers.nodeset.decide.deletion import counts_until
from slurm_operator.controllers.nodeset.decide.observation import Asked
from slurm_operator.controllers.nodeset.run.background import Kind
from slurm_operator.controllers.nodeset.run.one_pass import Trouble
from slurm_operator.slurm.errors import NotFound, Refused, SlurmError
from slurm_operator.slurm.transport import WithdrawnError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.run.background import Asking, Errands
    from slurm_operator.controllers.nodeset.run.one_pass import Work
    from slurm_operator.controllers.nodeset.run.state import Memory
    from slurm_operator.slurm.clients import Connection
    from slurm_operator.slurm.model import Reservation

# The list that the watch was woken for takes less; where it shows what the last one showed, it is no event.
_LOOK_SECONDS: Final = 1.0
# A list that has not come by then will not come: what was known before has to do.
_LIST_SECONDS: Final = 30.0


class Records:
    """Keeps what Slurm has on record for NodeSets."""

    def __init__(self, errands: Errands, asking: Asking) -> None:
        self._errands = errands
        self._asking = asking

    def recall(self, work: Work) -> None:
        """Drop what the newest plan does not want, and report what Slurm rejected."""
        memory, actions = work.memory, work.plan.actions
        condemned = {one.name for one in actions if isinstance(one, DeleteRecord)}
        memory.condemned = {name: at for name, at in memory.condemned.items() if name in condemned}
        memory.forgetting &= condemned
        memory.records.keep(condemned)
        memory.records.tell(work.outcome)
        # Until the list shows the last write, it is unknown what is still wanted.
        if not _unlisted(work):
            wished = [one for one in actions if isinstance(one, WriteReservation | DeleteReservation)]
            memory.bookings.keep(wished)
            if not wished:
                memory.booking = None
        memory.bookings.tell(work.outcome)

    # ------------------------------------------------------------------------------------------------ records
    def delete(self, work: Work, actions: Iterable[DeleteRecord]) -> None:
        """Let Slurm forget nodes that were dead before, and are so in a list that was asked for since."""
        memory, seen, connection = work.memory, work.seen, work.connection
        if connection is None or self._errands.busy(work.nodeset.key, Kind.FORGET):
            return
        wanted = {action.name for action in actions}
        wanted -= memory.records.wait(wanted, _now(), work.outcome)
        if not wanted:
            return
        memory.condemned = dict.fromkeys(wanted, seen.now) | memory.condemned
        taken = None if seen.view is None else seen.view.taken
        since = max(memory.condemned[name] for name in wanted)
        until = counts_until(seen, memory.confirmed)
        if taken is None or taken <= since or until is None:
            self._asking.order(work, after=since)
        else:
            memory.forgetting = wanted
            self._errands.start(work.nodeset.key, Kind.FORGET, _forget(connection, memory, until))

    # ------------------------------------------------------------------------------------------- reservations
    def write_reservation(self, work: Work, action: WriteReservation) -> None:
        """Make the reservation of the maintenance window, or change it."""
        if (connection := self._free(work, action)) is not None:
            errand = _reserve(connection, work.memory, action, reservation.present(work.seen))
            self._errands.start(work.nodeset.key, Kind.RESERVE, errand)

    def delete_reservation(self, work: Work, action: DeleteReservation) -> None:
        """Remove the reservation; that it is gone already is as good."""
        if (connection := self._free(work, action)) is not None:
            errand = _release(connection, work.memory, action, reservation.present(work.seen))
            self._errands.start(work.nodeset.key, Kind.RESERVE, errand)

    def _free(self, work: Work, action: WriteReservation | DeleteReservation) -> Connection | None:
        """Return the connection if the reservation may be written to now."""
        if work.connection is None or self._errands.busy(work.nodeset.key, Kind.RESERVE):
            return None
        if work.memory.bookings.wait([action], _now(), work.outcome):
            return None
        if _unlisted(work):
            work.outcome.look(_LOOK_SECONDS)
            return None
        if not self._may_write(work, action):
            return None
        return work.connection

    def _may_write(self, work: Work, action: WriteReservation | DeleteReservation) -> bool:
        """Return whether to write now; if not, report that Slurm accepted the same before without effect."""
        listed, memory = reservation.present(work.seen), work.memory
        turn = reservation.turn(memory.booking, action, listed)
        if turn is reservation.Turn.NOW or _older(work) or _restarted(work):
            return True
        wait = memory.booked + reservation.AGAIN_SECONDS - _now()
        if turn is reservation.Turn.LATER and wait <= 0:
            return True
        if turn is reservation.Turn.LATER:
            work.outcome.look(wait)
        work.outcome.trouble("ReservationFailed", reservation.complaint(action, listed))
        return False


async def _forget(connection: Connection, memory: Memory, until: float) -> bool:
    tried: list[str] = []
    deleted: list[str] = []
    refused: dict[str, SlurmError] = {}
    try:
        for name in sorted(memory.forgetting):
            wanted = partial(_still, memory, name, until)
            if not wanted():
                continue
            tried.append(name)
            try:
                with contextlib.suppress(NotFound):
                    await connection.rest.delete_node(name, wanted)
            except WithdrawnError:
                continue
            except Refused as error:
                refused[name] = error
            except SlurmError as error:
                refused[name] = error
                break
            else:
                deleted.append(name)
    finally:
        memory.forgetting = set()
        # A list that was asked for before does not show what became of them.
        memory.condemned |= dict.fromkeys(tried, _now())
        if deleted:
            connection.watch.expect_gone(deleted)
    trouble = None
    if refused:
        name = min(refused)
        text = f"{len(refused)} records of Slurm nodes, such as {name}, could not be deleted: {refused[name]}"
        trouble = Trouble("SlurmRefused", text)
    memory.records.tried(tried, refused, trouble, _now())
    return True


def _still(memory: Memory, name: str, until: float) -> bool:
    """Tell whether a record is to be deleted, now that its turn has come."""
    return name in memory.forgetting and _now() < until


async def _reserve(
    connection: Connection, memory: Memory, action: WriteReservation, listed: Reservation | None
) -> bool:
    write = connection.rest.update_reservation if action.exists else connection.rest.create_reservation
    at = _now()
    try:
        await write(action.spec)
    except SlurmError as error:
        _booked(memory, action, _failed(action.spec.name, "written", error))
    else:
        memory.asked[observation.reservation_key(action.spec.name)] = Asked(at, exists=True)
        memory.booking = reservation.taken(memory.booking, action, listed)
        _booked(memory, action)
        connection.watch.wake(reservations=True)
    return True


async def _release(
    connection: Connection, memory: Memory, action: DeleteReservation, listed: Reservation | None
) -> bool:
    at = _now()
    try:
        with contextlib.suppress(NotFound):
            await connection.rest.delete_reservation(action.name)
    except SlurmError as error:
        _booked(memory, action, _failed(action.name, "deleted", error))
    else:
        # Slurm's own word about this one; a list that lacks it is not as good.
        memory.asked[observation.reservation_key(action.name)] = Asked(at, exists=False)
        memory.booking = reservation.taken(memory.booking, action, listed)
        _booked(memory, action)
        connection.watch.wake(reservations=True)
    return True


def _booked(
    memory: Memory, action: WriteReservation | DeleteReservation, trouble: Trouble | None = None
) -> None:
    memory.booked = _now()
    memory.bookings.tried([action], [] if trouble is None else [action], trouble, memory.booked)


def _failed(name: str, verb: str, error: SlurmError) -> Trouble:
    text = f"spec.updateStrategy.scheduledUpdate: reservation {name!r} could not be {verb}: {error}"
    return Trouble("ReservationFailed", text)


def _unlisted(work: Work) -> bool:
    """Tell whether the list of reservations that shows the last write is still awaited."""
    return _older(work) and work.seen.now - work.memory.booked < _LIST_SECONDS


def _older(work: Work) -> bool:
    """Tell whether the list of reservations is older than what was last written."""
    taken = None if work.seen.view is None else work.seen.view.reservations_taken
    return taken is not None and taken <= work.memory.booked


def _restarted(work: Work) -> bool:
    """Tell whether slurmctld has started since the last write, and may have lost it."""
    since = None if work.seen.view is None else work.seen.view.up_since
    return since is not None and since > work.memory.booked


def _now() -> float:
    return asyncio.get_running_loop().time()
