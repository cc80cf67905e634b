"""From what is seen to what is done.

The order matters where two decisions meet. Who has to go is settled first: by number or by node, then by the
update with what `maxUnavailable` leaves, then by registration with the rest. Then each pod that has to go is
either deleted, or held with a reason and kept from new work. What stays is looked after, last of all: a pod
whose time has come, and whose Slurm node was seen drained a moment ago, does not wait until others have their
labels. While the cache of pods is behind our own writes, or the pods of the NodeSet are otherwise uncertain,
workers are not counted, and only the upkeep continues.

The plan of a state that is as it should be is empty.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.nodeset.decide import (
    finalizer,
    pod_metadata,
    pod_status,
    protection,
    removal_requests,
    reservation,
    scale,
)
from slurm_operator.controllers.nodeset.decide.actions import (
    Allow,
    Cause,
    Decision,
    DeletePod,
    Held,
    Hold,
    Note,
    PatchPod,
    PatchPodStatus,
    Wait,
    WriteNodes,
    troubles,
)
from slurm_operator.controllers.nodeset.decide.claims import own_claims, restore
from slurm_operator.controllers.nodeset.decide.cordon import Changes, Cordons, cordons
from slurm_operator.controllers.nodeset.decide.deletion import may_delete
from slurm_operator.controllers.nodeset.decide.node_records import prune
from slurm_operator.controllers.nodeset.decide.pod_status import JUST_NOW_SECONDS, Telling
from slurm_operator.controllers.nodeset.decide.scale import Demand, hold_creates, numbered
from slurm_operator.controllers.nodeset.decide.scale_per_node import per_node
from slurm_operator.controllers.nodeset.decide.slurm_state import FIRST_ANSWER_SECONDS, Sight, look
from slurm_operator.controllers.nodeset.decide.update import register_again, update
from slurm_operator.slurm.wishes import Comment, field_of

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.slurm.wishes import Field, Wish


# What a hold waits for is mostly seen in Slurm, and then the NodeSet is looked at; some is only a time that
# passes, or a list that is believed at last. So whatever is held is looked at again, called or not.
HELD_SECONDS: Final = 30.0
# A deletion that was not confirmed leaves no trace.
UNCONFIRMED_SECONDS: Final = 10.0


# Events that the Slinky slurm-operator records under another reason than the condition here has.
_EVENTS: Final = {Wait.CLAIM_CONFLICT.value: "ConflictingController"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, what must wait and why, and when to look again without being called."""

    actions: tuple[Action, ...] = ()
    holds: tuple[Held, ...] = ()
    waits: tuple[Hold, ...] = ()
    notes: tuple[Note, ...] = ()
    requeue: float | None = None
    desired: int = 0
    going: dict[str, Cause] = field(default_factory=dict)


def plan(seen: Observation) -> Plan:
    """Decide what to do about a NodeSet."""
    sight = look(seen)
    if seen.nodeset.deleting:
        return _leave(seen, sight)
    before: list[Action] = [*finalizer.record(seen), *finalizer.guard(seen)]
    if not seen.settled:
        return _finish(seen, sight, Demand(_desired(seen)), before, Cordons(), counted=False)
    demand = per_node(seen) if seen.daemon else numbered(seen, sight)
    if sight.budget is not None:
        hold_creates(demand, sight.budget)
    removal_requests.carry_out(seen, sight, demand)
    budget = update(seen, sight, demand)
    unregistered = register_again(seen, sight, demand, budget)
    before += demand.creates
    before += reservation.reserve(seen, sight)
    records, notes = prune(seen, sight, demand)
    demand.notes += notes
    return _carry_out(seen, sight, demand, before, list(records), unregistered)


def _leave(seen: Observation, sight: Sight) -> Plan:
    """Decide about a NodeSet that is being deleted."""
    if finalizer.lets_go(seen):
        # The pods need not be waited for; but once the NodeSet is gone, nothing deletes its reservation.
        bare = finalizer.unprotect(seen)
        parting = [
            *bare,
            *([] if bare else finalizer.release(seen, wellknown.FINALIZER_DRAIN)),
            *reservation.reserve(seen, sight),
        ]
        waits = bare or reservation.open_ended(seen)
        return Plan(tuple(parting), requeue=HELD_SECONDS if waits else None)
    demand = Demand(0)
    demand.going = {worker.uid: Cause.DELETION for worker in seen.workers if worker.active}
    after = reservation.reserve(seen, sight)
    if not seen.workers and seen.settled:
        after += finalizer.release(seen, wellknown.FINALIZER_DRAIN)
    before = finalizer.record(seen)
    demand.waits += finalizer.unreachable(seen, sight)
    if not seen.settled:
        return _finish(seen, sight, demand, before, Cordons(), counted=False)
    return _carry_out(seen, sight, demand, before, after, [])


