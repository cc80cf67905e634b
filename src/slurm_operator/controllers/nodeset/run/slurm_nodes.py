"""Write to the nodes of Slurm: drains, undrains, and the comment, topology and features of each node.

All of it runs in background tasks (`BackgroundTasks`), for which no reconcile waits. While the state of a
node is being changed, every view is stale about that node. When the task ends, the time is recorded, also if
it failed: a view that was requested before is not used. Comments, topology and features differ from node to
node and can take a request each; no other decision depends on them, so nothing waits for them either.

A request that was not carried out is not repeated at once, since the end of a task causes the next reconcile.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import (
    DrainNodes,
    PowerUpNodes,
    ResumeCloudNodes,
    ResumeNodes,
    UndrainNodes,
    WriteNodes,
)
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.controllers.nodeset.run.background import FORGET_SECONDS, Refusals, TaskKind
from slurm_operator.controllers.shared.problems import NodeSetProblem
from slurm_operator.slurm.decide.node_changes import (
    Done,
    Drain,
    Failed,
    NotSent,
    NotSentReason,
    ResumeCloud,
    SetState,
    Undrain,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slurm_operator.controllers.nodeset.run.background import BackgroundTasks
    from slurm_operator.controllers.nodeset.run.reconcile_state import PlannedWork
    from slurm_operator.kube.models.meta import Key
    from slurm_operator.slurm.decide.node_changes import NodeChange
    from slurm_operator.slurm.decide.node_changes import Outcome as Answer
    from slurm_operator.slurm.rest.connections import Connection

log = structlog.get_logger(__name__)

T = TypeVar("T")

# What a thousand nodes are told takes three milliseconds of the event loop, several times; and each part
# ends with another list of all nodes.
_TOLD_AT_ONCE: Final = 2500

StateChange = DrainNodes | UndrainNodes | ResumeNodes | ResumeCloudNodes | PowerUpNodes

# No fault: the node is absent or unknown now, a newer request replaced this one, or its state is not ours.
_ORDINARY: Final = frozenset(
    {
        NotSentReason.ABSENT,
        NotSentReason.UNKNOWN,
        NotSentReason.SUPERSEDED,
        NotSentReason.FOREIGN_REASON,
        NotSentReason.POWERING_UP,
    }
)


@dataclass(slots=True)
class NodeWrites:
    """Changes of Slurm nodes that are under way, done or refused.

    Without it a list that was requested before the last change is used once more, so a node may be drained or
    undrained twice; a deletion asks Slurm again anyway. Refused writes are tried again at once.
    """

    changing: dict[str, float] = field(default_factory=dict)
    """The nodes whose state is being changed, and since when."""
    written: dict[str, float] = field(default_factory=dict)
    """When this process last changed, or tried to change, the state of a node."""
    states: Refusals[tuple[str, NodeChange]] = field(default_factory=lambda: Refusals(first=5.0, longest=5.0))
    fields: Refusals[tuple[str, NodeChange]] = field(
        default_factory=lambda: Refusals(first=5.0, longest=300.0)
    )

    @property
    def invalid_before(self) -> dict[str, float]:
        """Return by node which lists say nothing about it; while its state is being changed, none does."""
        return self.written | dict.fromkeys(self.changing, math.inf)

    def tidy(self, names: frozenset[str], now: float) -> None:
        """Forget nodes that no worker has any more."""
        horizon = now - FORGET_SECONDS
        self.written = {name: at for name, at in self.written.items() if name in names or at > horizon}


class Slurm:
    """Writes to the nodes of the clusters of NodeSets."""

    def __init__(self, background: BackgroundTasks) -> None:
        self._background = background

    def recall(self, work: PlannedWork) -> None:
        """Report the writes that Slurm did not accept, as far as they are still wanted."""
        nodes = work.state.nodes
        if not nodes.states.items and not nodes.fields.items:
            return
        states: set[tuple[str, NodeChange]] = set()
        fields: set[tuple[str, NodeChange]] = set()
        for action in work.plan.actions:
            if isinstance(action, StateChange):
                states.update((name, _state_change(action)) for name in action.names)
            elif isinstance(action, WriteNodes):
                fields.update(action.changes.items())
        # For a node that was not listed since the attempt, it is unknown whether the write is still wanted.
        listed_at = None if work.seen.view is None else work.seen.view.listed_at
        nodes.states.keep(
            [
                item
                for item in nodes.states.items
                if item in states or listed_at is None or listed_at <= nodes.written.get(item[0], -math.inf)
            ]
        )
        # The plan asks for nothing until a list shows the attempt, and that a list shows nothing is no event.
        nodes.states.wait(nodes.states.items, _now(), work.outcome)
        nodes.fields.keep(fields)
        nodes.states.tell(work.outcome)
        nodes.fields.tell(work.outcome)

    # -------------------------------------------------------------------------------------------------- state
    def change_states(self, work: PlannedWork, actions: Iterable[StateChange]) -> None:
        """Drain nodes, take drains of ours back, let nodes of new pods work again."""
        connection, nodes = work.connection, work.state.nodes
        if connection is None:
            return
        changes: dict[str, NodeChange] = {}
        for action in actions:
            changes |= dict.fromkeys(action.names, _state_change(action))
        now = _now()
        waiting = nodes.states.wait(changes.items(), now, work.outcome)
        due = {
            name: change
            for name, change in changes.items()
            if (name, change) not in waiting and name not in nodes.changing
        }
        if due:
            # Before the background task begins: from here on nothing that is known about these nodes counts.
            nodes.changing |= dict.fromkeys(due, now)
            self._background.start(work.nodeset.key, TaskKind.STATE, _change(connection, due, nodes))

    # ------------------------------------------------------------------------------------------------- fields
    def tell(self, work: PlannedWork, actions: Sequence[WriteNodes]) -> None:
        """Give nodes their comment, topology and features."""
        key, connection, nodes = work.nodeset.key, work.connection, work.state.nodes
        if connection is None or self._background.busy(key, TaskKind.FIELDS):
            return
        requested = [item for action in actions for item in action.changes.items()]
        waiting = nodes.fields.wait(requested, _now(), work.outcome)
        some = [
            {name: change for name, change in action.changes.items() if (name, change) not in waiting}
            if waiting
            else action.changes
            for action in actions
        ]
        changes = [one for one in some if one]
        if changes:
            self._background.start(key, TaskKind.FIELDS, _tell(key, connection, changes, nodes))


async def _change(connection: Connection, changes: Mapping[str, NodeChange], nodes: NodeWrites) -> bool:
    answers: Mapping[str, Answer] = {}
    try:
        answers = await connection.writer.write(changes)
    finally:
        now = _now()
        for name in changes:
            nodes.changing.pop(name, None)
            # Without an answer, because it was cut off, it may have happened all the same.
            if isinstance(answers.get(name, Done()), Done | Failed):
                nodes.written[name] = now
    undone = [item for item in changes.items() if not isinstance(answers[item[0]], Done)]
    nodes.states.tried(changes.items(), undone, _trouble(answers, write_messages.CHANGE_STATE), now)
    return True


async def _tell(
    key: Key, connection: Connection, changes: Sequence[Mapping[str, NodeChange]], nodes: NodeWrites
) -> bool:
    found: NodeSetProblem | None = None
    undone: list[tuple[str, NodeChange]] = []
    for part in in_parts(changes, _TOLD_AT_ONCE):
        replies = await asyncio.gather(*(connection.writer.write(some) for some in part))
        bad = (_trouble(answers, write_messages.SET_FIELDS) for answers in replies)
        found = found or next((one for one in bad if one), None)
        undone += [
            (name, some[name])
            for some, answers in zip(part, replies, strict=True)
            for name, answer in answers.items()
            if _refused(answer)
        ]
    nodes.fields.tried([item for some in changes for item in some.items()], undone, found, _now())
    if found is not None:
        log.warning("fields of Slurm nodes were not written", nodeset=str(key), why=found.message)
    return found is not None


def in_parts(changes: Sequence[Mapping[str, T]], most: int) -> Iterator[list[dict[str, T]]]:
    """Yield the changes of each field, those of so many nodes at a time."""
    waiting = [iter(some.items()) for some in changes]
    while part := [some for one in waiting if (some := dict(islice(one, most)))]:
        yield part


def _state_change(action: StateChange) -> NodeChange:
    if isinstance(action, ResumeCloudNodes):
        return ResumeCloud()
    if isinstance(action, PowerUpNodes):
        return SetState("POWER_UP")
    if isinstance(action, ResumeNodes):
        return SetState("RESUME")
    return Undrain() if isinstance(action, UndrainNodes) else Drain(action.reason)


def _trouble(answers: Mapping[str, Answer], what: str) -> NodeSetProblem | None:
    """Return what to report about the answers, one message for all; None if there is nothing to report."""
    failed = {name: one.error for name, one in answers.items() if isinstance(one, Failed)}
    if failed:
        name = min(failed)
        text = write_messages.nodes_failed(what, len(failed), name, failed[name])
        return NodeSetProblem(Reason.SLURM_WRITE_FAILED, text)
    refused = {
        name: one.message for name, one in answers.items() if isinstance(one, NotSent) and _refused(one)
    }
    if not refused:
        return None
    name = min(refused)
    text = write_messages.nodes_not_sent(what, len(refused), name, refused[name])
    return NodeSetProblem(Reason.SLURM_WRITE_HELD, text)


def _refused(answer: Answer) -> bool:
    """Return whether a write must be tried again later, and be reported."""
    return isinstance(answer, Failed) or (isinstance(answer, NotSent) and answer.reason not in _ORDINARY)


def _now() -> float:
    return asyncio.get_running_loop().time()
