"""The volumes of individual workers: PVCs, and the owner with which each is deleted.

A PVC outlives the pod that uses it, unless the retention policy requires otherwise. Kubernetes' garbage
collector carries out the policy, so the decision is which owner a PVC has: the NodeSet (it is deleted with
the NodeSet), the pod (it is deleted with the pod), or none (it stays). The rules are those of a StatefulSet.

The pod becomes the owner only when the worker is being *scaled in*, which the caller determines from the
plan. A worker that is drained or cordoned looks the same from outside, but comes back and needs its data.

A PVC whose owner is another object of the same name as ours, with another UID, is left alone: that owner is
gone, and the garbage collector is about to delete the PVC. A new pod must wait for that (`leaving`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api.nodeset import ClaimRetention
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import OwnerReference
from slurm_operator.objects import labels
from slurm_operator.objects.desired import Manifest, invalid
from slurm_operator.objects.pod_parts import take
from slurm_operator.objects.slurmd_identity import SLURMD, claim_identity_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_operator.api import NodeSet
    from slurm_operator.kube.models.kinds import PersistentVolumeClaim

_WHERE = "spec.volumeClaimTemplates"


class ClaimOwner(Enum):
    """To whom a claim belongs."""

    NONE = "none"
    NODE_SET = "NodeSet"
    WORKER = "worker"


# --------------------------------------------------------------------------------------------------- objects


def claim_names(nodeset: NodeSet, identity: str) -> dict[str, str]:
    """Return the name of each claim of a worker, by the name of its template."""
    return {name: nodeset.claim_name(name, identity) for name, _ in _templates(nodeset)}


def claims_of(nodeset: NodeSet, pod: Pod) -> tuple[str, ...]:
    """Return the names of the claims that belong to a pod's worker, whether or not they exist."""
    identity = claim_identity_of(nodeset, pod)
    return tuple(claim_names(nodeset, identity).values()) if identity else ()


def claim_volumes(nodeset: NodeSet, identity: str, volumes: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return a pod's volumes with those of its claims in front, in place of others with the same name."""
    names = claim_names(nodeset, identity)
    return [
        *({"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in names.items()),
        *(volume for volume in volumes if volume.get("name") not in names),
    ]


def claims(nodeset: NodeSet, identity: str) -> list[Manifest]:
    """Return the claims of a worker as they are made, before its pod."""
    owner = owner_of(nodeset, scaled_in=False)
    references = [labels.owner_reference(nodeset)] if owner is ClaimOwner.NODE_SET else []
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": nodeset.claim_name(name, identity),
                "namespace": nodeset.metadata.namespace,
                "labels": labels.recommended(
                    labels.merge_maps(
                        take(metadata, "labels", dict, _WHERE),
                        labels.selector_labels(SLURMD, nodeset.metadata.name),
                    )
                ),
                **{key: metadata[key] for key in ("annotations",) if metadata.get(key)},
                **({"ownerReferences": references} if references else {}),
            },
            "spec": take(template, "spec", dict, _WHERE),
        }
        for name, template in _templates(nodeset)
        for metadata in (take(template, "metadata", dict, _WHERE),)
    ]


def leaving(nodeset: NodeSet, pod_name: str, existing: Iterable[PersistentVolumeClaim]) -> tuple[str, ...]:
    """Return those claims of a worker without a pod that are about to vanish: a new pod must not use them."""
    return tuple(
        claim.metadata.name
        for claim in existing
        if claim.deleting
        or any(
            _names_pod(owner, pod_name) or (_names(owner, nodeset) and owner.uid != nodeset.metadata.uid)
            for owner in claim.metadata.owner_references
            if owner.controller
        )
    )


def _templates(nodeset: NodeSet) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for index, template in enumerate(nodeset.spec.volume_claim_templates or ()):
        name = take(template, "metadata", dict, f"{_WHERE}[{index}]").get("name")
        if not isinstance(name, str) or not name:
            raise invalid(
                f"{_WHERE}[{index}].metadata.name", "is empty; set the name by which the volume is mounted"
            )
        found.append((name, template))
    return found


