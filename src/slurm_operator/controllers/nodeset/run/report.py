"""Say how a NodeSet is: its status, its conditions, and Events about what is new.

What the plan says comes first (`status.report`); what went wrong while it was carried out is added to the
condition `Degraded`. Counts that change while a thousand pods start are written at most every half second,
and always once more at the end; a condition that turns is written at once.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.api.shared import ConditionStatus, find_condition
from slurm_operator.controllers.conditions import StatusWriter, stalled
from slurm_operator.controllers.nodeset.decide import status
from slurm_operator.controllers.nodeset.run.one_pass import FINALIZERS, aside
from slurm_operator.controllers.nodeset.run.state import newer
from slurm_operator.controllers.nodeset.run.template import CONTROLLER_REF
from slurm_operator.controllers.workload.pods import complaint
from slurm_operator.controllers.workload.verdict import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api.shared import Condition
    from slurm_operator.controllers.nodeset.decide.actions import Note
    from slurm_operator.controllers.nodeset.run.one_pass import Outcome, Trouble, Work
    from slurm_operator.kube.client import Client
    from slurm_operator.kube.events import EventRecorder
    from slurm_operator.kube.meta import Key

FIELD_MANAGER: Final = f"{wellknown.FIELD_MANAGER}-nodeset"
_SECONDS_BETWEEN: Final = 0.5
_SHOWN: Final = 3
# For how many seconds a pod may wait for a node before that is reported.
_PATIENCE: Final = 30.0
# What the plan says about pods to make, which is not news while none can be made.
_MAKING: Final = "ScalingUp"
# Reason and action of what is told under another reason than SyncFailed, by how it begins.
_OWN_EVENTS: Final = {
    f"{CONTROLLER_REF}:": ("ControllerRefFailed", "Info"),
    FINALIZERS: ("SyncFinalizerFailed", "SyncFinalizer"),
}


class Reporter:
    """Writes the status of NodeSets."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._events = events
        self._status = StatusWriter(client, FIELD_MANAGER)
        self._answers: dict[Key, NodeSet] = {}

    def newest(self, live: NodeSet) -> NodeSet:
        """Return a NodeSet as it was last seen: in the cache, or in the answer to our own last write."""
        known = self._status.newest(live)
        answer = self._answers.get(live.key)
        if answer is None:
            return known
        if answer.metadata.uid == live.metadata.uid and newer(answer, live):
            return answer if newer(answer, known) else known
        del self._answers[live.key]
        return known

    def answered(self, answer: NodeSet) -> None:
        """Take a NodeSet as the API server answered a change of it, its status aside."""
        self._answers[answer.key] = answer

    def forget(self, key: Key) -> None:
        """Drop the memory of a NodeSet that is gone."""
        self._status.forget(NodeSet, key)
        self._answers.pop(key, None)

    async def say(self, work: Work) -> None:
        """Write the status that belongs to what was seen, decided and done, and tell what is new."""
        known = work.memory.history
        collisions = None if known is None else known.history.collision_count or None
        _note_pods(work)
        said = await aside(work.seen, lambda: status.report(work.seen, work.plan, collisions))
        await self._write(work, said.fields, conditions(work.nodeset, said.conditions, work.outcome))
        self._tell(work)

    async def _write(self, work: Work, fields: dict[str, Any], conditions: list[Condition]) -> None:
        memory, now = work.memory, asyncio.get_running_loop().time()
        newest = self._status.newest(work.nodeset)
        turned = newest.status.observed_generation != fields["observedGeneration"] or any(
            (old := find_condition(newest.status.conditions, one.type)) is None or old.status != one.status
            for one in conditions
        )
        wait = memory.reported + _SECONDS_BETWEEN - now
        if wait > 0 and not turned:
            work.outcome.look(wait)
            return
        if await self._status.write(work.nodeset, *conditions, **fields):
            memory.reported = now

    def _tell(self, work: Work) -> None:
        notes = work.plan.notes
        if work.template is None:
            notes = tuple(note for note in notes if note.reason != _MAKING)
        for note in dict.fromkeys(notes):
            if note not in work.memory.said:
                self._note(work, note)
        work.memory.said = frozenset(notes)
        # By the reason alone: counts and names in the sentences change with every pass while things go wrong.
        for trouble in work.outcome.troubles:
            if trouble.reason not in work.memory.complained:
                self._complain(work.nodeset, trouble)
        work.memory.complained = frozenset(trouble.reason for trouble in work.outcome.troubles)

    def _note(self, work: Work, note: Note) -> None:
        related = (
            next((one.pod for one in work.seen.workers if one.name == note.pod), None) if note.pod else None
        )
        self._events.event(
            work.nodeset,
            "Warning" if note.warning else "Normal",
            note.reason,
            note.action,
            note.message,
            related,
        )

    def _complain(self, nodeset: NodeSet, trouble: Trouble) -> None:
        reason, action = "SyncFailed", "Sync"
        for start, event in _OWN_EVENTS.items():
            if trouble.message.startswith(start):
                reason, action = event
        self._events.event(nodeset, "Warning", reason, action, trouble.message)


def _note_pods(work: Work) -> None:
    """Note that pods do not run although they should by now."""
    waiting = [one for one in work.seen.workers if not (one.ready or one.deleting or one.finished)]
    if not waiting:
        return
    placed_by = work.seen.wall - timedelta(seconds=_PATIENCE)
    found = {one.name: said for one in waiting if (said := complaint(one.pod, placed_by))}
    if found:
        name = min(found)
        text = f"{len(found)} pods do not run, such as {name!r}: {found[name]}"
        work.outcome.trouble(Cause.PODS, text)
    # That time has passed is no event.
    work.outcome.look(_PATIENCE)


def conditions(nodeset: NodeSet, said: Iterable[Condition], outcome: Outcome) -> list[Condition]:
    """Return what the plan says, with what went wrong while it was carried out."""
    found = [_of(nodeset, degraded(one, outcome)) for one in said]
    (bad,) = (one for one in found if one.type == wellknown.CONDITION_DEGRADED)
    return [*found, stalled(nodeset, bad)]


def degraded(one: Condition, outcome: Outcome) -> Condition:
    """Put what went wrong in front of what the plan says is wrong."""
    if one.type != wellknown.CONDITION_DEGRADED or not outcome.troubles:
        return one
    troubles = [*outcome.troubles]
    texts = [trouble.message for trouble in troubles[:_SHOWN]]
    if len(troubles) > _SHOWN:
        texts.append(f"and {len(troubles) - _SHOWN} more")
    if one.status == ConditionStatus.TRUE:
        texts.append(one.message)
    return msgspec.structs.replace(
        one, status=ConditionStatus.TRUE.value, reason=troubles[0].reason, message="; ".join(texts)
    )


def _of(nodeset: NodeSet, one: Condition) -> Condition:
    return msgspec.structs.replace(one, observed_generation=nodeset.metadata.generation)
