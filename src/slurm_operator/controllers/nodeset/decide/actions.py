"""What a policy answers, and why a pod must be removed.

A `Hold` has a one-word reason for programs and a one-sentence message for users. Both reach the pod's
condition, the NodeSet's condition, the event and the log unchanged, so the message contains nothing that
changes by itself, such as an age: at rest nothing may be written.

What a plan consists of: small frozen words, each of which is one write or one batch of equal writes.

An action that takes something away, or that is right only for the pod as it was seen, carries the version it
was decided on; the API server refuses it if the pod has changed since. A deletion always carries the UID.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.kube.meta import Condition
    from slurm_operator.objects.slurmd_claims import OwnerPatch
    from slurm_operator.slurm.model import ReservationSpec
    from slurm_operator.slurm.wishes import Wish


class Wait(StrEnum):
    """What is being waited for, in one word for conditions."""

    # What runs on the node cannot be determined.
    NO_CONNECTION = "NoConnection"
    NO_VIEW = "NoView"
    VIEW_STALE = "ViewStale"
    SLURM_UNREACHABLE = "SlurmUnreachable"
    SLURMCTLD_DOWN = "SlurmctldDown"
    TOKEN_REFUSED = "TokenRefused"  # noqa: S105 - a reason, no password
    SLURM_REFUSED = "SlurmRefused"
    REPLY_UNREADABLE = "ReplyUnreadable"
    REPLY_TOO_LARGE = "ReplyTooLarge"
    LIST_SUSPICIOUS = "ListSuspicious"
    CLUSTER_NAME_MISMATCH = "ClusterNameMismatch"
    NODE_MISSING = "NodeMissing"
    CONTROLLER_JUST_STARTED = "ControllerJustStarted"
    STATE_UNKNOWN = "StateUnknown"
    JOBS_UNKNOWN = "JobsUnknown"
    # The node is known, and work is or may come on it.
    DRAIN_PENDING = "DrainPending"
    JOBS_RUNNING = "JobsRunning"
    JOBS_COMPLETING = "JobsCompleting"
    NODE_FAILING = "NodeFailing"
    # The node is not in Slurm.
    NODE_ABSENT = "NodeAbsent"
    NEVER_REGISTERED = "NeverRegistered"
    LOST_WHILE_BUSY = "LostWhileBusy"
    # Something that is not ours is in the way.
    FOREIGN_DRAIN = "ForeignDrain"
    NAME_TAKEN = "NameTaken"
    CLAIM_CONFLICT = "ClaimConflict"
    BUDGET_MISSING = "BudgetMissing"
    CONTROLLER_GONE = "ControllerGone"
    # It will be done, but not yet.
    NOT_READY = "NotReady"
    BACKING_OFF = "BackingOff"
    CLAIMS_PENDING = "ClaimsPending"
    NAME_IN_USE = "NameInUse"
    MAX_UNAVAILABLE = "MaxUnavailable"
    CACHE_BEHIND = "CacheBehind"


class Proof(StrEnum):
    """What a deletion still needs, right before it is sent."""

    NONE = "none"
    """Nothing: Kubernetes' own word is the ground, and the API server checks that it still holds."""
    LIST = "list"
    """A list of nodes that is a second old at most, and one of jobs since the node looks drained."""
    NAME = "name"
    """Such lists, and that Slurm, asked just now for this one node by its name, says that there is none."""


@dataclass(frozen=True, slots=True)
class Allow:
    """It may be done. `because` says on what ground.

    `unchanged`: only as long as the pod has not changed in Kubernetes since it was observed.
    """

    because: str
    unchanged: bool = False
    proof: Proof = Proof.LIST


@dataclass(frozen=True, slots=True)
class Hold:
    """It must not be done yet."""

    reason: Wait
    message: str


Decision = Allow | Hold


# What needs a person, and does not pass by itself.
TROUBLES: Final = (Wait.CONTROLLER_GONE, Wait.BUDGET_MISSING, Wait.NAME_TAKEN, Wait.CLAIM_CONFLICT)


def troubles(waits: Iterable[Hold]) -> dict[str, str]:
    """Return one sentence for each kind of trouble among what is waited for."""
    found: dict[str, list[str]] = {kind.value: [] for kind in TROUBLES}
    for hold in waits:
        if hold.reason in TROUBLES:
            found[hold.reason.value].append(hold.message)
    return {
        kind: f"{min(some)} ({len(some)} such cases)" if len(some) > 1 else some[0]
        for kind, some in found.items()
        if some
    }


class Cause(StrEnum):
    """Why a pod must be removed or its node must take no work; also the value of the mark beside a cordon."""

    DELETION = "NodeSetDeleted"
    SCALING_MODE = "ScalingModeChanged"
    FINISHED = "PodFinished"
    NODE_UNFIT = "NodeDoesNotMatch"
    HOSTNAME = "HostnameChanged"
    DUPLICATE = "DuplicatePod"
    SCALE_IN = "ScaleIn"
    UPDATE = "Update"
    REGISTRATION = "NotRegistered"
    REQUESTED = "RemovalRequested"
    NODE_TAINT = "NodeTainted"
    NODE_CORDON = "NodeCordoned"
    POD_CORDON = "PodCordoned"