# ------------------------------------------------------------------------------------------------- ownership


@dataclass(frozen=True, slots=True)
class OwnerPatch:
    """A JSON merge patch that gives a claim other owners, if it is still the one that was observed."""

    claim: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ownership:
    """What to do about the owners of a claim, and which other controller holds it, if one does."""

    patch: OwnerPatch | None = None
    conflict: OwnerReference | None = None


def owner_of(nodeset: NodeSet, *, scaled_in: bool) -> ClaimOwner:
    """Return to whom the claims of a worker belong."""
    policy = nodeset.spec.persistent_volume_claim_retention_policy
    if scaled_in and policy.when_scaled == ClaimRetention.DELETE:
        return ClaimOwner.WORKER
    return ClaimOwner.NODE_SET if policy.when_deleted == ClaimRetention.DELETE else ClaimOwner.NONE


def ownership(
    nodeset: NodeSet, claim: PersistentVolumeClaim, pod: Pod | None, *, scaled_in: bool
) -> Ownership:
    """Decide about the owners of one claim of a worker; `pod` is the worker's, if it has one."""
    current = claim.metadata.owner_references
    ours = {nodeset.metadata.uid, *((pod.metadata.uid,) if pod else ())}
    named = [
        item for item in current if _names(item, nodeset) or (pod and _names_pod(item, pod.metadata.name))
    ]
    if claim.deleting or any(item.uid not in ours for item in named):
        return Ownership()
    wanted = tuple(item for item in current if item.uid not in ours)
    conflict = None if _keeps_all(nodeset) else next((item for item in wanted if item.controller), None)
    if conflict is None:
        wanted += _references(nodeset, pod, scaled_in=scaled_in)
    return Ownership(None if _same(current, wanted) else _patch(claim, wanted), conflict)


def _references(nodeset: NodeSet, pod: Pod | None, *, scaled_in: bool) -> tuple[OwnerReference, ...]:
    owner = owner_of(nodeset, scaled_in=scaled_in and pod is not None)
    if owner is ClaimOwner.WORKER and pod is not None:
        return (_reference(pod),)
    return (_reference(nodeset),) if owner is ClaimOwner.NODE_SET else ()


def _keeps_all(nodeset: NodeSet) -> bool:
    policy = nodeset.spec.persistent_volume_claim_retention_policy
    return policy.when_deleted == policy.when_scaled == ClaimRetention.RETAIN


def _reference(owner: NodeSet | Pod) -> OwnerReference:
    return OwnerReference(
        api_version=owner.RESOURCE.api_version,
        kind=owner.RESOURCE.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _same(current: Sequence[OwnerReference], wanted: Sequence[OwnerReference]) -> bool:
    return {item.uid: bool(item.controller) for item in current} == {
        item.uid: bool(item.controller) for item in wanted
    }


def _patch(claim: PersistentVolumeClaim, wanted: Sequence[OwnerReference]) -> OwnerPatch:
    return OwnerPatch(
        claim.metadata.name,
        {
            "metadata": {
                "uid": claim.metadata.uid,
                "resourceVersion": claim.metadata.resource_version,
                "ownerReferences": msgspec.to_builtins(list(wanted)),
            }
        },
    )


def _names(reference: OwnerReference, nodeset: NodeSet) -> bool:
    """Return whether an owner is a NodeSet of this name, of whatever version of the API."""
    group = reference.api_version.partition("/")[0]
    return (group, reference.kind, reference.name) == (
        nodeset.RESOURCE.group,
        nodeset.RESOURCE.kind,
        nodeset.metadata.name,
    )


def _names_pod(reference: OwnerReference, name: str) -> bool:
    return (reference.api_version, reference.kind, reference.name) == (
        Pod.RESOURCE.api_version,
        Pod.RESOURCE.kind,
        name,
    )
