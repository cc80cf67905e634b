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
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import observation, reservation
from slurm_operator.controllers.nodeset.decide.actions import (
    CreateRecords,
    DeleteRecord,
    DeleteReservation,
    WriteReservation,
)
from slurm_operator.controllers.nodeset.decide.deletion import counts_until
from slurm_operator.controllers.nodeset.decide.node_records import may_have_records
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.controllers.nodeset.run.background import Refusals, TaskKind
from slurm_operator.controllers.shared.problems import NodeSetProblem
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.slurm.errors import NotInSlurm, Refused, SlurmError
from slurm_operator.slurm.rest.exchange import WithdrawnError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.reservation import AcceptedChange
    from slurm_operator.controllers.nodeset.run.background import BackgroundTasks, SlurmQuestions
    from slurm_operator.controllers.nodeset.run.reconcile_state import NodeSetState, PlannedWork
    from slurm_operator.slurm.model.records import Reservation
    from slurm_operator.slurm.rest.connections import Connection

# The list that the watch was woken for takes less; where it shows what the last one showed, it is no event.
_LIST_SOON_SECONDS: Final = 1.0
# A list that has not come by then will not come: what was known before has to do.
_LIST_SECONDS: Final = 30.0


@dataclass(slots=True)
class RecordWrites:
    """Records of Slurm nodes that are created and deleted.

    Without it a deletion needs two plans and a list once more, and refused writes are tried again at once.
    """

    pending_deletion: dict[str, float] = field(default_factory=dict)
    """Records to be deleted if a list that is asked for after this moment still has them as dead."""
    deleting: set[str] = field(default_factory=set)
    """Records that are being deleted, without those of which the request is under way or over."""
    deletions: Refusals[str] = field(default_factory=lambda: Refusals(first=30.0, longest=300.0))
    created_at: float = -math.inf
    """When records were last created, or tried to be; infinite while they are being created."""
    creations: Refusals[str] = field(default_factory=lambda: Refusals(first=5.0, longest=60.0))
    created_line: str = ""
    """What Slurm accepted last, and no list has shown yet."""
    created_with: dict[str, str] = field(default_factory=dict)
    """From which options this process created records."""

    def keep(self, actions: Sequence[Action]) -> None:
        """Drop what the newest plan does not want."""
        wanted = {one.name for one in actions if isinstance(one, DeleteRecord)}
        self.pending_deletion = {name: at for name, at in self.pending_deletion.items() if name in wanted}
        self.deleting &= wanted
        self.deletions.keep(wanted)
        lines = {one.line for one in actions if isinstance(one, CreateRecords)}
        self.creations.keep(lines)
        if self.created_line not in lines:
            self.created_line = ""

    def unlisted(self, line: str, now: float) -> None:
        """Note that a list does not show what is to be created: if Slurm had accepted that, let it wait."""
        if line == self.created_line:
            self.created_line = ""
            self.creations.tried([line], [line], None, now)


@dataclass(slots=True)
class ReservationWrites:
    """What was last written to the reservation of the maintenance window.

    Without it the reservation is compared with the next list and written again if it differs.
    """

    written_at: float = -math.inf
    """When the reservation was last written to, or tried to be."""
    accepted: AcceptedChange | None = None
    """What was last written to it, if Slurm took that and has not listed it so far."""
    refused: Refusals[WriteReservation | DeleteReservation] = field(
        default_factory=lambda: Refusals(first=30.0, longest=30.0)
    )

    def keep(self, actions: Sequence[Action]) -> None:
        """Drop what the newest plan does not want."""
        wanted = [one for one in actions if isinstance(one, WriteReservation | DeleteReservation)]
        self.refused.keep(wanted)
        if not wanted:
            self.accepted = None

    def tried(
        self, action: WriteReservation | DeleteReservation, trouble: NodeSetProblem | None = None
    ) -> None:
        """Note what became of a write."""
        self.written_at = _now()
        self.refused.tried([action], [] if trouble is None else [action], trouble, self.written_at)


