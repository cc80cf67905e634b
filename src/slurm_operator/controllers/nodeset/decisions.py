"""What a policy answers, and why a pod has to go.

`Hold` has one word for machines and one sentence for people. Both reach the pod's condition, the NodeSet's
condition, the event and the log unchanged, so the sentence holds nothing that changes by itself, such as an
age: at rest nothing may be written.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


class Wait(StrEnum):
    """What is being waited for, in one word for conditions."""

    # Nobody can say what is on the node.
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
    """Why a pod has to go or its node must take no work; also the value of the mark beside a cordon."""

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
