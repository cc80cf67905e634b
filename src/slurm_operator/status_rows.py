"""The wire format of the status API: what the manager sends and `kubectl slurm` reads; pure.

Names are camelCase on the wire (docs/reference/status-api.md). Every field has a default and unknown fields
are skipped, so that a command and an operator of different versions understand each other: a field is added
with a default that claims nothing, and is never given another meaning. While no manager can be reached, the
command builds the same structs from Kubernetes objects.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Final

import msgspec

API_VERSION: Final = "v1"
AUDIENCE: Final = "slurm-operator"
TOKEN_HEADER: Final = "X-Slurm-Operator-Token"  # noqa: S105 - the name of a header
# The code of a refusal by a replica that does not lead.
NOT_LEADER: Final = "NotLeader"


class StatusRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of what is sent; equal rows need not be sent again."""


class ConditionRow(StatusRow, frozen=True):
    """One condition of a custom resource."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class WaitRow(StatusRow, frozen=True):
    """What a whole NodeSet waits for."""

    reason: str = ""
    message: str = ""
    next: str = ""


class SlurmctldRow(StatusRow, frozen=True):
    """One slurmctld, and whether it answers."""

    host: str = ""
    responding: bool = False
    primary: bool = False


class AvailabilityRow(StatusRow, frozen=True):
    """Whether there are standby slurmctlds."""

    enabled: bool = False
    backups: int = 0


class AgeRow(StatusRow, frozen=True):
    """How old the operator's copy of one list of Slurm is; None if it has never been read."""

    age: float | None = None
    stale: bool = True


class StateCounts(StatusRow, frozen=True):
    """How many there are, in total and by state."""

    total: int = 0
    by_state: dict[str, int] = {}


class ClusterRow(StatusRow, frozen=True):
    """A Slurm cluster: a Controller and the connection to it."""

    namespace: str = ""
    name: str = ""
    cluster_name: str = ""
    external: bool = False
    connected: bool = False
    reason: str = ""
    message: str = ""
    failing_since: datetime | None = None
    server: str = ""
    via: str = ""
    slurm_version: str = ""
    api_version: str = ""
    uptime_seconds: float | None = None
    ha: AvailabilityRow = AvailabilityRow()
    slurmctld: tuple[SlurmctldRow, ...] = ()
    views: dict[str, AgeRow] = {}
    """By the name of the list: `nodes`, `jobs`, `reservations`, `slurmctld`."""
    suspicion: str = ""
    nodes: StateCounts = StateCounts()
    jobs: StateCounts = StateCounts()
    nodesets: tuple[str, ...] = ()
    conditions: tuple[ConditionRow, ...] = ()


class BlockedCounts(StatusRow, frozen=True):
    """How many workers of a NodeSet are blocked, and by what."""

    total: int = 0
    by_reason: dict[str, int] = {}
    oldest_since: datetime | None = None


class AutoscalingRow(StatusRow, frozen=True):
    """The bounds and times of a NodeSet that Slurm scales, and its nodes by power state."""

    min_replicas: int = 0
    max_replicas: int = 0
    idle_seconds: int = 0
    resume_timeout_seconds: int = 0
    suspend_timeout_seconds: int = 0
    nodes: dict[str, int] = {}
    """By `power` of their rows; also `unknown` and `without a record`."""


class NodeSetRow(StatusRow, frozen=True):
    """A NodeSet with its counts."""

    namespace: str = ""
    name: str = ""
    cluster: str = ""
    mode: str = ""
    replicas: int = 0
    desired: int = 0
    pods: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    protected: int = 0
    states: dict[str, int] = {}
    blocked: BlockedCounts = BlockedCounts()
    waits: tuple[WaitRow, ...] = ()
    revision: str = ""
    update_strategy: str = ""
    autoscaling: AutoscalingRow | None = None
    deleting: bool = False
    created_at: datetime | None = None
    conditions: tuple[ConditionRow, ...] = ()


class RequestRow(StatusRow, frozen=True):
    """A refused eviction or deletion: who asked, and when."""

    by: str = ""
    at: datetime | None = None


class BlockedRow(StatusRow, frozen=True):
    """What the operator would do to a worker and must not do yet: the plan's own reason and message."""

    action: str = ""
    """`delete` or `undrain`."""
    cause: str = ""
    reason: str = ""
    message: str = ""
    next: str = ""
    since: datetime | None = None


