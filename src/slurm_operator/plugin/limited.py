"""The same views from Kubernetes alone: conditions, annotations and labels, for when no manager can be asked.

What only the manager has is left empty here: jobs, reservations, ages of lists, what happens next.
The operator mirrors the state of a Slurm node in conditions of its pod and writes the reason of a blocked
deletion there, so that much is known also while the operator is down; it is as old as the last write.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from slurm_operator.api import removal, wellknown
from slurm_operator.api.nodeset import slurm_node_name
from slurm_operator.status_rows import (
    AutoscalingRow,
    AvailabilityRow,
    BlockedCounts,
    BlockedRow,
    ClusterRow,
    ConditionRow,
    DecisionRow,
    NodeSetRow,
    ObjectRef,
    Overview,
    RequestRow,
    StateCounts,
    WorkerRow,
    find,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from slurm_operator.api import Controller, NodeSet
    from slurm_operator.kube.models.kinds import Event, Pod
    from slurm_operator.kube.models.meta import Condition

# The same as in the manager's API.
_SHOWN_BLOCKED: Final = 100
_SHOWN_DECISIONS: Final = 50
_WAITING_FINE: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
# The short names of the pod conditions, as Slurm writes the states.
_STATES: Final = {
    f"{wellknown.POD_CONDITION_PREFIX}{name}": "".join(
        f"_{char}" if char.isupper() and index else char for index, char in enumerate(name)
    ).upper()
    for name in (*wellknown.SLURM_BASE_STATES, *wellknown.SLURM_FLAG_STATES)
}


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was read from the API server, and when."""

    at: datetime
    controllers: Sequence[Controller] = ()
    nodesets: Sequence[NodeSet] = ()
    pods: Sequence[Pod] = ()
    events: Sequence[Event] = field(default=())


def overview(found: Inventory, why: str) -> Overview:
    """Return what conditions show; `why` is the reason for the limited view."""
    workers = worker_rows(found)
    blocked = [one for one in workers if one.blocked is not None]
    return Overview(
        at=found.at,
        limited=why,
        clusters=cluster_rows(found, workers),
        nodesets=nodeset_rows(found, workers),
        blocked=tuple(blocked[:_SHOWN_BLOCKED]),
        blocked_total=len(blocked),
        decisions=decision_rows(found.events)[:_SHOWN_DECISIONS],
    )


def cluster_rows(found: Inventory, workers: Iterable[WorkerRow]) -> tuple[ClusterRow, ...]:
    """Return the Slurm clusters; only nodes of workers are counted, since no others are known."""
    states: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for worker in workers:
        states[worker.namespace, worker.cluster][state_word(worker)] += 1
    return tuple(
        _cluster(found, one, states[one.metadata.namespace, one.metadata.name]) for one in found.controllers
    )


def _cluster(found: Inventory, controller: Controller, states: Counter[str]) -> ClusterRow:
    conditions = _conditions(controller.status.conditions)
    ready = find(conditions, wellknown.CONDITION_SLURM_API_READY) or ConditionRow()
    connected = ready.status == "True"
    namespace, name = controller.metadata.namespace, controller.metadata.name
    return ClusterRow(
        namespace=namespace,
        name=name,
        cluster_name=controller.cluster_name,
        external=controller.spec.external,
        connected=connected,
        reason=ready.reason,
        message=ready.message,
        failing_since=None if connected else ready.since,
        ha=AvailabilityRow(enabled=controller.spec.ha.enabled, backups=controller.replicas - 1),
        nodes=StateCounts(total=sum(states.values()), by_state=dict(states)),
        nodesets=tuple(
            one.metadata.name
            for one in found.nodesets
            if (one.metadata.namespace, one.spec.controller_ref.name) == (namespace, name)
        ),
        conditions=conditions,
    )


def nodeset_rows(found: Inventory, workers: Iterable[WorkerRow]) -> tuple[NodeSetRow, ...]:
    """Return the NodeSets, with counts from their status and from their pods."""
    by_set: defaultdict[tuple[str, str], list[WorkerRow]] = defaultdict(list)
    for worker in workers:
        by_set[worker.namespace, worker.nodeset].append(worker)
    return tuple(_nodeset(one, by_set[one.metadata.namespace, one.metadata.name]) for one in found.nodesets)


