"""What a policy answers, and why a pod must be removed.

A `Defer` has a one-word reason for programs and a one-sentence message for users. Both reach the pod's
condition, the NodeSet's condition, the event and the log unchanged, so the message contains nothing that
changes by itself, such as an age: at rest nothing may be written.

What a plan consists of: small frozen words, each of which is one write or one batch of equal writes.

An action that takes something away, or that is right only for the pod as it was seen, carries the version it
was decided on; the API server refuses it if the pod has changed since. A deletion always carries the UID.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api.reasons import Reason
    from slurm_operator.kube.models.meta import Condition
    from slurm_operator.objects.slurmd_claims import OwnerPatch
    from slurm_operator.slurm.decide.node_changes import NodeChange
    from slurm_operator.slurm.model.records import ReservationSpec


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
class Defer:
    """It must not be done yet."""

    reason: Reason
    message: str


Decision = Allow | Defer


class RemovalCause(StrEnum):
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
    AUTOSCALING = "AutoscalingChanged"
    POWERED_DOWN = "PoweredDown"


# What `scontrol show node` shows. One text per NodeSet and cause, not per pod: equal texts are one request.
_TEXTS = {
    RemovalCause.DELETION: "is being deleted",
    RemovalCause.SCALING_MODE: "changes its scaling mode",
    RemovalCause.FINISHED: "replaces a finished pod",
    RemovalCause.NODE_UNFIT: "no longer matches the Kubernetes node",
    RemovalCause.HOSTNAME: "renames the node",
    RemovalCause.DUPLICATE: "has another pod for this node",
    RemovalCause.SCALE_IN: "scales in",
    RemovalCause.UPDATE: "updates",
    RemovalCause.REGISTRATION: "registers the node again",
    RemovalCause.REQUESTED: "was asked to remove the pod",
    RemovalCause.NODE_TAINT: "has this node on a Kubernetes node whose taint the pod does not tolerate",
    RemovalCause.NODE_CORDON: "has this node on a Kubernetes node that was cordoned",
    RemovalCause.POD_CORDON: "has this node in a pod that was cordoned",
    RemovalCause.AUTOSCALING: "replaces the record of the node, because autoscaling was switched on or off",
    RemovalCause.POWERED_DOWN: "has this node powered down by Slurm",
}


def drain_reason(cause: RemovalCause, namespace: str, name: str) -> str:
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
    cause: RemovalCause
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
class ResumeCloudNodes:
    """Make CLOUD nodes usable again that slurmctld took down because they did not come up in time."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PowerUpNodes:
    """Have Slurm power nodes up, to have as many as the NodeSet keeps."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateRecords:
    """Have Slurm create the records of workers that it may power up; all or none."""

    names: tuple[str, ...]
    line: str
    options: str


@dataclass(frozen=True, slots=True)
class WriteNodes:
    """Give Slurm nodes their comment, topology or features: one field, one change per node."""

    changes: Mapping[str, NodeChange]


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
    | ResumeCloudNodes
    | PowerUpNodes
    | CreateRecords
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

    reason: Reason
    action: str
    message: str
    warning: bool = False
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Something that was wanted of a worker and must not be done yet; `cause` is None for an undrain."""

    pod: str
    slurm_name: str
    cause: RemovalCause | None
    wait: Defer