def _carry_out(
    seen: Observation,
    sight: Sight,
    demand: Demand,
    before: list[Action],
    after: list[Action],
    held: list[Held],
) -> Plan:
    """Delete what has to go and may, hold the rest, and see to cordons and drains."""
    deletions: list[Action] = []
    decisions: dict[str, Decision] = {}
    owned: list[Action] = []
    for worker in seen.workers:
        if not worker.active:
            continue
        cause = demand.going.get(worker.uid)
        claims, conflicts = own_claims(seen, worker, cause)
        owned += claims
        demand.waits += conflicts
        if cause is None:
            owned += restore(seen, worker)
            continue
        decision = may_delete(worker, sight, seen.wall)
        if isinstance(decision, Hold) and sight.unheard(worker.slurm_name):
            # Held all the same; but a restart is no news, so in the words that the pod has already.
            decision = pod_status.said_hold(worker) or decision
        if isinstance(decision, Allow) and claims:
            decision = Hold(Wait.CLAIMS_PENDING, "the owner of its volume claims is being set first")
        decisions[worker.uid] = decision
        if isinstance(decision, Allow):
            version = worker.version if decision.unchanged else ""
            deletions.append(
                DeletePod(
                    worker.name,
                    worker.uid,
                    worker.slurm_name,
                    cause,
                    decision.because,
                    version,
                    decision.proof,
                    scale.failures(worker, seen.wall) if cause is Cause.FINISHED else 0,
                )
            )
        else:
            held.append(Held(worker.name, worker.slurm_name, cause, decision))
    gone = {one.uid for one in deletions if isinstance(one, DeletePod)}
    stay = [worker for worker in seen.workers if worker.active and worker.uid not in gone]
    cordoned = cordons(seen, sight, stay, demand.going)
    for worker in stay:
        if worker.uid not in demand.going and worker.cordoned:
            released = protection.release(
                worker, sight, cordoned=_stays_cordoned(worker, cordoned.changes.get(worker.uid))
            )
            deletions += [] if released is None else [released]
    _note_scale_in(seen, demand)
    return _finish(
        seen,
        sight,
        demand,
        [*before, *owned],
        cordoned,
        decisions=decisions,
        deletions=deletions,
        after=after,
        held=held,
    )


