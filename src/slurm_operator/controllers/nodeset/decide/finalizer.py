"""What happens when the NodeSet itself is deleted.

A finalizer keeps the NodeSet until its nodes are drained and its pods are gone; without it Kubernetes would
delete the pods with whatever runs on them. Three things lift it: the annotation that asks for that, a
Controller that is deleted too (then there is no Slurm left to ask), and `--cascade=orphan`, which means that
the pods are to stay. In the first two cases the pods lose their protection before: no operator would remove
it later, and Kubernetes could not delete them.

An external Slurm goes on without its Controller, and so do its jobs and its reservations: the NodeSet waits
for its answer, or for a user. That it is external is an annotation of the NodeSet, by which also a process
knows it that never saw the Controller.

With `--cascade=foreground` Kubernetes deletes what the NodeSet owns at once, not only the pods, which are
protected, but also the budget that protects them from evictions. So it and the Service are kept for as long
as workers drain.

Kubernetes deletes everything that a NodeSet owns with it, including a pod whose labels a user has changed,
and which therefore is not a worker of any NodeSet. So before the finalizer is removed, all pods of the
namespace are listed, unless they are to be orphaned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages, observation
from slurm_operator.controllers.nodeset.decide.actions import (
    AddFinalizer,
    Defer,
    PatchPod,
    RecordExternal,
    RemoveFinalizer,
)
from slurm_operator.controllers.nodeset.decide.observation import ControllerState, Observation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
    from slurm_operator.kube.manifests.wire import BadObject
    from slurm_operator.kube.models.meta import Object, ObjectMeta


def skips_drain(seen: Observation) -> bool:
    """Return whether the NodeSet is annotated to be deleted with its pods, whatever runs on them."""
    return seen.nodeset.metadata.annotations.get(wellknown.ANNOTATION_SKIP_DRAIN) == wellknown.TRUE


def guard(seen: Observation) -> list[Action]:
    """Return what to change about the finalizer of a NodeSet that stays."""
    present = wellknown.FINALIZER_DRAIN in seen.nodeset.metadata.finalizers
    if skips_drain(seen):
        if not present or any(worker.protected and worker.active for worker in seen.workers):
            return []
        return [RemoveFinalizer(wellknown.FINALIZER_DRAIN)]
    return [] if present else [AddFinalizer(wellknown.FINALIZER_DRAIN)]


def lets_go(seen: Observation) -> bool:
    """Return whether a NodeSet that is being deleted needs no drain."""
    return skips_drain(seen) or without_slurm(seen) or orphans(seen)


def orphans(seen: Observation) -> bool:
    """Return whether the pods are to stay when the NodeSet goes."""
    return observation.FINALIZER_ORPHAN in seen.nodeset.metadata.finalizers


def keeps_shared(seen: Observation) -> bool:
    """Return whether a NodeSet that is being deleted has workers that still need what they share."""
    return seen.nodeset.deleting and not lets_go(seen) and any(worker.active for worker in seen.workers)


def unprotect(seen: Observation) -> list[Action]:
    """Return how the pods of a NodeSet that needs no drain lose their protection."""
    if orphans(seen):
        return []
    change = {wellknown.LABEL_POD_PROTECT: None}
    return [PatchPod(one.name, one.uid, change) for one in seen.workers if one.protected and one.active]


def still_protected(uid: str, pods: Iterable[Object]) -> str | None:
    """Return why a NodeSet that needs no drain must stay, given all pods: Kubernetes could not delete one."""
    found = sorted(
        pod.metadata.name
        for pod in pods
        if _owns(uid, pod.metadata)
        and pod.metadata.labels.get(wellknown.LABEL_POD_PROTECT) == wellknown.TRUE
        and pod.metadata.deletion_timestamp is None
    )
    if not found:
        return None
    return messages.still_protected(found[0])


def without_slurm(seen: Observation) -> bool:
    """Return whether the Controller is deleted, and its slurmctld with it."""
    return seen.controller in (ControllerState.LEAVES, ControllerState.GONE)


def record(seen: Observation) -> list[Action]:
    """Return what to write down, so that a process without the Controller knows whose Slurm goes on."""
    written = seen.nodeset.metadata.annotations.get(wellknown.ANNOTATION_EXTERNAL_SLURM) == wellknown.TRUE
    return [] if seen.external is None or seen.external == written else [RecordExternal(seen.external)]


def unreachable(seen: Observation, slurm: SlurmState) -> list[Defer]:
    """Say that an external Slurm whose Controller is gone cannot be asked, if so."""
    if seen.controller is not ControllerState.OUTLIVED or slurm.sees or slurm.unasked:
        return []
    if not seen.workers and wellknown.FINALIZER_RESERVATION not in seen.nodeset.metadata.finalizers:
        return []
    name, left = seen.nodeset.spec.controller_ref.name, "" if seen.workers else seen.nodeset.reservation_name
    return [Defer(Reason.CONTROLLER_GONE, messages.controller_gone(name, left))]


def strays(uid: str, pods: Iterable[Object], unreadable: Iterable[BadObject]) -> str | None:
    """Return why a NodeSet of which all workers are gone must stay, given all pods; None if none goes along.

    A pod that cannot be read counts, unless at least its owners can be, and others own it.
    """
    owned = sorted(pod.metadata.name for pod in pods if _owns(uid, pod.metadata))
    unknown = sorted(one.key.name for one in unreadable if not one.metadata.name or _owns(uid, one.metadata))
    if owned:
        return messages.unlabelled_pods(len(owned), owned[0])
    if unknown:
        return messages.unreadable_pods(len(unknown), unknown[0])
    return None


def _owns(uid: str, metadata: ObjectMeta) -> bool:
    return any(owner.uid == uid for owner in metadata.owner_references)


def release(seen: Observation, *finalizers: str) -> list[Action]:
    """Return the removals of finalizers that are there."""
    return [RemoveFinalizer(one) for one in finalizers if one in seen.nodeset.metadata.finalizers]
