"""Say how a NodeSet is: its status, its conditions, and Events about what is new.

What the plan says comes first (`status.report`); what went wrong while it was carried out is added to the
condition `Degraded`. Counts that change while a thousand pods start are written at most every half second,
and always once more at the end; a condition that turns is written at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import ConditionStatus, find_condition
from slurm_operator.controllers.nodeset.decide import messages, status
from slurm_operator.controllers.nodeset.decide.scale import CREATING
from slurm_operator.controllers.nodeset.run.background import costed, run_decision
from slurm_operator.controllers.shared.conditions import stalled
from slurm_operator.controllers.shared.pod_problems import complaint
from slurm_operator.controllers.shared.status_writer import StatusWriter
from slurm_operator.kube.decide.own_writes import LastWrites, newer
from slurm_operator.kube.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api.shared import Condition
    from slurm_operator.controllers.nodeset.decide.actions import Note
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.run.reconcile_state import PlannedWork, ReconcileOutcome
    from slurm_operator.controllers.shared.problems import NodeSetProblem
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Key
    from slurm_operator.kube.runtime.events import EventRecorder

FIELD_MANAGER: Final = f"{wellknown.FIELD_MANAGER}-nodeset"
_SECONDS_BETWEEN: Final = 0.5
# If the change behind a conflict sends no event to us.
_AFTER_CONFLICT: Final = 1.0
_SHOWN: Final = 3
# For how many seconds a pod may wait for a node before that is reported.
_PATIENCE: Final = 30.0
# The action of each Event about a problem.
_ACTIONS: Final = {
    Reason.SYNC_FAILED: "Sync",
    Reason.CONTROLLER_REF_FAILED: "Info",
    Reason.SYNC_FINALIZER_FAILED: "SyncFinalizer",
}


@dataclass(slots=True)
class Reported:
    """What was reported last. Without it the same Events are sent once more, which Kubernetes counts."""

    at: float = 0.0
    """When the status was last written."""
    notes: frozenset[Note] = frozenset()
    """What the last plan had to tell, so that it is not told again while nothing else happens."""
    reasons: frozenset[str] = frozenset()
    """Of the troubles of the last reconcile."""
    late: dict[NodeSetProblem, None] = field(default_factory=dict)
    """What went wrong in the last reconcile after the status was written."""


class NodeSetReporter:
    """Writes the status of NodeSets."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._client = client
        self._events = events
        self._status = StatusWriter(client, FIELD_MANAGER)
        self._changes: LastWrites[NodeSet] = LastWrites()

    def newest(self, live: NodeSet) -> NodeSet:
        """Return a NodeSet as it was last seen: in the cache, or in the answer to our own last write."""
        known, changed = self._status.newest(live), self._changes.newest(live)
        return changed if newer(changed, known) else known

    def answered(self, answer: NodeSet) -> None:
        """Take a NodeSet as the API server answered a change of it other than of its status."""
        self._changes.note(answer)

    async def read(self, nodeset: NodeSet) -> NodeSet:
        """Return a NodeSet as the API server has it now; the next reconcile sees it so, too."""
        newest = await self._client.get(NodeSet, nodeset.metadata.name, nodeset.metadata.namespace)
        self._changes.note(newest)
        return newest

    def forget(self, key: Key) -> None:
        """Drop the memory of a NodeSet that is gone."""
        self._status.forget(NodeSet, key)
        self._changes.forget(NodeSet, key)

    async def say(self, work: PlannedWork) -> None:
        """Write the status that belongs to what was seen, decided and done, and tell what is new."""
        collisions = work.state.revisions.collision_count
        work.outcome.troubles |= work.state.reported.late
        _note_pods(work, await run_decision(work.seen, lambda: _not_running(work.seen)))
        said, cost = await run_decision(
            work.seen, lambda: costed(lambda: status.report(work.seen, work.plan, collisions))
        )
        work.state.pace.reported(cost)
        await self._write(work, said.fields, conditions(work.nodeset, said.conditions, work.outcome))
        self._tell(work)

    def say_later(self, work: PlannedWork, troubles: Iterable[NodeSetProblem]) -> None:
        """Report what went wrong after the status was written, with the next status."""
        work.state.reported.late = dict.fromkeys(troubles)

    async def _write(self, work: PlannedWork, fields: dict[str, Any], conditions: list[Condition]) -> None:
        reported, now = work.state.reported, asyncio.get_running_loop().time()
        newest = self._status.newest(work.nodeset)
        turned = newest.status.observed_generation != fields["observedGeneration"] or any(
            (old := find_condition(newest.status.conditions, one.type)) is None or old.status != one.status
            for one in conditions
        )
        wait = reported.at + _SECONDS_BETWEEN - now
        if wait > 0 and not turned:
            work.outcome.requeue_after(wait)
            return
        # Some conditions continue what the status has: with the one from before a restart, as a stale cache
        # may show it, they would be lost.
        version = self.newest(work.nodeset).metadata.resource_version
        try:
            if await self._status.write(work.nodeset, *conditions, version=version, **fields):
                reported.at = now
        except Conflict:
            work.outcome.requeue_after(_AFTER_CONFLICT)

    def _tell(self, work: PlannedWork) -> None:
        notes, reported = work.plan.notes, work.state.reported
        if work.template is None:
            notes = tuple(note for note in notes if note.reason not in CREATING)
        for note in dict.fromkeys(notes):
            if note not in reported.notes:
                self._note(work, note)
        reported.notes = frozenset(notes)
        # By the reason alone: counts and names in the sentences change all the time while things go wrong.
        for trouble in work.outcome.troubles:
            if trouble.reason not in reported.reasons:
                self._complain(work.nodeset, trouble)
        reported.reasons = frozenset(trouble.reason for trouble in work.outcome.troubles)

    def _note(self, work: PlannedWork, note: Note) -> None:
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

    def _complain(self, nodeset: NodeSet, trouble: NodeSetProblem) -> None:
        self._events.event(nodeset, "Warning", trouble.event, _ACTIONS[trouble.event], trouble.message)