def _nodeset(nodeset: NodeSet, workers: list[WorkerRow]) -> NodeSetRow:
    status = nodeset.status
    blocked = [one.blocked for one in workers if one.blocked is not None]
    since = [one.since for one in blocked if one.since is not None]
    return NodeSetRow(
        namespace=nodeset.metadata.namespace,
        name=nodeset.metadata.name,
        cluster=nodeset.spec.controller_ref.name,
        mode=nodeset.spec.scaling_mode,
        replicas=nodeset.wanted_replicas,
        desired=status.desired,
        pods=status.replicas,
        updated=status.updated_replicas,
        ready=status.ready_replicas,
        available=status.available_replicas,
        protected=sum(one.protected for one in workers),
        states=dict(Counter(one.summary for one in workers)),
        blocked=BlockedCounts(
            total=len(blocked),
            by_reason=dict(Counter(one.reason for one in blocked)),
            oldest_since=min(since, default=None),
        ),
        revision=status.node_set_hash,
        update_strategy=nodeset.spec.update_strategy.type,
        autoscaling=_autoscaling(nodeset),
        deleting=nodeset.deleting,
        created_at=nodeset.metadata.creation_timestamp,
        conditions=_conditions(status.conditions),
    )


def _autoscaling(nodeset: NodeSet) -> AutoscalingRow | None:
    """Return the bounds; how many nodes are in which power state is known only to the manager."""
    spec = nodeset.spec.autoscaling
    if spec is None or not nodeset.autoscaled:
        return None
    return AutoscalingRow(
        min_replicas=spec.min_replicas,
        max_replicas=nodeset.most_replicas,
        idle_seconds=spec.idle_seconds,
        resume_timeout_seconds=spec.resume_timeout_seconds,
        suspend_timeout_seconds=spec.suspend_timeout_seconds,
    )


def rows_without_pod(found: Inventory) -> tuple[WorkerRow, ...]:
    """Return the workers without a pod that Slurm may power up; their power state is unknown."""
    pods = {(pod.metadata.namespace, pod.metadata.name) for pod in found.pods}
    return tuple(
        WorkerRow(
            namespace=one.metadata.namespace,
            nodeset=one.metadata.name,
            cluster=one.spec.controller_ref.name,
            pod=one.pod_name(ordinal),
            without_pod=True,
            slurm_node=one.pod_hostname(ordinal),
            known="unknown",
            unknown_message="only the operator knows the power state of a node without a pod",
        )
        for one in found.nodesets
        if one.has_power_records
        for ordinal in range(one.most_replicas)
        if (one.metadata.namespace, one.pod_name(ordinal)) not in pods
    )


def worker_rows(found: Inventory) -> tuple[WorkerRow, ...]:
    """Return the workers, in the order of their names."""
    clusters = {(one.metadata.namespace, one.metadata.name): one for one in found.nodesets}
    rows = [_worker(pod, clusters) for pod in found.pods]
    return tuple(sorted(rows, key=lambda row: (row.namespace, row.nodeset, len(row.pod), row.pod)))


def _worker(pod: Pod, nodesets: dict[tuple[str, str], NodeSet]) -> WorkerRow:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    owner = pod.controller_owner
    name = owner.name if owner is not None and owner.kind == "NodeSet" else ""
    name = name or labels.get(wellknown.LABEL_APP_INSTANCE, "")
    nodeset = nodesets.get((pod.metadata.namespace, name))
    state, reason, since = _slurm_state(pod)
    by = annotations.get(wellknown.ANNOTATION_POD_CORDON_BY, "")
    cordoned = annotations.get(wellknown.ANNOTATION_POD_CORDON) == wellknown.TRUE
    request = removal.read(annotations)
    blocked = _blocked(pod, by)
    # Without a reason, a cordon of the operator is the likely cause: its drain is not to be undone by hand.
    ours = reason.startswith(wellknown.REASON_PREFIX) or (not reason and bool(by))
    row = WorkerRow(
        namespace=pod.metadata.namespace,
        nodeset=name,
        cluster=labels.get(wellknown.LABEL_CLUSTER, "")
        or ("" if nodeset is None else nodeset.spec.controller_ref.name),
        pod=pod.metadata.name,
        phase=pod.status.phase,
        ready=pod.ready,
        deleting=pod.deleting,
        created_at=pod.metadata.creation_timestamp,
        problem=pod_problem(pod),
        kubernetes_node=pod.spec.node_name,
        slurm_node=slurm_node_name(
            scaling_mode=labels.get(wellknown.LABEL_SCALING_MODE, ""),
            stated=annotations.get(wellknown.ANNOTATION_STATED_NAME) == wellknown.TRUE,
            pod_name=pod.metadata.name,
            hostname=pod.spec.hostname,
            host_network=pod.spec.host_network,
            node_name=pod.spec.node_name,
        ),
        known="known" if state else "unknown",
        state=state,
        state_reason=reason,
        state_reason_at=since if reason else None,
        drained_by=("operator" if ours else "other") if "DRAIN" in state else "",
        protected=labels.get(wellknown.LABEL_POD_PROTECT) == wellknown.TRUE,
        cordoned=cordoned,
        cordoned_by=by,
        revision=labels.get(wellknown.LABEL_REVISION_HASH, ""),
        current=nodeset is None
        or labels.get(wellknown.LABEL_REVISION_HASH, "") == nodeset.status.node_set_hash,
        removal=by if blocked is not None else "",
        request=None if request is None else RequestRow(by=request.by, at=request.at),
        blocked=blocked,
    )
    return msgspec.structs.replace(row, summary=summary(row))


