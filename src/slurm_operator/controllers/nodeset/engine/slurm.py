"""Write to Slurm: drains, what nodes say about their pods, records, reservations.

A drain or its end is noted with its moment, also when it failed: a view that was asked for before says
nothing about that node any more. Comments, topology and features differ from node to node and can take a
request each, so they are told in the background, and a pass over the NodeSet does not wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from slurm_operator.controllers.nodeset import names
from slurm_operator.controllers.nodeset.actions import DeleteRecord, ResumeNodes, UndrainNodes
from slurm_operator.controllers.nodeset.engine.outcome import Trouble
from slurm_operator.controllers.nodeset.engine.work import aside
from slurm_operator.controllers.nodeset.observation import Asked
from slurm_operator.controllers.nodeset.plan import plan
from slurm_operator.slurm.errors import NotFound, SlurmError
from slurm_operator.slurm.wishes import Done, Drain, Failed, Held, Hold, State, Undrain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_operator.controllers.nodeset.actions import (
        DeleteReservation,
        DrainNodes,
        WriteNodes,
        WriteReservation,
    )
    from slurm_operator.controllers.nodeset.engine.memory import Memory
    from slurm_operator.controllers.nodeset.engine.work import Work
    from slurm_operator.kube.meta import Key
    from slurm_operator.kube.sources import Channel
    from slurm_operator.slurm.clients import Connection
    from slurm_operator.slurm.wishes import Outcome as Answer
    from slurm_operator.slurm.wishes import Wish

log = structlog.get_logger(__name__)

# A refused drain is tried again after this; whatever heals Slurm is an event and comes sooner.
_RETRY_SECONDS: Final = 5.0
_LONGEST_RETRY: Final = 300.0
_SOON: Final = 0.1
_VIEW_SECONDS: Final = 15.0
# Nobody is at fault: the node is not there now, or somebody wished for something newer.
_ORDINARY: Final = frozenset({Hold.ABSENT, Hold.UNKNOWN, Hold.SUPERSEDED, Hold.FOREIGN_REASON})


class Slurm:
    """Writes to the clusters of NodeSets; `again` takes the NodeSets whose background work failed."""

    def __init__(self, again: Channel[Key]) -> None:
        self._again = again
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        # What came while a task was under way: it must be looked at again when that is done.
        self._waiting: set[Key] = set()

    async def run(self) -> None:
        """Hold what runs in the background until cancelled, then end it."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for task in self._tasks.values():
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks.values())

    # -------------------------------------------------------------------------------------------------- state
    async def change_states(
        self, work: Work, actions: Iterable[DrainNodes | UndrainNodes | ResumeNodes]
    ) -> None:
        """Drain nodes, take drains of ours back, let nodes of new pods work again."""
        wishes: dict[str, Wish] = {}
        for action in actions:
            wishes |= dict.fromkeys(action.names, _state_wish(action))
        if work.connection is None:
            return
        answers: Mapping[str, Answer] = {}
        try:
            answers = await work.connection.writer.write(wishes)
        finally:
            # Without an answer, because the pass was cut off, it may have happened all the same.
            now = asyncio.get_running_loop().time()
            for name in wishes:
                if isinstance(answers.get(name, Done()), Done | Failed):
                    work.memory.written[name] = now
        if trouble := _trouble(answers, "drained, undrained or resumed"):
            work.outcome.trouble(trouble.reason, trouble.message)
            work.outcome.look(_RETRY_SECONDS)

    # ------------------------------------------------------------------------------------------------- fields
    def tell(self, work: Work, actions: Sequence[WriteNodes]) -> None:
        """Give nodes their comment, topology and features, in the background."""
        key, memory, now = work.nodeset.key, work.memory, asyncio.get_running_loop().time()
        wishes = [action.wishes for action in actions]
        if memory.resisted:
            memory.resisted &= {item for some in wishes for item in some.items()}
        if not memory.resisted:
            memory.refused, memory.refusals, memory.retry_at = None, 0, 0.0
        elif memory.refused is not None:
            work.outcome.trouble(memory.refused.reason, memory.refused.message)
        if work.connection is None:
            return
        if key in self._tasks:
            self._waiting.add(key)
            return
        if now < memory.retry_at:
            # Only what was refused waits: one machine with a bad annotation must not keep the others.
            work.outcome.look(memory.retry_at - now)
            new = (dict(item for item in some.items() if item not in memory.resisted) for some in wishes)
            wishes = [some for some in new if some]
        if not wishes:
            return
        task = asyncio.create_task(
            self._tell(key, work.connection, wishes, memory), name=f"tell Slurm about {key}"
        )
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._told(key))

    async def _tell(
        self, key: Key, connection: Connection, wishes: list[Mapping[str, Wish]], memory: Memory
    ) -> None:
        replies = await asyncio.gather(*(connection.writer.write(some) for some in wishes))
        found = next((bad for answers in replies if (bad := _trouble(answers, "told what it is"))), None)
        memory.resisted -= {item for some in wishes for item in some.items()}
        if found is None:
            return
        memory.refused = found
        memory.refusals += 1
        memory.resisted |= {
            (name, some[name])
            for some, answers in zip(wishes, replies, strict=True)
            for name, answer in answers.items()
            if _refused(answer)
        }
        pause = min(_LONGEST_RETRY, _RETRY_SECONDS * 2 ** min(memory.refusals - 1, 10))
        memory.retry_at = asyncio.get_running_loop().time() + pause
        log.warning("Slurm could not be told about nodes", nodeset=str(key), why=found.message)
        self._waiting.add(key)

    def _told(self, key: Key) -> None:
        self._tasks.pop(key, None)
        if key in self._waiting:
            self._waiting.discard(key)
            self._again.send(key)

    # ---------------------------------------------------------------------------------- records, reservations
    async def delete_records(self, work: Work, actions: Sequence[DeleteRecord]) -> None:
        """Let Slurm forget nodes, if a list that was asked for after the plan still has them as dead."""
        connection = work.connection
        if connection is None:
            return
        deleted = []
        try:
            deadline = asyncio.get_running_loop().time() + _VIEW_SECONDS
            await connection.watch.refreshed(work.seen.now, deadline)
            seen = await work.look()
            decided = await aside(seen, lambda: plan(seen))
            again = {one.name for one in decided.actions if isinstance(one, DeleteRecord)}
            for name in sorted(action.name for action in actions if action.name in again):
                with contextlib.suppress(NotFound):
                    await connection.rest.delete_node(name)
                deleted.append(name)
        except SlurmError as error:
            work.outcome.trouble("SlurmRefused", f"the record of a Slurm node could not be deleted: {error}")
            work.outcome.look(_LONGEST_RETRY)
        finally:
            if deleted:
                connection.watch.expect_gone(deleted)

    async def write_reservation(self, work: Work, action: WriteReservation) -> None:
        """Make the reservation of the maintenance window, or change it."""
        if work.connection is None:
            return
        rest = work.connection.rest
        write = rest.update_reservation if action.exists else rest.create_reservation
        at = asyncio.get_running_loop().time()
        try:
            await write(action.spec)
        except SlurmError as error:
            self._reservation_failed(work, action.spec.name, "written", error)
        else:
            work.memory.asked[names.reservation_key(action.spec.name)] = Asked(at, exists=True)
            work.connection.watch.wake(reservations=True)

    async def delete_reservation(self, work: Work, action: DeleteReservation) -> None:
        """Remove the reservation; that it is gone already is as good."""
        if work.connection is None:
            return
        at = asyncio.get_running_loop().time()
        try:
            with contextlib.suppress(NotFound):
                await work.connection.rest.delete_reservation(action.name)
        except SlurmError as error:
            self._reservation_failed(work, action.name, "deleted", error)
            return
        # Slurm's own word about this one; a list that lacks it is not as good.
        work.memory.asked[names.reservation_key(action.name)] = Asked(at, exists=False)
        work.connection.watch.wake(reservations=True)
        work.outcome.look(_SOON)

    @staticmethod
    def _reservation_failed(work: Work, name: str, verb: str, error: SlurmError) -> None:
        work.outcome.trouble(
            "ReservationFailed",
            f"spec.updateStrategy.scheduledUpdate: reservation {name!r} could not be {verb}: {error}",
        )
        work.outcome.look(30.0)


def _state_wish(action: DrainNodes | UndrainNodes | ResumeNodes) -> Wish:
    if isinstance(action, ResumeNodes):
        return State("RESUME")
    return Undrain() if isinstance(action, UndrainNodes) else Drain(action.reason)


def _trouble(answers: Mapping[str, Answer], what: str) -> Trouble | None:
    """Return what people should hear of the answers, one sentence for all of them."""
    failed = {name: one.error for name, one in answers.items() if isinstance(one, Failed)}
    if failed:
        name = min(failed)
        return Trouble(
            "SlurmWriteFailed",
            f"{len(failed)} Slurm nodes, such as {name}, could not be {what}: {failed[name]}",
        )
    held = {name: one.message for name, one in answers.items() if isinstance(one, Held) and _refused(one)}
    if not held:
        return None
    name = min(held)
    return Trouble("SlurmWriteHeld", f"{len(held)} Slurm nodes, such as {name}, are not {what}: {held[name]}")


def _refused(answer: Answer) -> bool:
    """Tell whether it must be tried again later, and people should hear of it."""
    return isinstance(answer, Failed) or (isinstance(answer, Held) and answer.reason not in _ORDINARY)