class WorkerRow(StatusRow, frozen=True):
    """A worker: pod, Kubernetes node, Slurm node and jobs; or a node that Slurm may power up."""

    namespace: str = ""
    nodeset: str = ""
    cluster: str = ""
    pod: str = ""
    without_pod: bool = False
    """There is no pod now: Slurm scales the NodeSet. `pod` is the name that it would have."""
    phase: str = ""
    ready: bool = False
    deleting: bool = False
    created_at: datetime | None = None
    problem: str = ""
    kubernetes_node: str = ""
    slurm_node: str = ""
    known: str = ""
    """`known`, `absent` or `unknown`."""
    unknown_reason: str = ""
    unknown_message: str = ""
    state: tuple[str, ...] = ()
    summary: str = "unknown"
    power: str = ""
    """`powered down`, `powering up`, `powering down` or `up`; empty if unknown, or without autoscaling."""
    resume_failures: int = 0
    """How often in a row the node did not come up in time, while Slurm has it down."""
    resume_at: datetime | None = None
    """When the operator makes a node usable again that did not come up in time."""
    state_reason: str = ""
    state_reason_by: str = ""
    state_reason_at: datetime | None = None
    drained_by: str = ""
    reservation: str = ""
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    job_count: int = 0
    jobs_end: datetime | None = None
    jobs_end_known: bool = False
    protected: bool = False
    cordoned: bool = False
    cordoned_by: str = ""
    revision: str = ""
    current: bool = True
    removal: str = ""
    request: RequestRow | None = None
    blocked: BlockedRow | None = None


class JobRow(StatusRow, frozen=True):
    """A job in Slurm."""

    id: int = 0
    array_job_id: int = 0
    array_task: str = ""
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    state: tuple[str, ...] = ()
    state_reason: str = ""
    nodes: str = ""
    node_count: int = 0
    cpus: int = 0
    features: str = ""
    reservation: str = ""
    dependency: str = ""
    priority: int = 0
    submit_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    time_limit_minutes: int | None = None
    workers: tuple[str, ...] = ()


class ClusterJobs(StatusRow, frozen=True):
    """The jobs of one Slurm cluster; the counts are complete, the rows may not be."""

    namespace: str = ""
    cluster: str = ""
    at: datetime | None = None
    error: str = ""
    total: int = 0
    matched: int = 0
    shown: int = 0
    by_state: dict[str, int] = {}
    jobs: tuple[JobRow, ...] = ()


class ObjectRef(StatusRow, frozen=True):
    """The object that a decision is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class DecisionRow(StatusRow, frozen=True):
    """What the operator did, held back or reported, and why."""

    object: ObjectRef = ObjectRef()
    nodeset: str = ""
    first: datetime | None = None
    at: datetime | None = None
    count: int = 1
    type: str = ""
    """`decision`, `blocked` or `event`."""
    what: str = ""
    why: str = ""
    warning: bool = False


class OperatorRow(StatusRow, frozen=True):
    """The manager that replied, and since when it leads."""

    version: str = ""
    identity: str = ""
    since: datetime | None = None


class ScopeRow(StatusRow, frozen=True):
    """The namespaces that the caller may see."""

    all: bool = False
    namespaces: tuple[str, ...] = ()


class ManagerReply(StatusRow, frozen=True):
    """What every reply has; `limited` says why the manager was not asked, and is empty if it was."""

    at: datetime | None = None
    operator: OperatorRow = OperatorRow()
    scope: ScopeRow = ScopeRow()
    limited: str = ""


class Overview(ManagerReply, frozen=True):
    """Everything on one screen."""

    clusters: tuple[ClusterRow, ...] = ()
    nodesets: tuple[NodeSetRow, ...] = ()
    blocked: tuple[WorkerRow, ...] = ()
    blocked_total: int = 0
    decisions: tuple[DecisionRow, ...] = ()


class ClusterReply(ManagerReply, frozen=True):
    """A list of Slurm clusters."""

    items: tuple[ClusterRow, ...] = ()


class NodeSetReply(ManagerReply, frozen=True):
    """A list of NodeSets."""

    items: tuple[NodeSetRow, ...] = ()


class WorkerReply(ManagerReply, frozen=True):
    """A list of workers."""

    items: tuple[WorkerRow, ...] = ()


class JobReply(ManagerReply, frozen=True):
    """Jobs, by Slurm cluster."""

    items: tuple[ClusterJobs, ...] = ()


class HistoryReply(ManagerReply, frozen=True):
    """Decisions, newest first."""

    items: tuple[DecisionRow, ...] = ()


class ErrorBody(StatusRow, frozen=True):
    """Why the manager refused a request."""

    code: str = ""
    message: str = ""
    leader: str = ""


class ErrorReply(StatusRow, frozen=True):
    """The body of a refusal."""

    error: ErrorBody = ErrorBody()


def find(conditions: tuple[ConditionRow, ...], kind: str) -> ConditionRow | None:
    """Return the condition of a type."""
    return next((one for one in conditions if one.type == kind), None)
