"""What the NodeSet controller says about writes to Kubernetes and Slurm: done, failed, or not possible now.

Like `decide.messages`, all are in `tests/fixtures/messages.txt`. The error of a server follows a colon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.nodeset.decide.messages import count, some
from slurm_operator.slurm.model import hostlist

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTROLLER_REF: Final = "spec.controllerRef"
_SCHEDULED_UPDATE: Final = "spec.updateStrategy.scheduledUpdate"
NOT_GUARDED: Final = (
    "No worker is created until the operator can set the finalizer that keeps the NodeSet while its workers "
    "drain, and the annotation that its Slurm is external"
)
# What is done to Slurm nodes.
CHANGE_STATE: Final = "change the state of"
SET_FIELDS: Final = "set comment, topology or features of"


def failed(verb: str, what: str, error: object = None) -> str:
    """Say that a request failed, if known with its error."""
    text = f"Failed to {verb} {what}"
    return text if error is None else f"{text}: {error}"


def created(pods: Sequence[str]) -> str:
    """Say which pods were created."""
    return f"Created {count(len(pods), 'pod')}: {hostlist.fold(pods)}"


def deleted(cause: str, pods: Sequence[str]) -> str:
    """Say which pods were deleted, and why."""
    return f"Deleted {count(len(pods), 'pod')} ({cause}): {hostlist.fold(pods)}"


def claim_restored(claim: str) -> str:
    """Say that a PVC that had disappeared was created again."""
    return f"Created {claim} again"


def lost_claim(claim: str, pod: str) -> str:
    """Return what a PVC is called that disappeared before its pod started."""
    return f"missing PVC {claim!r} of pod {pod!r}"


def name_taken(pod: str, owner: str) -> str:
    """Say that another pod has the name of a worker; `owner` is empty if it only lacks the labels."""
    whose = f"belongs to {owner}" if owner else "lacks the labels of a worker"
    return f"Cannot create worker {pod!r}: the existing pod of that name {whose}. Delete that pod"


def child_taken(child: str, owner: str) -> str:
    """Say that an object of another owner has the name of a child."""
    return f"{child} belongs to {owner}: rename one of the two, or delete it if its owner no longer exists"


def controller_unreadable(name: str, error: str) -> str:
    """Say that the Controller cannot be decoded."""
    return f"{CONTROLLER_REF}: Controller {name!r} cannot be read: {error}"


def controller_missing(name: str) -> str:
    """Say that the Controller does not exist."""
    return (
        f"{CONTROLLER_REF}: Controller {name!r} does not exist: create it. Until then no worker is created "
        "or removed"
    )


def nodes_failed(what: str, nodes: int, first: str, error: object) -> str:
    """Say that Slurm did not accept a change of nodes."""
    return f"Failed to {what} {some(nodes, 'Slurm node', first)}: {error}"


def nodes_not_sent(what: str, nodes: int, first: str, why: str) -> str:
    """Say that a change of nodes was not sent to Slurm."""
    return f"Did not {what} {some(nodes, 'Slurm node', first)}: {why}"


def records_not_created(records: int, error: object) -> str:
    """Say that Slurm did not create node records."""
    return f"Failed to create {count(records, 'Slurm node record')}: {error}"


def records_not_deleted(records: int, first: str, error: object) -> str:
    """Say that Slurm did not delete node records."""
    return f"Failed to delete {some(records, 'Slurm node record', first)}: {error}"


def reservation_failed(verb: str, name: str, error: object) -> str:
    """Say that Slurm did not accept a change of the reservation."""
    return f"{_SCHEDULED_UPDATE}: failed to {verb} reservation {name!r}: {error}"
