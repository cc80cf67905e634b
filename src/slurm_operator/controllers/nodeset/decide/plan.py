"""From what is seen to what is done.

The order matters where two decisions meet. Which pods are to be removed is settled first: by number or by
node, then by the update with what `maxUnavailable` leaves, then by registration with the rest. Then each pod
pending removal is either deleted, or blocked with a reason and kept from new work. The upkeep of the other
pods comes last: a pod whose time has come, and whose Slurm node was seen drained a moment ago, does not wait
until others have their labels. While the cache of pods is behind our own writes, or the pods of the NodeSet
are otherwise uncertain, workers are not counted, and only the upkeep continues.

The plan of a state that is as it should be is empty.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.nodeset.decide import (
    autoscale,
    finalizer,
    messages,
    node_records,
    pod_status,
    protection,
    reservation,
    scale,
)
from slurm_operator.controllers.nodeset.decide.actions import (
    Allow,
    Blocked,
    CreatePod,
    Decision,
    Defer,
    DeletePod,
    Note,
    OwnClaim,
    PatchPod,
    PatchPodStatus,
    Proof,
    ReleasePod,
    RemovalCause,
    WriteNodes,
)
from slurm_operator.controllers.nodeset.decide.claims import own_claims, restore
from slurm_operator.controllers.nodeset.decide.cordon import Changes, Cordons, cordons
from slurm_operator.controllers.nodeset.decide.deletion import may_delete
from slurm_operator.controllers.nodeset.decide.memo import NO_UPKEEP
from slurm_operator.controllers.nodeset.decide.pod_status import JUST_NOW_SECONDS, PodConditionUpdates
from slurm_operator.controllers.nodeset.decide.scale import Demand, defer_creates, numbered
from slurm_operator.controllers.nodeset.decide.scale_per_node import per_node
from slurm_operator.controllers.nodeset.decide.slurm_state import (
    FIRST_ANSWER_SECONDS,
    SlurmState,
    slurm_state_of,
)
from slurm_operator.controllers.nodeset.decide.status import problems
from slurm_operator.controllers.nodeset.decide.update import register_again, update
from slurm_operator.slurm.decide.node_changes import Comment, field_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.slurm.decide.node_changes import NodeChange, NodeField


# What a blocked removal waits for is mostly a change in Slurm, which triggers a reconcile; sometimes it is
# only a time that passes, or a list that is trusted at last. So a NodeSet with blocked workers is requeued.
BLOCKED_SECONDS: Final = 30.0
# A deletion that was not confirmed leaves no trace.
UNCONFIRMED_SECONDS: Final = 10.0

# No pod follows one that is removed for these.
_FOR_GOOD: Final = frozenset({RemovalCause.SCALE_IN, RemovalCause.DELETION})

# Events that the Slinky slurm-operator records under another reason than the condition here has.
_EVENTS: Final = {Reason.CLAIM_CONFLICT: Reason.CONFLICTING_CONTROLLER}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, what must wait and why, and when to reconcile again without an event."""

    actions: tuple[Action, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    waits: tuple[Defer, ...] = ()
    notes: tuple[Note, ...] = ()
    requeue: float | None = None
    desired: int = 0
    going: dict[str, RemovalCause] = field(default_factory=dict)
    unfinished: bool = False
    """More pods are to be created than this plan creates: the next one is to follow at once."""

    @property
    def moves(self) -> bool:
        """Return whether workers come or go, or wait to: events may let the next ones follow.

        Those that start and are not registered yet are only waited for.
        """
        wanted = any(one.cause is not RemovalCause.REGISTRATION for one in self.blocked)
        return bool(wanted or self.going or self.waits) or not all(
            isinstance(action, PatchPod | PatchPodStatus | WriteNodes) for action in self.actions
        )

    @property
    def only_deletes(self) -> bool:
        """Return whether pods are deleted that Slurm says are idle, and none is created in their place."""
        deletes = any(isinstance(one, DeletePod) and one.proof is not Proof.NONE for one in self.actions)
        creates = any(isinstance(one, CreatePod) for one in self.actions)
        return deletes and not creates and {*self.going.values()} <= _FOR_GOOD

    @property
    def removals_wait(self) -> bool:
        """Return whether Slurm's next answer may let workers be removed.

        Mostly jobs are on them; or so many are deleted that the list of nodes grows too old meanwhile.
        """
        return any(one.cause not in (None, RemovalCause.REGISTRATION) for one in self.blocked) or any(
            isinstance(one, DeletePod | ReleasePod) and one.proof is not Proof.NONE for one in self.actions
        )


@dataclass(slots=True)
class _Draft:
    """A plan in the making: what was decided so far, by the stage in which it is carried out."""

    demand: Demand
    before: list[Action] = field(default_factory=list)
    cordons: Cordons = field(default_factory=Cordons)
    deletions: list[Action] = field(default_factory=list)
    patches: list[Action] = field(default_factory=list)
    statuses: list[Action] = field(default_factory=list)
    writes: list[Action] = field(default_factory=list)
    after: list[Action] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    requeue_after: list[float] = field(default_factory=list)

    @property
    def deleted(self) -> set[str]:
        """Return the UIDs of the pods to delete."""
        return {one.uid for one in self.deletions if isinstance(one, DeletePod)}


def plan(seen: Observation) -> Plan:
    """Decide what to do about a NodeSet."""
    slurm = slurm_state_of(seen)
    if seen.nodeset.deleting:
        return _leave(seen, slurm)
    before: list[Action] = [*finalizer.record(seen), *finalizer.guard(seen)]
    if not seen.settled:
        return _finish(seen, slurm, _Draft(Demand(_desired(seen)), before))
    demand = _demand(seen, slurm)
    if slurm.budget is not None:
        defer_creates(demand, slurm.budget)
    protection.carry_out(seen, slurm, demand)
    budget = update(seen, slurm, demand)
    unregistered = register_again(seen, slurm, demand, budget)
    before += demand.creates
    before += reservation.reserve(seen, slurm)
    records = node_records.records(seen, slurm, demand)
    before += records.before
    demand.notes += records.notes
    demand.waits += records.waits
    demand.requeue_after += records.requeue_after
    draft = _Draft(demand, before, after=[*records.deletes], blocked=unregistered)
    _carry_out(seen, slurm, draft)
    return _finish(seen, slurm, draft)


def _demand(seen: Observation, slurm: SlurmState) -> Demand:
    """Return which workers are wanted: by node, by Slurm's power saving, or by number."""
    if seen.daemon:
        return per_node(seen)
    if seen.nodeset.autoscaled:
        return autoscale.powered(seen, slurm)
    demand = numbered(seen, slurm)
    node_records.wait_for_records(seen, slurm, demand)
    return demand


def _leave(seen: Observation, slurm: SlurmState) -> Plan:
    """Decide about a NodeSet that is being deleted."""
    if finalizer.lets_go(seen):
        # The pods need not be waited for; but once the NodeSet is gone, nothing deletes its reservation.
        bare = finalizer.unprotect(seen)
        parting = [
            *bare,
            *([] if bare else finalizer.release(seen, wellknown.FINALIZER_DRAIN)),
            *reservation.reserve(seen, slurm),
        ]
        waits = bare or reservation.open_ended(seen)
        return Plan(tuple(parting), requeue=BLOCKED_SECONDS if waits else None)
    demand = Demand(0)
    demand.going = {worker.uid: RemovalCause.DELETION for worker in seen.workers if worker.active}
    after = reservation.reserve(seen, slurm)
    waiting = node_records.left(seen, slurm)
    if waiting:
        after += node_records.leftovers(seen, slurm)
        demand.requeue_after.append(UNCONFIRMED_SECONDS)
        demand.waits.append(Defer(Reason.RECORD_PENDING, messages.DELETING_RECORDS))
    if not seen.workers and seen.settled and not waiting:
        after += finalizer.release(seen, wellknown.FINALIZER_DRAIN)
    before = finalizer.record(seen)
    demand.waits += finalizer.unreachable(seen, slurm)
    if not seen.settled:
        return _finish(seen, slurm, _Draft(demand, before))
    draft = _Draft(demand, before, after=after)
    _carry_out(seen, slurm, draft)
    return _finish(seen, slurm, draft)


def _carry_out(seen: Observation, slurm: SlurmState, draft: _Draft) -> None:
    """Delete the pods pending removal that may be deleted, block the rest, and see to cordons and drains."""
    demand = draft.demand
    volumes = bool(seen.claims or seen.nodeset.spec.volume_claim_templates)
    for worker in seen.workers:
        if not worker.active:
            continue
        cause, claims = demand.going.get(worker.uid), list[OwnClaim]()
        if volumes:
            claims, conflicts = own_claims(seen, worker, cause)
            draft.before += claims
            demand.waits += conflicts
            if cause is None:
                draft.before += restore(seen, worker)
        if cause is None:
            continue
        decision = _decide(seen, slurm, worker, claims)
        draft.decisions[worker.uid] = decision
        if isinstance(decision, Allow):
            draft.deletions.append(_delete(seen, worker, cause, decision))
        else:
            draft.blocked.append(Blocked(worker.name, worker.slurm_name, cause, decision))
    gone = draft.deleted
    stay = [worker for worker in seen.workers if worker.active and worker.uid not in gone]
    draft.cordons = cordons(seen, slurm, stay, demand.going)
    for worker in stay:
        if worker.cordoned and worker.uid not in demand.going:
            released = protection.release(
                worker, slurm, cordoned=_stays_cordoned(worker, draft.cordons.changes.get(worker.uid))
            )
            draft.deletions += [] if released is None else [released]
    _note_scale_in(seen, demand)


def _decide(seen: Observation, slurm: SlurmState, worker: Worker, claims: Sequence[Action]) -> Decision:
    """Return whether a pod pending removal may be deleted now."""
    decision = _awaited(seen, slurm, worker) or may_delete(worker, slurm, seen.wall)
    if isinstance(decision, Defer) and slurm.unheard(worker.slurm_name):
        # Blocked all the same; a restart changes nothing, so the condition of the pod stays as it is.
        decision = pod_status.recorded_wait(worker) or decision
    if isinstance(decision, Allow) and claims:
        decision = Defer(Reason.CLAIMS_PENDING, messages.OWNING_CLAIMS)
    return decision


def _awaited(seen: Observation, slurm: SlurmState, worker: Worker) -> Defer | None:
    """Say that a job may wait for a pod that was never scheduled, if no other pod would come in its place."""
    nodeset = seen.nodeset
    if worker.scheduled or worker.ordinal is None:
        return None
    if nodeset.autoscaled and not nodeset.deleting and worker.ordinal < nodeset.most_replicas:
        return None
    if not (nodeset.autoscaled or node_records.leaves(seen)):
        return None
    if (blind := slurm.blind(worker.slurm_name)) is not None:
        return blind
    if autoscale.power(slurm, worker.slurm_name) is not autoscale.Power.POWERING_UP:
        return None
    return Defer(Reason.POWERING_UP, messages.awaited(worker.slurm_name))


def _delete(seen: Observation, worker: Worker, cause: RemovalCause, decision: Allow) -> DeletePod:
    return DeletePod(
        worker.name,
        worker.uid,
        worker.slurm_name,
        cause,
        decision.because,
        worker.version if decision.unchanged else "",
        decision.proof,
        scale.failures(worker, seen.wall) if cause is RemovalCause.FINISHED else 0,
    )


def _keep_up(seen: Observation, slurm: SlurmState, draft: _Draft) -> None:
    """Add what the pods that stay for now and their Slurm nodes need: labels, conditions, comments."""
    cordoned, gone = draft.cordons, draft.deleted
    first: list[Action] = []
    fields: defaultdict[NodeField, dict[str, NodeChange]] = defaultdict(dict)
    telling = PodConditionUpdates(seen, slurm, (*draft.before, *cordoned.actions))
    memo = seen.memo.upkeep
    # All that the upkeep of a worker takes from anything but its own objects.
    memo.begin((seen.nodeset.metadata.uid, slurm.protects, slurm.deadlines, seen.settled))
    nodes, changes_of, decisions = seen.nodes, cordoned.changes, draft.decisions
    for worker in seen.workers:
        uid = worker.uid
        if worker.deleting or uid in gone:
            continue
        cordon, decision = changes_of.get(uid), decisions.get(uid)
        later = telling.waits(worker, cordon, decision)
        grounds = (worker.pod, nodes.get(worker.node), *slurm.grounds(worker.slurm_name), later)
        # Of a cordoned worker more has to be known than these grounds.
        follows = cordon is None and decision is None and not worker.cordoned
        known = memo.known(uid, grounds) if follows else None
        if known is None:
            patch = _patch(seen, slurm, worker, cordon)
            status = _status(seen, slurm, worker, decision) if seen.settled and not later else []
            changes = pod_status.changes(seen, slurm, worker)
            changes = [change for change in changes if not (later and isinstance(change, Comment))]
            if follows and not _expires(worker):
                known = (patch, status, changes) if patch or status or changes else NO_UPKEEP
                memo.note(uid, grounds, known)
        elif known is NO_UPKEEP:
            continue
        else:
            patch, status, changes = known
        (draft.patches if cordon is None else first).extend(patch)
        draft.statuses += status
        for change in changes:
            fields[field_of(change)].setdefault(worker.slurm_name, change)
    draft.before += first
    draft.writes = [WriteNodes(dict(sorted(some.items()))) for _, some in sorted(fields.items())]
    if draft.deletions or telling.moving:
        draft.requeue_after.append(UNCONFIRMED_SECONDS)
    if telling.put_off:
        draft.requeue_after.append(JUST_NOW_SECONDS)


def _finish(seen: Observation, slurm: SlurmState, draft: _Draft) -> Plan:
    """Add the upkeep of the pods that stay for now, and put everything in order."""
    _keep_up(seen, slurm, draft)
    demand, cordoned = draft.demand, draft.cordons
    waits = [*demand.waits, *slurm.shared.values()]
    if not seen.settled:
        waits.append(Defer(Reason.CACHE_BEHIND, messages.CACHE_BEHIND))
    # Most cordons have their drain already, and only Slurm can say which have not.
    undrained = [one for one in cordoned.blocked if not slurm.unheard(one.slurm_name)]
    blocked = (*draft.blocked, *undrained)
    requeue_after = [*demand.requeue_after, *draft.requeue_after, *_until_available(seen)]
    blind = not slurm.sees or any(slurm.blind(one.slurm_name) for one in seen.workers)
    if blind or any(one.cause for one in blocked) or reservation.open_ended(seen):
        requeue_after.append(BLOCKED_SECONDS)
    if slurm.unasked:
        requeue_after.append(FIRST_ANSWER_SECONDS)
    return Plan(
        actions=(
            *draft.before,
            *cordoned.actions,
            *draft.deletions,
            *draft.patches,
            *draft.statuses,
            *draft.writes,
            *draft.after,
        ),
        blocked=blocked,
        waits=tuple(waits),
        notes=(*demand.notes, *cordoned.notes, *_complaints(seen, waits)),
        requeue=min(requeue_after, default=None),
        desired=demand.desired,
        going=demand.going,
        unfinished=demand.unfinished,
    )


def _desired(seen: Observation) -> int:
    counted = seen.daemon or seen.nodeset.autoscaled
    return seen.nodeset.status.desired if counted else seen.nodeset.wanted_replicas


def _patch(seen: Observation, slurm: SlurmState, worker: Worker, cordon: Changes | None) -> list[Action]:
    labels = pod_status.labels(seen, slurm, worker, cordoned=_stays_cordoned(worker, cordon))
    annotations = pod_status.remarks(seen, slurm, worker)
    # A request may have been repeated meanwhile: what was not seen must not be taken away.
    guarded = annotations.get(wellknown.ANNOTATION_REMOVAL_REQUESTED, "") is None
    if cordon is not None:
        annotations |= cordon.annotations
        guarded |= cordon.guarded
    tolerations = pod_status.tolerations(slurm, worker)
    guarded |= bool(tolerations)
    if not labels and not annotations and not tolerations:
        return []
    version = worker.version if guarded else ""
    return [PatchPod(worker.name, worker.uid, labels, annotations, version, tolerations)]


def _stays_cordoned(worker: Worker, cordon: Changes | None) -> bool:
    """Return whether a worker is cordoned, and will be when its annotations are changed."""
    changed = {} if cordon is None else cordon.annotations
    return worker.cordoned and changed.get(wellknown.ANNOTATION_POD_CORDON, wellknown.TRUE) is not None


def _expires(worker: Worker) -> bool:
    """Return whether time alone may change what is decided about a worker: it has a request."""
    return worker.request is not None or worker.disruption is not None


def _status(seen: Observation, slurm: SlurmState, worker: Worker, decision: Decision | None) -> list[Action]:
    # Before slurmd has started, what Slurm has under that name is left from the pod before. That it has
    # started is seen by the kubelet, or by Slurm, which then has the UID of the pod.
    node = slurm.node(worker.slurm_name)
    if node is not None and not worker.started and node.instance_id != worker.uid:
        node = None
    wanted = [*pod_status.state_conditions(node)] if node is not None else []
    if decision is not None:
        wanted.append(pod_status.safe_condition(decision))
    new, gone = pod_status.changed_conditions(worker, wanted, states_known=node is not None, wall=seen.wall)
    return [PatchPodStatus(worker.name, worker.uid, new, gone)] if new or gone else []


def _until_available(seen: Observation) -> list[float]:
    """Return the times until pods become available if they stay ready."""
    seconds = seen.nodeset.spec.min_ready_seconds
    if not seconds:
        return []
    waiting = (
        (worker.available_at(seconds) - seen.wall).total_seconds()
        for worker in seen.workers
        if worker.healthy
    )
    return [time for time in waiting if time > 0]


def _complaints(seen: Observation, waits: list[Defer]) -> list[Note]:
    """Return an event for each kind of trouble that the NodeSet does not show yet."""
    told = find_condition(seen.nodeset.status.conditions, wellknown.CONDITION_DEGRADED)
    return [
        Note(_EVENTS.get(reason, reason), "Info", text, warning=True)
        for reason, text in problems(waits).items()
        if told is None or text not in told.message
    ]


def _note_scale_in(seen: Observation, demand: Demand) -> None:
    marks = wellknown.ANNOTATION_POD_CORDON_BY
    fresh = [
        worker.name
        for worker in seen.workers
        if demand.going.get(worker.uid) is RemovalCause.SCALE_IN
        and worker.annotations.get(marks) != RemovalCause.SCALE_IN
    ]
    if fresh:
        text = messages.removing_to_reach(len(fresh), demand.desired)
        demand.notes.append(Note(Reason.SCALING_DOWN, "ScaleDown", text))
