"""Write to the nodes of Slurm: drains, undrains, and the comment, topology and features of each node.

All of it runs in background tasks (`Errands`), for which no reconcile waits. While the state of a node is
being changed, every view is stale about that node. When the task ends, the time is recorded, also if it
failed: a view that was requested before is not used. Comments, topology and features differ from node to node
and can take a request each; no other decision depends on them, so nothing waits for them either.

A request that was not carried out is not repeated at once, since the end of a task causes the next reconcile.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

import structlog

from slurm_operator.controllers.nodeset.decide.actions import (
    DrainNodes,
    ResumeNodes,
    UndrainNodes,
    WriteNodes,
)
from slurm_operator.controllers.nodeset.run.background import Kind
from slurm_operator.controllers.nodeset.run.one_pass import Trouble
from slurm_operator.slurm.wishes import Done, Drain, Failed, Held, Hold, State, Undrain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_operator.controllers.nodeset.run.background import Errands
    from slurm_operator.controllers.nodeset.run.one_pass import Work
    from slurm_operator.controllers.nodeset.run.state import Memory
    from slurm_operator.kube.meta import Key
    from slurm_operator.slurm.clients import Connection
    from slurm_operator.slurm.wishes import Outcome as Answer
    from slurm_operator.slurm.wishes import Wish

log = structlog.get_logger(__name__)

# No fault: the node is absent or unknown now, a newer request replaced this one, or its state is not ours.
_ORDINARY: Final = frozenset({Hold.ABSENT, Hold.UNKNOWN, Hold.SUPERSEDED, Hold.FOREIGN_REASON})


class Slurm:
    """Writes to the nodes of the clusters of NodeSets."""

    def __init__(self, errands: Errands) -> None:
        self._errands = errands

    def recall(self, work: Work) -> None:
        """Report the writes that Slurm did not accept, as far as they are still wanted."""
        memory = work.memory
        states: set[tuple[str, Wish]] = set()
        fields: set[tuple[str, Wish]] = set()
        for action in work.plan.actions:
            if isinstance(action, DrainNodes | UndrainNodes | ResumeNodes):
                states.update((name, _state_wish(action)) for name in action.names)
            elif isinstance(action, WriteNodes):
                fields.update(action.wishes.items())
        # For a node that was not listed since the attempt, it is unknown whether the write is still wanted.
        taken = None if work.seen.view is None else work.seen.view.taken
        memory.states.keep(
            [
                item
                for item in memory.states.items
                if item in states or taken is None or taken <= memory.written.get(item[0], -math.inf)
            ]
        )
        # The plan asks for nothing until a list shows the attempt, and that a list shows nothing is no event.
        memory.states.wait(memory.states.items, _now(), work.outcome)
        memory.fields.keep(fields)
        memory.states.tell(work.outcome)
        memory.fields.tell(work.outcome)

    # -------------------------------------------------------------------------------------------------- state
    def change_states(self, work: Work, actions: Iterable[DrainNodes | UndrainNodes | ResumeNodes]) -> None:
        """Drain nodes, take drains of ours back, let nodes of new pods work again."""
        connection, memory = work.connection, work.memory
        if connection is None:
            return
        wishes: dict[str, Wish] = {}
        for action in actions:
            wishes |= dict.fromkeys(action.names, _state_wish(action))
        now = _now()
        waiting = memory.states.wait(wishes.items(), now, work.outcome)
        due = {
            name: wish
            for name, wish in wishes.items()
            if (name, wish) not in waiting and name not in memory.changing
        }
        if due:
            # Before the errand begins: from here on nothing that is known about these nodes counts.
            memory.changing |= dict.fromkeys(due, now)
            self._errands.start(work.nodeset.key, Kind.STATE, _change(connection, due, memory))

    # ------------------------------------------------------------------------------------------------- fields
    def tell(self, work: Work, actions: Sequence[WriteNodes]) -> None:
        """Give nodes their comment, topology and features."""
        key, connection, memory = work.nodeset.key, work.connection, work.memory
        if connection is None or self._errands.busy(key, Kind.FIELDS):
            return
        wished = [item for action in actions for item in action.wishes.items()]
        waiting = memory.fields.wait(wished, _now(), work.outcome)
        some = [dict(action.wishes.items() - waiting) for action in actions]
        wishes = [one for one in some if one]
        if wishes:
            self._errands.start(key, Kind.FIELDS, _tell(key, connection, wishes, memory))


async def _change(connection: Connection, wishes: Mapping[str, Wish], memory: Memory) -> bool:
    answers: Mapping[str, Answer] = {}
    try:
        answers = await connection.writer.write(wishes)
    finally:
        now = _now()
        for name in wishes:
            memory.changing.pop(name, None)
            # Without an answer, because it was cut off, it may have happened all the same.
            if isinstance(answers.get(name, Done()), Done | Failed):
                memory.written[name] = now
    undone = [item for item in wishes.items() if not isinstance(answers[item[0]], Done)]
    memory.states.tried(wishes.items(), undone, _trouble(answers, "drained, undrained or resumed"), now)
    return True


async def _tell(
    key: Key, connection: Connection, wishes: Sequence[Mapping[str, Wish]], memory: Memory
) -> bool:
    replies = await asyncio.gather(*(connection.writer.write(some) for some in wishes))
    found = next((bad for answers in replies if (bad := _trouble(answers, "told what it is"))), None)
    undone = [
        (name, some[name])
        for some, answers in zip(wishes, replies, strict=True)
        for name, answer in answers.items()
        if _refused(answer)
    ]
    memory.fields.tried([item for some in wishes for item in some.items()], undone, found, _now())
    if found is not None:
        log.warning("Slurm could not be told about nodes", nodeset=str(key), why=found.message)
    return found is not None


def _state_wish(action: DrainNodes | UndrainNodes | ResumeNodes) -> Wish:
    if isinstance(action, ResumeNodes):
        return State("RESUME")
    return Undrain() if isinstance(action, UndrainNodes) else Drain(action.reason)


def _trouble(answers: Mapping[str, Answer], what: str) -> Trouble | None:
    """Return what to report about the answers, one message for all; None if there is nothing to report."""
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
    """Return whether a write must be tried again later, and be reported."""
    return isinstance(answer, Failed) or (isinstance(answer, Held) and answer.reason not in _ORDINARY)


def _now() -> float:
    return asyncio.get_running_loop().time()