def summary(row: WorkerRow) -> str:
    """Return one word for the state of a worker, as the manager's API has it."""
    busy = bool({"ALLOCATED", "MIXED", "COMPLETING"} & {*row.state})
    if row.deleting:
        return "terminating"
    if not row.state:
        return "unknown" if row.ready else "starting"
    if "DOWN" in row.state or "ERROR" in row.state or "FAIL" in row.state:
        return "down"
    if "DRAIN" in row.state:
        return "draining" if busy else "drained"
    if busy:
        return "busy"
    return "idle" if "IDLE" in row.state else "unknown"


def state_word(row: WorkerRow) -> str:
    """Return the base state of a Slurm node, with `+DRAIN` if it is draining."""
    bases = {name.upper() for name in wellknown.SLURM_BASE_STATES}
    base = next((word for word in row.state if word in bases), "UNKNOWN")
    return f"{base}+DRAIN" if "DRAIN" in row.state else base


def _slurm_state(pod: Pod) -> tuple[tuple[str, ...], str, datetime | None]:
    held = [one for one in pod.status.conditions if one.type in _STATES and one.status == "True"]
    held.sort(key=lambda one: list(_STATES).index(one.type))
    message = next((one.message for one in held if one.message), "")
    drain = next((one.last_transition_time for one in held if _STATES[one.type] == "DRAIN"), None)
    since = drain or next((one.last_transition_time for one in held), None)
    return tuple(_STATES[one.type] for one in held), message, since


def _blocked(pod: Pod, cause: str) -> BlockedRow | None:
    safe = pod.condition(wellknown.POD_CONDITION_SAFE)
    if safe is None or safe.status != "False":
        return None
    return BlockedRow(
        action="delete",
        cause=cause,
        reason=safe.reason,
        message=safe.message,
        since=safe.last_transition_time,
    )


def pod_problem(pod: Pod) -> str:
    """Return why a pod does not run; empty if it does, or is only starting."""
    if pod.status.phase == "Failed":
        return f"{pod.status.reason or 'Failed'}: {pod.status.message or 'the pod has failed'}"
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return f"{scheduled.reason}: {scheduled.message}"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = None if status.state is None else status.state.waiting
        if waiting is not None and waiting.reason not in _WAITING_FINE:
            told = f": {waiting.message}" if waiting.message else ""
            return f"{waiting.reason} (container {status.name}){told}"
    return ""


def decision_rows(events: Iterable[Event]) -> tuple[DecisionRow, ...]:
    """Return the Events of the operator as history, the newest first."""
    rows = [
        DecisionRow(
            object=ObjectRef(
                kind=one.regarding.kind, namespace=one.regarding.namespace, name=one.regarding.name
            ),
            first=one.event_time,
            at=(one.series.last_observed_time if one.series else None) or one.event_time,
            count=one.series.count if one.series else 1,
            type="event",
            what=one.reason,
            why=one.note,
            warning=one.type == "Warning",
        )
        for one in events
        if one.reporting_controller.startswith("slurm-operator")
        or one.regarding.api_version.startswith(wellknown.GROUP)
    ]
    return tuple(sorted(rows, key=lambda row: row.at.timestamp() if row.at else 0.0, reverse=True))


def _conditions(given: Iterable[Condition]) -> tuple[ConditionRow, ...]:
    return tuple(
        ConditionRow(
            type=one.type,
            status=one.status,
            reason=one.reason,
            message=one.message,
            since=one.last_transition_time,
        )
        for one in given
    )