def _not_running(seen: Observation) -> dict[str, str] | None:
    """Return why pods do not run although they should by now, by name; None if all run."""
    waiting = [one for one in seen.workers if not (one.ready or one.deleting or one.finished)]
    placed_by = seen.wall - timedelta(seconds=_PATIENCE)
    found = {one.name: said for one in waiting if (said := complaint(one.pod, placed_by))}
    return found if waiting else None


def _note_pods(work: PlannedWork, found: dict[str, str] | None) -> None:
    """Note that pods do not run although they should by now."""
    if found is None:
        return
    if found:
        name = min(found)
        text = messages.pods_not_running(len(found), name, found[name])
        work.outcome.trouble(Reason.PODS_FAILING, text)
    # That time has passed is no event.
    work.outcome.requeue_after(_PATIENCE)


def conditions(nodeset: NodeSet, said: Iterable[Condition], outcome: ReconcileOutcome) -> list[Condition]:
    """Return what the plan says, with what went wrong while it was carried out."""
    found = [_of(nodeset, degraded(one, outcome)) for one in said]
    (bad,) = (one for one in found if one.type == wellknown.CONDITION_DEGRADED)
    return [*found, stalled(nodeset, bad)]


def degraded(one: Condition, outcome: ReconcileOutcome) -> Condition:
    """Put what went wrong in front of what the plan says is wrong."""
    if one.type != wellknown.CONDITION_DEGRADED or not outcome.troubles:
        return one
    troubles = [*outcome.troubles]
    texts = [trouble.message for trouble in troubles[:_SHOWN]]
    if len(troubles) > _SHOWN:
        texts.append(messages.more_problems(len(troubles) - _SHOWN))
    if one.status == ConditionStatus.TRUE:
        texts.append(one.message)
    return msgspec.structs.replace(
        one, status=ConditionStatus.TRUE.value, reason=troubles[0].reason.value, message="; ".join(texts)
    )


def _of(nodeset: NodeSet, one: Condition) -> Condition:
    return msgspec.structs.replace(one, observed_generation=nodeset.metadata.generation)
