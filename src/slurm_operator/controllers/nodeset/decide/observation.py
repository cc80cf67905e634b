"""What one reconcile sees, and nothing else that it decides on.

A `Worker` is a pod of the NodeSet, read once: what the deciding code needs of it, with the defaults filled
in. Moments of pods are wall-clock time, as Kubernetes has them; moments of the view of Slurm are those of
the event loop's clock.

Two moments keep an old view from being believed. `since` is when this process began to lead: before that,
another one may have written to Slurm. `written` is when this process last changed the state of a node: a view
that was asked for before says nothing about it. Neither has to survive a crash, because after one every view
is newer.

Words that this controller uses in more than one place, beside those that others know it by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from slurm_operator.api import removal, wellknown
from slurm_operator.api.nodeset import NodeSet, ScalingMode
from slurm_operator.controllers.nodeset.decide.memo import Memo
from slurm_operator.objects import slurmd_identity
from slurm_operator.objects.node_fit import Fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.controllers.nodeset.decide.actions import Defer
    from slurm_operator.controllers.nodeset.decide.name_conflicts import Neighbour
    from slurm_operator.kube.models.kinds import Node, PersistentVolumeClaim, Pod
    from slurm_operator.kube.models.meta import Condition
    from slurm_operator.objects.slurmd_records import RecordShape
    from slurm_operator.slurm.model.view import ClusterView

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_ALIVE: Final = frozenset(
    f"{wellknown.POD_CONDITION_PREFIX}{state}" for state in ("Allocated", "Completing", "Idle", "Mixed")
)
_SILENT: Final = f"{wellknown.POD_CONDITION_PREFIX}NotResponding"
EVERYWHERE: Final = Fit(node_name="", selector=(), terms=None, tolerations=())


@dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """One pod of the NodeSet."""

    name: str
    uid: str
    version: str
    mode: str
    ordinal: int | None
    revision: str
    slurm_name: str
    node: str
    """The Kubernetes node it runs on, or is meant for; empty if the scheduler has yet to choose."""
    scheduled: bool
    started: bool
    """slurmd may have run in it: only a pod whose containers never started certainly has no work."""
    phase: str
    ready: bool
    ready_since: datetime | None
    finished: bool
    finished_at: datetime | None
    deleting: bool
    created: datetime
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    conditions: tuple[Condition, ...]
    request: removal.RemovalRequest | None
    """The recorded request to remove it."""
    disruption: Condition | None
    """By which Kubernetes says that it is about to remove the pod."""
    pod: Pod
    # What follows from these and is asked for many times in each plan.
    active: bool = field(init=False)
    """Its deletion has not been requested yet."""
    cordoned: bool = field(init=False)
    """Its node must take no work, by an annotation of the operator or of a user."""
    protected: bool = field(init=False)
    """Kubernetes is told not to remove it."""
    healthy: bool = field(init=False)
    """It runs, serves and stays."""

    def __post_init__(self) -> None:
        """Derive what follows from the rest, also of a copy with other values."""
        cordon = self.annotations.get(wellknown.ANNOTATION_POD_CORDON)
        protect = self.labels.get(wellknown.LABEL_POD_PROTECT)
        derive = object.__setattr__  # frozen
        derive(self, "active", not self.deleting)
        derive(self, "cordoned", cordon == wellknown.TRUE)
        derive(self, "protected", protect == wellknown.TRUE)
        derive(self, "healthy", self.ready and self.phase == "Running" and not self.deleting)

    @property
    def given_up(self) -> bool:
        """Return whether a person has given up its protection."""
        return self.annotations.get(wellknown.ANNOTATION_ALLOW_DELETION) == wellknown.TRUE

    @property
    def stated(self) -> bool:
        """Return whether its slurmd was told its name, so that the name in Slurm is certain."""
        return self.annotations.get(wellknown.ANNOTATION_STATED_NAME) == wellknown.TRUE

    @property
    def matched(self) -> bool:
        """Return whether Slurm has listed its node while it ran: the pod says what was seen of it.

        Where the name is a guess, a record that is down or silent may be left from another pod.
        """
        if wellknown.ANNOTATION_POD_DEADLINE in self.annotations:
            return True
        shown = {one.type for one in self.conditions if one.type.startswith(wellknown.POD_CONDITION_PREFIX)}
        return bool(shown) if self.stated else bool(shown & _ALIVE) and _SILENT not in shown

    def available(self, wall: datetime, min_ready_seconds: int) -> bool:
        """Return whether it has been ready for long enough."""
        # Without a time to wait no clock is asked: ours may be behind the one that said since when.
        return self.healthy and (not min_ready_seconds or self.available_at(min_ready_seconds) <= wall)

    def available_at(self, min_ready_seconds: int) -> datetime:
        """Return from when on it counts as available if it stays ready."""
        if not self.ready or self.ready_since is None:
            return self.created if self.ready and not min_ready_seconds else _NEVER
        return self.ready_since + timedelta(seconds=min_ready_seconds)


@dataclass(frozen=True, slots=True)
class Revision:
    """The revision that pods should have; `same` are all hashes that mean the same."""

    hash: str
    same: frozenset[str]


class ControllerState(Enum):
    """What becomes of the Controller that the NodeSet belongs to."""

    STAYS = "stays"
    LEAVES = "leaves"
    GONE = "gone"
    OUTLIVED = "outlived"
    """It leaves or is gone, but its slurmctld is external and goes on, whether it answers or not."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What Slurm said when it was asked for one node by its name, and when that question was sent."""

    at: float
    exists: bool