def _finish(
    seen: Observation,
    sight: Sight,
    demand: Demand,
    before: list[Action],
    cordoned: Cordons,
    *,
    counted: bool = True,
    decisions: dict[str, Decision] | None = None,
    deletions: list[Action] | None = None,
    after: list[Action] | None = None,
    held: list[Held] | None = None,
) -> Plan:
    """Add the upkeep of the pods that stay for now, and put everything in order."""
    decided = decisions or {}
    gone = {one.uid for one in deletions or () if isinstance(one, DeletePod)}
    first: list[Action] = []
    patches: list[Action] = []
    statuses: list[Action] = []
    fields: defaultdict[Field, dict[str, Wish]] = defaultdict(dict)
    telling = Telling(seen, sight, (*before, *cordoned.actions))
    rested = seen.memo.upkeep
    # All that the upkeep of a worker takes from anything but its own objects.
    rested.begin((seen.nodeset.metadata.uid, sight.protects, sight.deadlines, counted))
    for worker in seen.workers:
        uid = worker.uid
        if worker.deleting or uid in gone:
            continue
        grounds = (worker.pod, seen.nodes.get(worker.node), *sight.grounds(worker.slurm_name))
        cordon, decision = cordoned.changes.get(uid), decided.get(uid)
        # Of a cordoned worker more has to be known than these grounds.
        if cordon is None and decision is None and not worker.cordoned and rested.still(uid, grounds):
            continue
        patch = _patch(seen, sight, worker, cordon)
        later = telling.waits(worker, cordon, decision)
        status = _status(seen, sight, worker, decision) if counted and not later else []
        wishes = pod_metadata.wishes(seen, sight, worker)
        wishes = [wish for wish in wishes if not (later and isinstance(wish, Comment))]
        if not (patch or status or wishes or later or _expires(worker)) and decision is None:
            rested.rests(uid, grounds)
        (patches if cordon is None else first).extend(patch)
        statuses += status
        for wish in wishes:
            fields[field_of(wish)].setdefault(worker.slurm_name, wish)
    writes = [WriteNodes(dict(sorted(some.items()))) for _, some in sorted(fields.items())]
    waits = [*demand.waits, *sight.shared.values()]
    if not counted:
        waits.append(Hold(Wait.CACHE_BEHIND, "the cache of pods does not show the last writes yet"))
    # Most cordons have their drain already, and only Slurm can say which have not.
    undrained = [one for one in cordoned.held if not sight.unheard(one.slurm_name)]
    kept_back = [*(held or ()), *undrained]
    looks = [*demand.looks, *_looks(seen)]
    if deletions or telling.moving:
        looks.append(UNCONFIRMED_SECONDS)
    if telling.put_off:
        looks.append(JUST_NOW_SECONDS)
    blind = not sight.sees or any(sight.blind(one.slurm_name) for one in seen.workers)
    if blind or any(one.cause for one in kept_back):
        looks.append(HELD_SECONDS)
    if reservation.open_ended(seen):
        looks.append(HELD_SECONDS)
    if sight.unasked:
        looks.append(FIRST_ANSWER_SECONDS)
    return Plan(
        actions=(
            *before,
            *first,
            *cordoned.actions,
            *(deletions or ()),
            *patches,
            *statuses,
            *writes,
            *(after or ()),
        ),
        holds=tuple(kept_back),
        waits=tuple(waits),
        notes=(*demand.notes, *cordoned.notes, *_complaints(seen, waits)),
        requeue=min(looks, default=None),
        desired=demand.desired,
        going=demand.going,
    )


def _desired(seen: Observation) -> int:
    return seen.nodeset.status.desired if seen.daemon else seen.nodeset.wanted_replicas


def _patch(seen: Observation, sight: Sight, worker: Worker, cordon: Changes | None) -> list[Action]:
    labels = pod_metadata.labels(seen, sight, worker, cordoned=_stays_cordoned(worker, cordon))
    annotations = pod_metadata.remarks(seen, sight, worker)
    # A request may have been repeated meanwhile: what was not seen must not be taken away.
    guarded = annotations.get(wellknown.ANNOTATION_REMOVAL_REQUESTED, "") is None
    if cordon is not None:
        annotations |= cordon.annotations
        guarded |= cordon.guarded
    tolerations = pod_metadata.tolerations(sight, worker)
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


def _status(seen: Observation, sight: Sight, worker: Worker, decision: Decision | None) -> list[Action]:
    # Before slurmd has started, what Slurm has under that name is left from the pod before. That it has
    # started is seen by the kubelet, or by Slurm, which then has the UID of the pod.
    node = sight.node(worker.slurm_name)
    if node is not None and not worker.started and node.instance_id != worker.uid:
        node = None
    wanted = [*pod_status.state_conditions(node)] if node is not None else []
    if decision is not None:
        wanted.append(pod_status.safe_condition(decision))
    new, gone = pod_status.changed_conditions(worker, wanted, states_known=node is not None, wall=seen.wall)
    return [PatchPodStatus(worker.name, worker.uid, new, gone)] if new or gone else []


def _looks(seen: Observation) -> list[float]:
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


def _complaints(seen: Observation, waits: list[Hold]) -> list[Note]:
    """Return an event for each kind of trouble that the NodeSet does not show yet."""
    told = find_condition(seen.nodeset.status.conditions, wellknown.CONDITION_DEGRADED)
    return [
        Note(_EVENTS.get(reason, reason), "Info", text, warning=True)
        for reason, text in troubles(waits).items()
        if told is None or text not in told.message
    ]


def _note_scale_in(seen: Observation, demand: Demand) -> None:
    marks = wellknown.ANNOTATION_POD_CORDON_BY
    fresh = [
        worker.name
        for worker in seen.workers
        if demand.going.get(worker.uid) is Cause.SCALE_IN and worker.annotations.get(marks) != Cause.SCALE_IN
    ]
    if fresh:
        text = f"Removing {len(fresh)} pods to have {demand.desired}"
        demand.notes.append(Note("ScalingDown", "ScaleDown", text))
