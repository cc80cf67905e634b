"""What a plan consists of: small frozen words, each of which is one write or one batch of equal writes.

An action that takes something away, or that is right only for the pod as it was seen, carries the version it
was decided on; the API server refuses it if the pod has changed since. A deletion always carries the UID.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_operator.controllers.nodeset.decisions import Proof

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.controllers.nodeset.decisions import Cause, Hold
    from slurm_operator.kube.meta import Condition
    from slurm_operator.objects.slurmd_claims import OwnerPatch
    from slurm_operator.slurm.model import ReservationSpec
    from slurm_operator.slurm.wishes import Wish


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

    Unless `proof` is NONE, the ground is what Slurm said, and `plan.confirm` must say so again right before,
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