@dataclass(frozen=True, slots=True)
class FailedResume:
    """A node did not come up in time: so often in a row, last seen at a moment, with a time of Slurm's."""

    times: int
    at: float
    stamp: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that one reconcile decides on."""

    nodeset: NodeSet
    workers: tuple[Worker, ...]
    revision: Revision
    wall: datetime
    now: float
    view: ClusterView | None = None
    """What is known about Slurm; None without a connection to it."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    fit: Fit = EVERYWHERE
    """On which Kubernetes nodes workers belong."""
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    """The volume claims of the pods, those that exist, by name."""
    controller: ControllerState = ControllerState.STAYS
    external: bool | None = None
    """Whether the slurmctld of the Controller is external; None without a Controller."""
    settled: bool = True
    """The cache of pods shows all that this process has written."""
    since: float = -math.inf
    connected: float = -math.inf
    """When the connection to Slurm was made: a new one, as after a change of the key, has no answer yet."""
    written: Mapping[str, float] = field(default_factory=dict)
    asked: Mapping[str, NodeAnswer] = field(default_factory=dict)
    """The last answers about single nodes, and about the reservation (`names.reservation_key`).

    They say that it exists, not what is on it.
    """
    budget: Defer | None = None
    """Why the PodDisruptionBudget of the workers does not protect them, if so."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """How many pods of a worker have ended in a row, by their name, where none has followed yet."""
    propagated: tuple[str, ...] = ()
    """Conditions of Kubernetes nodes whose text becomes the reason of a drain."""
    neighbours: tuple[Neighbour, ...] = ()
    """The other NodeSets of the Controller, the oldest first."""
    name_holders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Where there are neighbours: the UIDs of the NodeSets with a pod of a name, by that name in Slurm."""
    record: RecordShape | None = None
    """What the records of autoscaled workers say; None while that is not known."""
    lacks: str = ""
    """Why the Slurm cluster cannot be autoscaled, if so."""
    resumes: Mapping[str, FailedResume] = field(default_factory=dict)
    """How often in a row nodes did not come up in time, by their names in Slurm."""
    made: Mapping[str, str] = field(default_factory=dict)
    """The lines from which this process created records, by their names in Slurm."""
    records_created: float = -math.inf
    """When this process last created records, or tried to; while it does so, no list is newer."""
    memo: Memo = field(default_factory=Memo, compare=False, repr=False)
    """Makes the next plan quicker, and never another one."""

    @property
    def daemon(self) -> bool:
        """Return whether the nodes decide how many pods there are."""
        return self.nodeset.spec.scaling_mode == ScalingMode.DAEMON_SET

    @property
    def where(self) -> tuple[str, str]:
        """Return namespace and name of the NodeSet."""
        return self.nodeset.metadata.namespace, self.nodeset.metadata.name


def read_worker(nodeset: NodeSet, pod: Pod) -> Worker:
    """Read a pod of a NodeSet."""
    meta, status = pod.metadata, pod.status
    # Pods of versions that had one mode only carry no label.
    mode = slurmd_identity.scaling_mode(pod) or ScalingMode.STATEFUL_SET.value
    ready, disruption = pod.condition("Ready"), pod.condition("DisruptionTarget")
    serves = ready is not None and ready.status == "True"
    return Worker(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        mode=mode,
        ordinal=slurmd_identity.ordinal_of(nodeset, meta.name) if mode == ScalingMode.STATEFUL_SET else None,
        revision=meta.labels.get(wellknown.LABEL_REVISION_HASH, ""),
        slurm_name=slurmd_identity.node_of(pod) or meta.name,
        node=pod.target_node,
        scheduled=bool(pod.spec.node_name),
        started=_started(pod),
        phase=status.phase,
        ready=serves,
        ready_since=ready.last_transition_time if serves and ready is not None else None,
        finished=pod.finished,
        finished_at=_finished_at(pod) if pod.finished else None,
        deleting=pod.deleting,
        created=meta.creation_timestamp or datetime.min.replace(tzinfo=UTC),
        labels=meta.labels,
        annotations=meta.annotations,
        conditions=status.conditions,
        request=removal.read(meta.annotations),
        disruption=disruption if disruption is not None and disruption.status == "True" else None,
        pod=pod,
    )


def _started(pod: Pod) -> bool:
    """Return whether slurmd may ever have run in a pod."""
    if not pod.spec.node_name:
        return False
    if pod.status.phase != "Pending":
        return True
    return any(
        one.restart_count
        or one.started
        or (one.state is not None and (one.state.running or one.state.terminated))
        or (one.last_state is not None and one.last_state.terminated)
        for one in pod.status.container_statuses
        if one.name == wellknown.APP_SLURMD
    )


def _finished_at(pod: Pod) -> datetime | None:
    ends = [
        one.state.terminated.finished_at
        for one in pod.status.container_statuses
        if one.state is not None and one.state.terminated is not None and one.state.terminated.finished_at
    ]
    return max(ends, default=None)


# Set by `kubectl delete --cascade=orphan`: the pods are to stay.
FINALIZER_ORPHAN: Final = "orphan"

# The latest end of jobs whose end is unknown; any other end is earlier.
NO_DEADLINE: Final = "9999-12-31T23:59:59Z"


def reservation_key(name: str) -> str:
    """Return the key under which the last answer about a reservation is kept; no node is called so."""
    return f"reservation/{name}"
