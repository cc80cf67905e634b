"""One row for each worker, made of its pod, its Slurm node and the last plan; pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.autoscale import Power, power_of
from slurm_operator.controllers.nodeset.decide.slurm_state import draining, steady
from slurm_operator.controllers.shared.pod_problems import complaint
from slurm_operator.slurm.decide.node_changes import drained_by_us
from slurm_operator.slurm.model.jobs import UNLIMITED_SECONDS
from slurm_operator.slurm.model.records import BUSY_STATES
from slurm_operator.slurm.model.view import Absent, Known, Unknown
from slurm_operator.status_api.explaining import blocked
from slurm_operator.status_api.moments import as_time, moment
from slurm_operator.status_rows import RequestRow, WorkerRow

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import Blocked, RemovalCause
    from slurm_operator.controllers.nodeset.decide.observation import Worker
    from slurm_operator.slurm.model.jobs import NodeJobs as JobsOn
    from slurm_operator.slurm.model.records import Node
    from slurm_operator.slurm.model.view import Answer, AnswerReason
    from slurm_operator.status_api.decision_log import LateNode
    from slurm_operator.status_rows import BlockedRow

MOST_JOBS: Final = 20
# That no node can take a pod is shown at once.
_NO_PATIENCE: Final = datetime.max.replace(tzinfo=UTC)
_BROKEN: Final = frozenset({"DOWN", "ERROR", "FAIL", "INVALID_REG", "NOT_RESPONDING"})
_SILENT: Final = frozenset({"NOT_RESPONDING"})
_BETWEEN: Final = {Power.POWERING_UP: "starting", Power.POWERING_DOWN: "terminating"}
_WITHOUT_SLURMD: Final = frozenset({Power.DOWN, *_BETWEEN})


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """All that a row of a worker is made of, beside its pod; equal facts give an equal row."""

    node: Node | None = None
    """The Slurm node, if Slurm certainly has it."""
    unknown: AnswerReason | None = None
    """Why nothing is known of it, if so; without a node and without this, it is absent."""
    jobs: JobsOn | None = None
    blocked: tuple[Blocked, datetime] | None = None
    cause: RemovalCause | None = None
    current: bool = True
    late: LateNode | None = None
    """How often the node did not come up in time, if so."""

    def same(self, other: WorkerFacts) -> bool:
        """Return whether a row made of other facts would be the same; compares identities first."""
        return (
            (self.node is other.node or self.node == other.node)
            and self.unknown is other.unknown
            and (self.jobs is other.jobs or self.jobs == other.jobs)
            and self.blocked == other.blocked
            and self.cause is other.cause
            and self.current == other.current
            and self.late == other.late
        )


def facts_of(answer: Answer) -> tuple[Node | None, AnswerReason | None]:
    """Return the node of an answer, or why it is unknown."""
    match answer:
        case Known(node=node):
            return node, None
        case Unknown(reason=reason):
            return None, reason
        case Absent():
            return None, None


def worker_row(namespace: str, nodeset: str, cluster: str, worker: Worker, facts: WorkerFacts) -> WorkerRow:
    """Return the row of a worker."""
    # Before slurmd has started, what Slurm has under that name is left from the pod before; power states,
    # of which Slurm decides alone, are not.
    node = facts.node
    if (
        node is not None
        and not worker.started
        and node.instance_id != worker.uid
        and power_of(node) in (Power.PLAIN, Power.UP)
    ):
        node = None
    jobs, end = _jobs(facts.jobs)
    late = _late(facts)
    request = worker.request
    return WorkerRow(
        namespace=namespace,
        nodeset=nodeset,
        cluster=cluster,
        pod=worker.name,
        phase=worker.phase,
        ready=worker.ready,
        deleting=worker.deleting,
        created_at=moment(worker.pod.metadata.creation_timestamp),
        problem="" if worker.ready or worker.deleting else complaint(worker.pod, _NO_PATIENCE),
        kubernetes_node=worker.node,
        slurm_node=worker.slurm_name,
        known="known" if facts.node is not None else "unknown" if facts.unknown is not None else "absent",
        unknown_reason="" if facts.unknown is None else facts.unknown.value,
        unknown_message="" if facts.unknown is None else steady(facts.unknown),
        summary=summary(worker, node, facts),
        power=_power(facts.node),
        resume_failures=0 if late is None else late.times,
        resume_at=None if late is None else late.resumed_at,
        jobs=jobs,
        job_count=0 if facts.jobs is None else len(facts.jobs.jobs),
        jobs_end=end,
        jobs_end_known=facts.jobs is None or end is not None,
        protected=worker.protected,
        cordoned=worker.cordoned,
        cordoned_by=worker.annotations.get(wellknown.ANNOTATION_POD_CORDON_BY, "") if worker.cordoned else "",
        revision=worker.revision,
        current=facts.current,
        removal="" if facts.cause is None else facts.cause.value,
        request=None if request is None else RequestRow(by=request.by, at=moment(request.at)),
        blocked=_blocked(worker, facts),
        **_of_node(node),
    )


def row_without_pod(nodeset: NodeSet, pod: str, name: str, facts: WorkerFacts) -> WorkerRow:
    """Return the row of a node that Slurm may power up and that has no pod."""
    jobs, end = _jobs(facts.jobs)
    late = _late(facts)
    return WorkerRow(
        namespace=nodeset.metadata.namespace,
        nodeset=nodeset.metadata.name,
        cluster=nodeset.spec.controller_ref.name,
        pod=pod,
        without_pod=True,
        slurm_node=name,
        known="unknown" if facts.node is None else "known",
        unknown_reason="" if facts.unknown is None else facts.unknown.value,
        unknown_message="" if facts.unknown is None else steady(facts.unknown),
        summary=_summary_without_pod(facts.node),
        power=_power(facts.node),
        resume_failures=0 if late is None else late.times,
        resume_at=None if late is None else late.resumed_at,
        jobs=jobs,
        job_count=0 if facts.jobs is None else len(facts.jobs.jobs),
        jobs_end=end,
        jobs_end_known=facts.jobs is None or end is not None,
        **_of_node(facts.node),
    )


def _summary_without_pod(node: Node | None) -> str:
    found = "unknown" if node is None else _summary_of(node, busy=False)
    # Where Slurm has the node up, the operator creates the pod.
    return "starting" if found in ("idle", "busy") else found


def _power(node: Node | None) -> str:
    found = Power.PLAIN if node is None else power_of(node)
    return "" if found is Power.PLAIN else found.value


def _late(facts: WorkerFacts) -> LateNode | None:
    return facts.late if facts.node is not None and "DOWN" in facts.node.state else None


def summary(worker: Worker, node: Node | None, facts: WorkerFacts) -> str:
    """Return the one word by which workers are counted and coloured."""
    if worker.deleting:
        return "terminating"
    if node is not None:
        return _summary_of(node, busy=facts.jobs is not None)
    if not worker.ready:
        return "starting"
    return "unknown" if facts.unknown is not None else "down"


def _summary_of(node: Node, *, busy: bool) -> str:
    state, power = frozenset(node.state), power_of(node)
    # A node without a slurmd does not respond, as it should.
    silent = _SILENT if power in _WITHOUT_SLURMD else frozenset()
    if state & _BROKEN - silent:
        return "down"
    if power in _BETWEEN:
        return _BETWEEN[power]
    busy = busy or bool(state & BUSY_STATES)
    if draining(node):
        return "draining" if busy else "drained"
    if busy:
        return "busy"
    if power is Power.DOWN:
        return "powered-down"
    return "idle" if "IDLE" in state else "unknown"


def _of_node(node: Node | None) -> dict[str, Any]:
    if node is None:
        return {}
    return {
        "state": node.state,
        "state_reason": node.reason,
        "state_reason_by": node.reason_set_by_user,
        "state_reason_at": moment(node.reason_changed_at.time) if node.reason else None,
        "drained_by": _drained_by(node),
        "reservation": node.reservation,
        "partitions": node.partitions,
        "features": node.active_features or node.features,
    }


def _drained_by(node: Node) -> str:
    if not draining(node):
        return ""
    return "operator" if drained_by_us(node, wellknown.REASON_PREFIX) else "other"


def _jobs(jobs: JobsOn | None) -> tuple[tuple[int, ...], datetime | None]:
    """Return the first jobs on a node, and when the last one ends at the latest, if that is known."""
    if jobs is None:
        return (), None
    return jobs.jobs[:MOST_JOBS], as_time(jobs.end) if jobs.end < UNLIMITED_SECONDS else None


def _blocked(worker: Worker, facts: WorkerFacts) -> BlockedRow | None:
    if facts.blocked is None:
        return None
    one, since = facts.blocked
    condition = worker.pod.condition(wellknown.POD_CONDITION_SAFE)
    if condition is not None and condition.status == "False" and condition.reason == one.wait.reason.value:
        # The condition outlives the process that wrote it.
        since = min(since, condition.last_transition_time or since)
    return blocked(one, None if facts.jobs is None else facts.jobs.end, moment(since))