class Records:
    """Keeps what Slurm has on record for NodeSets."""

    def __init__(
        self,
        background: BackgroundTasks,
        asking: SlurmQuestions,
        read: Callable[[NodeSet], Awaitable[NodeSet]],
    ) -> None:
        self._background = background
        self._asking = asking
        # Returns a NodeSet as the API server has it; if it is another one, the next plan is made for it.
        self._read = read

    def recall(self, work: PlannedWork) -> None:
        """Drop what the newest plan does not want, and report what Slurm rejected."""
        state, actions = work.state, work.plan.actions
        state.records.keep(actions)
        state.records.deletions.tell(work.outcome)
        state.records.creations.tell(work.outcome)
        # Until the list shows the last write, it is unknown what is still wanted.
        if not _unlisted(work):
            state.reservation.keep(actions)
        state.reservation.refused.tell(work.outcome)

    # ------------------------------------------------------------------------------------------------ records
    def delete(self, work: PlannedWork, actions: Iterable[DeleteRecord]) -> None:
        """Delete records of nodes that were dead before, and are so in a list that was asked for since."""
        records, seen, connection = work.state.records, work.seen, work.connection
        if connection is None or self._background.busy(work.nodeset.key, TaskKind.DELETE_RECORDS):
            return
        wanted = {action.name for action in actions}
        wanted -= records.deletions.wait(wanted, _now(), work.outcome)
        if not wanted:
            return
        records.pending_deletion = dict.fromkeys(wanted, seen.now) | records.pending_deletion
        listed_at = None if seen.view is None else seen.view.listed_at
        since = max(records.pending_deletion[name] for name in wanted)
        until = counts_until(seen)
        if listed_at is None or listed_at <= since or until is None:
            self._asking.order(work, after=since)
        else:
            records.deleting = wanted
            self._background.start(
                work.nodeset.key, TaskKind.DELETE_RECORDS, _delete(connection, records, until)
            )

    def create(self, work: PlannedWork, action: CreateRecords) -> None:
        """Have the records of workers created that Slurm may power up, on a list newer than the last ones."""
        records, connection, view = work.state.records, work.connection, work.seen.view
        if connection is None or self._background.busy(work.nodeset.key, TaskKind.CREATE_RECORDS):
            return
        listed_at = None if view is None else view.listed_at
        if listed_at is None or listed_at <= records.created_at:
            work.outcome.requeue_after(_LIST_SOON_SECONDS)
            return
        # Lists that show the past would else bring a request each.
        records.unlisted(action.line, _now())
        if not records.creations.wait([action.line], _now(), work.outcome):
            # Before the background task begins: from here on no list shows what Slurm has.
            records.created_at = math.inf
            task = self._create(work.nodeset, connection, records, action)
            self._background.start(work.nodeset.key, TaskKind.CREATE_RECORDS, task)

    async def _create(
        self, nodeset: NodeSet, connection: Connection, records: RecordWrites, action: CreateRecords
    ) -> bool:
        try:
            if await self._still_scaled(nodeset, records, action):
                await _create(connection, records, action)
        finally:
            # One that exists by now makes Slurm refuse all of them: the next list shows it.
            records.created_at = _now()
        connection.watch.wake()
        return True

    async def _still_scaled(self, nodeset: NodeSet, records: RecordWrites, action: CreateRecords) -> bool:
        """Return whether the NodeSet is still the one that was planned for, by the API server."""
        meta = nodeset.metadata
        try:
            newest = await self._read(nodeset)
        except NotFound:
            return False
        except KubeError as error:
            text = write_messages.records_not_created(len(action.names), error)
            trouble = NodeSetProblem(Reason.APPLY_FAILED, text)
            records.creations.tried([action.line], [action.line], trouble, _now())
            return False
        return may_have_records(newest, meta.uid, meta.generation)

    # ------------------------------------------------------------------------------------------- reservations
    def write_reservation(self, work: PlannedWork, action: WriteReservation) -> None:
        """Make the reservation of the maintenance window, or change it."""
        if (connection := self._free(work, action)) is not None:
            background_task = _reserve(connection, work.state, action, reservation.present(work.seen))
            self._background.start(work.nodeset.key, TaskKind.RESERVE, background_task)

    def delete_reservation(self, work: PlannedWork, action: DeleteReservation) -> None:
        """Remove the reservation; that it is gone already is as good."""
        if (connection := self._free(work, action)) is not None:
            background_task = _release(connection, work.state, action, reservation.present(work.seen))
            self._background.start(work.nodeset.key, TaskKind.RESERVE, background_task)

    def _free(self, work: PlannedWork, action: WriteReservation | DeleteReservation) -> Connection | None:
        """Return the connection if the reservation may be written to now."""
        if work.connection is None or self._background.busy(work.nodeset.key, TaskKind.RESERVE):
            return None
        if work.state.reservation.refused.wait([action], _now(), work.outcome):
            return None
        if _unlisted(work):
            work.outcome.requeue_after(_LIST_SOON_SECONDS)
            return None
        if not self._may_write(work, action):
            return None
        return work.connection

    def _may_write(self, work: PlannedWork, action: WriteReservation | DeleteReservation) -> bool:
        """Return whether to write now; if not, report that Slurm accepted the same before without effect."""
        listed, written = reservation.present(work.seen), work.state.reservation
        turn = reservation.turn(written.accepted, action, listed)
        if turn is reservation.Turn.NOW or _older(work) or _restarted(work):
            return True
        wait = written.written_at + reservation.AGAIN_SECONDS - _now()
        if turn is reservation.Turn.LATER and wait <= 0:
            return True
        if turn is reservation.Turn.LATER:
            work.outcome.requeue_after(wait)
        work.outcome.trouble(Reason.RESERVATION_FAILED, reservation.complaint(action, listed))
        return False