# What `scontrol show node` shows. One text per NodeSet and cause, not per pod: equal texts are one request.
_TEXTS = {
    Cause.DELETION: "is being deleted",
    Cause.SCALING_MODE: "changes its scaling mode",
    Cause.FINISHED: "replaces a finished pod",
    Cause.NODE_UNFIT: "no longer matches the Kubernetes node",
    Cause.HOSTNAME: "renames the node",
    Cause.DUPLICATE: "has another pod for this node",
    Cause.SCALE_IN: "scales in",
    Cause.UPDATE: "updates",
    Cause.REGISTRATION: "registers the node again",
    Cause.REQUESTED: "was asked to remove the pod",
    Cause.NODE_TAINT: "has this node on a Kubernetes node whose taint the pod does not tolerate",
    Cause.NODE_CORDON: "has this node on a Kubernetes node that was cordoned",
    Cause.POD_CORDON: "has this node in a pod that was cordoned",
}


def drain_reason(cause: Cause, namespace: str, name: str) -> str:
    """Return the reason that a drain has in Slurm, without the operator's prefix."""
    return f"NodeSet ({namespace}/{name}) {_TEXTS[cause]}"


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Keep the NodeSet until its nodes are drained, or its reservation is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the NodeSet go."""

    name: str


@dataclass(frozen=True, slots=True)
class RecordExternal:
    """Write down on the NodeSet whether its Slurm goes on without its Controller."""

    external: bool


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make a worker: number `ordinal`, or the one of a Kubernetes node; `pin` binds a number to a node."""

    name: str
    ordinal: int | None = None
    node: str = ""
    pin: str = ""
    failures: int = 0
    """How many pods of this worker have ended in a row before this one."""


@dataclass(frozen=True, slots=True)
class PatchPod:
    """Change labels, annotations, tolerations of a pod; None removes. `version`: only if it is unchanged."""

    name: str
    uid: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    version: str = ""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    """All tolerations that the pod should have; empty if they stay as they are."""


@dataclass(frozen=True, slots=True)
class PatchPodStatus:
    """Set these conditions of a pod and remove those types; the kubelet's own stay as they are."""

    name: str
    uid: str
    set: tuple[Condition, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod.

    Unless `proof` is NONE, the ground is what Slurm said, and `confirm` must say so again right before,
    about lists as fresh as `proof` demands. `version`: only if the pod has not changed.
    """

    name: str
    uid: str
    slurm_name: str
    cause: Cause
    because: str
    version: str = ""
    proof: Proof = Proof.LIST
    failures: int = 0
    """How many pods of this worker have ended in a row, if the next one has to know."""


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """Take the protection of a pod away, on the same evidence as a deletion, if the pod has not changed."""

    name: str
    uid: str
    slurm_name: str
    version: str
    proof: Proof = Proof.LIST


@dataclass(frozen=True, slots=True)
class DrainNodes:
    """Let Slurm nodes take no new work."""

    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UndrainNodes:
    """Take drains of ours back."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResumeNodes:
    """Let Slurm nodes work again whose slurmd was started after they went down."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteNodes:
    """Give Slurm nodes their comment, topology or features: one field, one wish per node."""

    wishes: Mapping[str, Wish]


@dataclass(frozen=True, slots=True)
class DeleteRecord:
    """Let Slurm forget a node."""

    name: str


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """Give a volume claim other owners."""

    patch: OwnerPatch


@dataclass(frozen=True, slots=True)
class RestoreClaims:
    """Make volume claims again that disappeared before their pod started; `identity` is the worker's."""

    pod: str
    identity: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteReservation:
    """Make a reservation in Slurm, or change it."""

    spec: ReservationSpec
    exists: bool


@dataclass(frozen=True, slots=True)
class DeleteReservation:
    """Remove a reservation from Slurm."""

    name: str


Removal = DeletePod | ReleasePod
"""What needs the word of Slurm that a node is idle."""

Action = (
    AddFinalizer
    | RemoveFinalizer
    | RecordExternal
    | CreatePod
    | PatchPod
    | PatchPodStatus
    | Removal
    | DrainNodes
    | UndrainNodes
    | ResumeNodes
    | WriteNodes
    | DeleteRecord
    | OwnClaim
    | RestoreClaims
    | WriteReservation
    | DeleteReservation
)


@dataclass(frozen=True, slots=True)
class Note:
    """An event to record on the NodeSet; `pod` is the related pod."""

    reason: str
    action: str
    message: str
    warning: bool = False
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """Something that was wanted of a worker and must not be done yet; `cause` is None for an undrain."""

    pod: str
    slurm_name: str
    cause: Cause | None
    hold: Hold
