"""Records of nodes in Slurm: which the operator creates, makes usable again and deletes.

With autoscaling Slurm has a CLOUD record for each of `maxReplicas` workers, whether they have a pod or not.
Records are created only under names that no pod has. A slurmctld that lost its state lists no nodes while
their jobs run on, and a new record would show a busy worker as powered down. A node that did not come up in
time is down until it is resumed. That is done here, after a pause that grows with each failure, and only for
reasons that slurmctld itself or the operator gives. Records of the wrong kind, from before autoscaling was
switched on or after it was switched off, are deleted once their workers are gone. So is a record whose CPUs,
memory, features or GRES are no longer those of the NodeSet, while it is powered down. A record that an
administrator has drained, marked FAIL or taken down stays.

Without autoscaling slurmd creates the record of its node, and `pruneSlurmNodeRecords` says when it is
deleted. Such a record is known by its comment, which names the pod and the NodeSet, UID included. It is
deleted only if the pod is not there, nothing will bring it back, the node is down without work, and no
administrator has drained it: a drain would be forgotten with the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import PruneRecords
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    CreateRecords,
    Defer,
    DeleteRecord,
    Note,
    PowerUpNodes,
    ResumeCloudNodes,
    UndrainNodes,
)
from slurm_operator.controllers.nodeset.decide.autoscale import Power, convert, power, power_of, refused
from slurm_operator.controllers.nodeset.decide.name_conflicts import borne, expected_hostname, name_conflict
from slurm_operator.controllers.nodeset.decide.observation import ControllerState
from slurm_operator.controllers.nodeset.decide.scale import pause_seconds
from slurm_operator.controllers.nodeset.decide.slurm_state import draining, node_busy
from slurm_operator.objects.slurmd_marks import pod_info
from slurm_operator.objects.slurmd_names import Series
from slurm_operator.slurm.decide.node_changes import (
    downed_by_others,
    downed_by_power_saving,
    downed_by_slurm,
    drained_by_us,
    powering_up,
)

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.scale import Demand
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
    from slurm_operator.objects.slurmd_marks import PodInfo
    from slurm_operator.slurm.model.records import Node

# Far above any NodeSet: which names look like those of its workers, whatever its bounds were.
_ANY: Final = 10**9
# The status is written at the end of each reconcile.
_STATUS_SECONDS: Final = 0.05
# From the creation of records to a list that shows them.
_LIST_SECONDS: Final = 1.0


def recorded(nodeset: NodeSet) -> bool:
    """Return whether the status says that Slurm may have records of power saving for a NodeSet."""
    return find_condition(nodeset.status.conditions, wellknown.CONDITION_AUTOSCALING) is not None


def may_have_records(nodeset: NodeSet, uid: str, generation: int) -> bool:
    """Return whether records may be created for a NodeSet as the API server has it now.

    The cache may show it as it was before autoscaling was switched off. And a record is deleted later only if
    the status says by then that there are such records.
    """
    meta = nodeset.metadata
    return (meta.uid, meta.generation) == (uid, generation) and not nodeset.deleting and recorded(nodeset)


def leaves(seen: Observation) -> bool:
    """Return whether Slurm may still have records from when it scaled the NodeSet."""
    return recorded(seen.nodeset) and (not seen.nodeset.autoscaled or seen.nodeset.deleting)


def listed(seen: Observation, slurm: SlurmState) -> bool:
    """Return whether a list of nodes was requested after this process last created records."""
    at = None if seen.view is None else seen.view.listed_at
    return slurm.sees and at is not None and at > seen.records_created


def wait_for_records(seen: Observation, slurm: SlurmState, demand: Demand) -> None:
    """After autoscaling was switched off, create no pod under a name whose record is still to be deleted.

    That includes records that Slurm still shows as up, and which are deleted when it shows them as down.
    While no list shows what Slurm has, and what this process created last, each name may have one.
    """
    if not leaves(seen):
        return
    convert(seen, slurm, demand)
    old = {node.name for node in remaining(seen) if not _kept_by_others(slurm, node)}
    known = listed(seen, slurm)
    deferred = [one for one in demand.creates if not known or _name_of(seen, one.ordinal) in old]
    if deferred:
        demand.creates = [one for one in demand.creates if one not in deferred]
        text = messages.records_first(len(deferred)) if known else messages.RECORDS_UNKNOWN
        demand.waits.append(Defer(Reason.RECORD_PENDING, text))


def _name_of(seen: Observation, ordinal: int | None) -> str:
    return "" if ordinal is None else seen.nodeset.pod_hostname(ordinal)


@dataclass(slots=True)
class RecordPlan:
    """What to do about the records and the states of nodes that have no pod, or whose pod is up."""

    before: list[Action] = field(default_factory=list)
    deletes: list[DeleteRecord] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    waits: list[Defer] = field(default_factory=list)
    requeue_after: list[float] = field(default_factory=list)


def records(seen: Observation, slurm: SlurmState, demand: Demand) -> RecordPlan:
    """Decide about the records of a NodeSet, whether Slurm scales it, has scaled it, or neither."""
    found = RecordPlan()
    if not seen.nodeset.autoscaled:
        found.deletes, found.notes = prune(seen, slurm, demand)
        if leaves(seen):
            found.deletes += leftovers(seen, slurm)
            if slurm.sees and not listed(seen, slurm):
                # A list that shows what the one before showed is no event.
                found.requeue_after.append(_LIST_SECONDS)
        return found
    if (
        refused(seen) is not None
        or not slurm.sees
        or seen.view is None
        or seen.controller is not ControllerState.STAYS
    ):
        return found
    found.deletes = leftovers(seen, slurm)
    _create(seen, found)
    _resume(seen, slurm, demand, found)
    _keep_up(seen, slurm, found)
    return found


def _create(seen: Observation, found: RecordPlan) -> None:
    """Have records created under names that Slurm does not list and no pod has."""
    assert seen.view is not None  # noqa: S101 - narrows
    bearers = {worker.slurm_name for worker in seen.workers}
    names = [
        name
        for name in map(seen.nodeset.pod_hostname, range(seen.nodeset.most_replicas))
        if name not in seen.view.nodes and name not in bearers
    ]
    free = [name for name in names if _blocked(seen, name, found) is None]
    if not free:
        return
    if not recorded(seen.nodeset):
        # The status of this reconcile says it: what a status does not say, no later process would delete.
        found.requeue_after.append(_STATUS_SECONDS)
        return
    if seen.record is None:
        found.waits.append(Defer(Reason.RECORD_SHAPE, messages.RECORD_SHAPE_UNKNOWN))
        return
    found.before.append(CreateRecords(tuple(free), seen.record.line(free), seen.record.options))


def _blocked(seen: Observation, name: str, found: RecordPlan) -> Defer | None:
    wait = name_conflict(seen, name)
    if wait is None and borne(seen, name):
        wait = Defer(Reason.NAME_IN_USE, messages.name_used_elsewhere(name))
    if wait is not None:
        found.waits.append(wait)
        found.requeue_after.append(30.0)
    return wait


def _resume(seen: Observation, slurm: SlurmState, demand: Demand, found: RecordPlan) -> None:
    """Make nodes usable again that slurmctld took down, and take back drains of ours that no pod explains."""
    workers: dict[str, list[Worker]] = {}
    for worker in seen.workers:
        workers.setdefault(worker.slurm_name, []).append(worker)
    resumes, undrains = [], []
    for name in map(seen.nodeset.pod_hostname, range(seen.nodeset.most_replicas)):
        node = slurm.node(name)
        if node is None or power_of(node) not in (Power.DOWN, Power.UP):
            continue
        users = workers.get(name, [])
        if "DOWN" in node.state:
            if downed_by_slurm(node, wellknown.REASON_PREFIX) and _may_resume(slurm, demand, node, users):
                wait = _pause(seen, name)
                if wait > 0:
                    found.requeue_after.append(wait)
                else:
                    resumes.append(name)
        elif not users and power_of(node) is Power.DOWN and draining(node) and slurm.ours(name):
            undrains.append(name)
    if resumes:
        found.before.append(ResumeCloudNodes(tuple(resumes)))
        late = [name for name in resumes if name in seen.resumes]
        if late:
            text = messages.not_up_in_time(len(late), late[0])
            found.notes.append(Note(Reason.RESUME_FAILED, "ScaleUp", text, warning=True))
    if undrains:
        found.before.append(UndrainNodes(tuple(undrains)))


def _may_resume(slurm: SlurmState, demand: Demand, node: Node, users: list[Worker]) -> bool:
    """Return whether a node may get work: it is powered down without a pod, or its pod is ready for it."""
    if not users:
        return power_of(node) is Power.DOWN
    # What a pod that ended took down is resumed by `cordon`, when a newer slurmd has registered.
    registered = power_of(node) is Power.UP and "NOT_RESPONDING" not in node.state
    return (
        registered
        and downed_by_power_saving(node)
        and all(worker.healthy and slurm.safe(worker) and worker.uid not in demand.going for worker in users)
    )


def _pause(seen: Observation, name: str) -> float:
    failed = seen.resumes.get(name)
    return 0.0 if failed is None else failed.at + pause_seconds(failed.times) - seen.now


def _keep_up(seen: Observation, slurm: SlurmState, found: RecordPlan) -> None:
    """Have Slurm power up nodes while fewer are up than the NodeSet keeps."""
    scaling = seen.nodeset.spec.autoscaling
    if scaling is None or not scaling.min_replicas:
        return
    up, free = 0, []
    bearers = {worker.slurm_name for worker in seen.workers}
    for name in map(seen.nodeset.pod_hostname, range(seen.nodeset.most_replicas)):
        state, node = power(slurm, name), slurm.node(name)
        # What is unknown may be up already: a power-up was sent, or a list is awaited.
        up += state not in (Power.DOWN, Power.POWERING_DOWN, Power.ABSENT)
        # Slurm would wait for a slurmd that is started after this, and an old pod is in the way of it.
        if (
            state is Power.DOWN
            and name not in bearers
            and node is not None
            and "IDLE" in node.state
            and not draining(node)
        ):
            free.append(name)
    wanted = free[: max(0, min(scaling.min_replicas, seen.nodeset.most_replicas) - up)]
    if wanted:
        found.before.append(PowerUpNodes(tuple(wanted)))


def leftovers(seen: Observation, slurm: SlurmState) -> list[DeleteRecord]:
    """Return the records to delete: of names that are not wanted, of the wrong kind, or of another shape."""
    nodeset = seen.nodeset
    if seen.view is None or not slurm.sees:
        return []
    wanted = 0 if nodeset.deleting or not nodeset.autoscaled else nodeset.most_replicas
    prefix = _name_prefix(seen)
    current = Series(prefix, nodeset.padding, wanted)
    bearers = {worker.slurm_name for worker in seen.workers}
    found = []
    for name in seen.view.nodes:
        if name in bearers or not name.startswith(prefix) or borne(seen, name):
            continue
        node = slurm.node(name)
        if node is None or not _of_nodeset(seen, node, prefix) or not _unused(seen, slurm, node):
            continue
        plain = power_of(node) is Power.PLAIN
        if name in current:
            if plain or _outdated(seen, node):
                found.append(DeleteRecord(name))
        elif not plain:
            found.append(DeleteRecord(name))
    return found


def left(seen: Observation, slurm: SlurmState) -> bool:
    """Return whether a NodeSet that is being deleted must wait for records, which no operator would use."""
    if not leaves(seen) or seen.external or seen.controller is not ControllerState.STAYS:
        return False
    if not listed(seen, slurm):
        return True
    return any(not _kept(node, ours=drained_by_us(node, wellknown.REASON_PREFIX)) for node in remaining(seen))


def remaining(seen: Observation) -> list[Node]:
    """Return the records of power saving that Slurm has for this NodeSet, in whatever state."""
    prefix = _name_prefix(seen)
    return [
        node
        for name, node in ({} if seen.view is None else seen.view.nodes).items()
        if name.startswith(prefix) and _of_nodeset(seen, node, prefix) and power_of(node) is not Power.PLAIN
    ]


def _name_prefix(seen: Observation) -> str:
    return str(seen.nodeset.spec.template.spec.get("hostname") or "") or seen.nodeset.pod_generate_name


def _of_nodeset(seen: Observation, node: Node, prefix: str) -> bool:
    """Return whether a record is one of this NodeSet: it has its feature, and a name that it has or had."""
    digits = node.name.removeprefix(prefix)
    numbered = digits.isascii() and digits.isdecimal() and len(digits) < len(str(_ANY))
    if not numbered or seen.nodeset.slurm_name not in node.features:
        return False
    # With another prefix the name may be a number of another NodeSet, which may have the feature, too.
    asked = any(one.numbers is not None and node.name in one.numbers for one in seen.neighbours)
    return not asked or node.name in Series(prefix, seen.nodeset.padding, seen.nodeset.most_replicas)


def _unused(seen: Observation, slurm: SlurmState, node: Node) -> bool:
    """Return whether a record without a pod has no job and no slurmd, and no administrator keeps it."""
    jobs = None if seen.view is None else seen.view.jobs
    busy = jobs is None or node.name in jobs.by_node or bool(jobs.unplaced) or node_busy(node)
    # The cache may lack a pod that runs: what Slurm does not have as down is left alone.
    down = "DOWN" in node.state or power_of(node) is Power.DOWN
    return down and not (busy or _kept_by_others(slurm, node) or powering_up(node))


def _kept_by_others(slurm: SlurmState, node: Node) -> bool:
    """Return whether an administrator keeps a node from work, which its record alone remembers."""
    return _kept(node, ours=slurm.ours(node.name))


def _kept(node: Node, *, ours: bool) -> bool:
    """Return whether an administrator has drained, failed or taken down a node; `ours` is its drain."""
    return (
        "FAIL" in node.state
        or (draining(node) and not ours)
        or downed_by_others(node, wellknown.REASON_PREFIX)
    )


def _outdated(seen: Observation, node: Node) -> bool:
    """Return whether a record that is powered down says something else than a new one would."""
    shape = seen.record
    if shape is None or power_of(node) is not Power.DOWN:
        return False
    # Slurm may show another text than it was given: what this process has just created is not judged again.
    if seen.made.get(node.name) == shape.options:
        return False
    return not shape.describes(node)


# ------------------------------------------------------------------------------------- without autoscaling


def prune(seen: Observation, slurm: SlurmState, demand: Demand) -> tuple[list[DeleteRecord], list[Note]]:
    """Return the records to delete."""
    policy = seen.nodeset.spec.prune_slurm_node_records
    if policy == PruneRecords.NEVER or seen.view is None:
        return [], []
    if not seen.daemon and (policy != PruneRecords.SCALED_IN or not _at_rest(seen, demand)):
        return [], []
    pods = {worker.name for worker in seen.workers}
    in_use = {worker.slurm_name for worker in seen.workers}
    records, notes = [], []
    for name in seen.view.nodes:
        if name in in_use:
            continue
        info = pod_info(seen.view.nodes[name].comment)
        if info is None or info.pod_name in pods or not _mine(seen, info):
            continue
        if borne(seen, name):
            continue
        node = slurm.node(name)
        if (
            node is None
            or not _defunct(seen, slurm, node)
            or (seen.daemon and not _orphaned(seen, info, name))
        ):
            continue
        records.append(DeleteRecord(name))
        text = messages.record_deleted(name, info.pod_name)
        notes.append(Note(Reason.DEFUNCT_SLURM_NODE_PRUNED, "Delete", text))
    return records, notes


def _mine(seen: Observation, info: PodInfo) -> bool:
    meta = seen.nodeset.metadata
    return bool(info.pod_name) and (info.namespace, info.node_set_name, info.node_set_uid) == (
        meta.namespace,
        meta.name,
        meta.uid,
    )


def _at_rest(seen: Observation, demand: Demand) -> bool:
    """Return whether every wanted pod is there: a missing one would come back under its old name."""
    return not demand.going and not demand.creates and len(seen.workers) == demand.desired


def _defunct(seen: Observation, slurm: SlurmState, node: Node) -> bool:
    jobs = seen.view.jobs if seen.view is not None else None
    has_jobs = jobs is None or node.name in jobs.by_node or bool(jobs.unplaced)
    drained_by_others = draining(node) and not slurm.ours(node.name)
    silent = "NOT_RESPONDING" in node.state or not seen.daemon
    return "DOWN" in node.state and silent and not (has_jobs or node_busy(node) or drained_by_others)


def _orphaned(seen: Observation, info: PodInfo, name: str) -> bool:
    """Return whether the Kubernetes node of a record is gone, or would be called otherwise now."""
    if not info.node:
        return False
    node = seen.nodes.get(info.node)
    return node is None or expected_hostname(node) != name