async def _create(connection: Connection, records: RecordWrites, action: CreateRecords) -> None:
    trouble = None
    try:
        await connection.rest.create_nodes(action.line)
    except SlurmError as error:
        text = write_messages.records_not_created(len(action.names), error)
        trouble = NodeSetProblem(Reason.SLURM_REFUSED, text)
    else:
        records.created_line = action.line
        records.created_with |= dict.fromkeys(action.names, action.options)
    records.creations.tried([action.line], [action.line] if trouble else [], trouble, _now())


async def _delete(connection: Connection, records: RecordWrites, until: float) -> bool:
    tried: list[str] = []
    deleted: list[str] = []
    refused: dict[str, SlurmError] = {}
    try:
        for name in sorted(records.deleting):
            wanted = partial(_still_wanted, records, name, until)
            if not wanted():
                continue
            tried.append(name)
            connection.watch.deleting(name)
            try:
                with contextlib.suppress(NotInSlurm):
                    await connection.rest.delete_node(name, wanted)
            except WithdrawnError:
                connection.watch.deleted((), kept=[name])
            except Refused as error:
                connection.watch.deleted((), kept=[name])
                refused[name] = error
            except SlurmError as error:
                refused[name] = error
                break
            else:
                deleted.append(name)
    finally:
        records.deleting = set()
        # A list that was asked for before does not show what became of them.
        records.pending_deletion |= dict.fromkeys(tried, _now())
        if tried:
            connection.watch.deleted(deleted, kept={*tried} - {*deleted})
    trouble = None
    if refused:
        name = min(refused)
        text = write_messages.records_not_deleted(len(refused), name, refused[name])
        trouble = NodeSetProblem(Reason.SLURM_REFUSED, text)
    records.deletions.tried(tried, refused, trouble, _now())
    return True


def _still_wanted(records: RecordWrites, name: str, until: float) -> bool:
    """Return whether a record is to be deleted, now that its turn has come."""
    return name in records.deleting and _now() < until


async def _reserve(
    connection: Connection, state: NodeSetState, action: WriteReservation, listed: Reservation | None
) -> bool:
    write = connection.rest.update_reservation if action.exists else connection.rest.create_reservation
    at = _now()
    try:
        await write(action.spec)
    except SlurmError as error:
        state.reservation.tried(action, _failed(action.spec.name, "write", error))
    else:
        state.evidence.answered(observation.reservation_key(action.spec.name), at, exists=True)
        _accepted(connection, state.reservation, action, listed)
    return True


async def _release(
    connection: Connection, state: NodeSetState, action: DeleteReservation, listed: Reservation | None
) -> bool:
    at = _now()
    try:
        with contextlib.suppress(NotInSlurm):
            await connection.rest.delete_reservation(action.name)
    except SlurmError as error:
        state.reservation.tried(action, _failed(action.name, "delete", error))
    else:
        # Slurm's own word about this one; a list that lacks it is not as good.
        state.evidence.answered(observation.reservation_key(action.name), at, exists=False)
        _accepted(connection, state.reservation, action, listed)
    return True


def _accepted(
    connection: Connection,
    written: ReservationWrites,
    action: WriteReservation | DeleteReservation,
    listed: Reservation | None,
) -> None:
    written.accepted = reservation.accepted(written.accepted, action, listed)
    written.tried(action)
    connection.watch.wake(reservations=True)


def _failed(name: str, verb: str, error: SlurmError) -> NodeSetProblem:
    return NodeSetProblem(Reason.RESERVATION_FAILED, write_messages.reservation_failed(verb, name, error))


def _unlisted(work: PlannedWork) -> bool:
    """Return whether the list of reservations that shows the last write is still awaited."""
    return _older(work) and work.seen.now - work.state.reservation.written_at < _LIST_SECONDS


def _older(work: PlannedWork) -> bool:
    """Return whether the list of reservations is older than what was last written."""
    listed_at = None if work.seen.view is None else work.seen.view.reservations_listed_at
    return listed_at is not None and listed_at <= work.state.reservation.written_at


def _restarted(work: PlannedWork) -> bool:
    """Return whether slurmctld has started since the last write, and may have lost it."""
    since = None if work.seen.view is None else work.seen.view.up_since
    return since is not None and since > work.state.reservation.written_at


def _now() -> float:
    return asyncio.get_running_loop().time()
