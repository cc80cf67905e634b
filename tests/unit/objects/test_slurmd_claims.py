"""Claims of workers, and their owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.kube.models.kinds import PersistentVolumeClaim, Pod
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.slurmd_claims import (
    ClaimOwner,
    Ownership,
    claim_volumes,
    claims,
    claims_of,
    leaving,
    owner_of,
    ownership,
)
from tests.support.objects.resources import node_set

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet

TEMPLATE = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
POD: Pod = msgspec.convert(
    {
        "metadata": {
            "name": "gpu-0",
            "uid": "pod-uid",
            "labels": {"nodeset.slinky.slurm.net/scaling-mode": "StatefulSet"},
        }
    },
    Pod,
)


def gpu(deleted: str = "Retain", scaled: str = "Retain", *templates: dict[str, Any]) -> NodeSet:
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    return node_set(
        "gpu",
        volumeClaimTemplates=list(templates or (TEMPLATE,)),
        persistentVolumeClaimRetentionPolicy=policy,
    )


def reference(kind: str, name: str, uid: str, **fields: Any) -> dict[str, Any]:
    version = {"NodeSet": "slinky.slurm.net/v1beta1", "Pod": "v1"}.get(kind, "example.org/v1")
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    } | fields


SET, WORKER = reference("NodeSet", "gpu", "uid-gpu"), reference("Pod", "gpu-0", "pod-uid")
FOREIGN = reference("Backup", "b", "b-uid")
BYSTANDER = reference("Backup", "b", "b-uid", controller=False)
OLD_SET, OLD_WORKER = reference("NodeSet", "gpu", "old"), reference("Pod", "gpu-0", "old")


def claim(*owners: dict[str, Any], **metadata: Any) -> PersistentVolumeClaim:
    body = {
        "name": "data-gpu-0",
        "uid": "c",
        "resourceVersion": "7",
        "ownerReferences": list(owners),
    } | metadata
    return msgspec.convert({"metadata": body}, PersistentVolumeClaim)


# --------------------------------------------------------------------------------------------------- objects


def test_a_claim_is_made_from_its_template() -> None:
    """A claim has the template's labels and annotations, ours win, and nobody owns it unless asked."""
    template = {
        "metadata": {
            "name": "data",
            "labels": {"a": "b", "app.kubernetes.io/name": "x"},
            "annotations": {"n": "1"},
        },
        "spec": {"volumeMode": "Block"},
        "status": {"phase": "Bound"},
    }
    assert claims(gpu("Retain", "Delete", template), "007") == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data-gpu-007",
                "namespace": "NS",
                "labels": {
                    "a": "b",
                    "app.kubernetes.io/instance": "gpu",
                    "app.kubernetes.io/managed-by": "slurm-operator",
                    "app.kubernetes.io/name": "slurmd",
                    "app.kubernetes.io/part-of": "slurm",
                },
                "annotations": {"n": "1"},
            },
            "spec": {"volumeMode": "Block"},
        }
    ]


def test_a_claim_that_goes_with_the_set_is_made_as_its_own() -> None:
    """Where the policy deletes claims with the NodeSet, they belong to it from the start."""
    (made,) = claims(gpu("Delete"), "0")
    assert made["metadata"]["ownerReferences"] == [SET]


def test_volumes_of_claims_take_the_place_of_others() -> None:
    """A volume of the same name as a claim is replaced by it, the others stay."""
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "shm", "emptyDir": {}}]
    assert claim_volumes(gpu(), "m1", volumes) == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-gpu-m1"}},
        {"name": "shm", "emptyDir": {}},
    ]


def test_the_claims_of_a_pod_are_those_of_its_worker() -> None:
    """A pod's claims follow from its identity, not from what it happens to mount."""
    assert claims_of(gpu(), POD) == ("data-gpu-0",)
    stranger = msgspec.convert({"metadata": {"name": "other"}}, Pod)
    assert claims_of(gpu(), stranger) == ()


@pytest.mark.parametrize("metadata", [{}, {"name": ""}, {"name": 1}])
def test_a_template_without_a_name_is_refused(metadata: dict[str, Any]) -> None:
    """A template that nothing can be mounted by is reported with its place."""
    with pytest.raises(Unbuildable, match=r"spec.volumeClaimTemplates\[1\].metadata.name"):
        claims(gpu("Retain", "Retain", TEMPLATE, {"metadata": metadata}), "0")


@pytest.mark.parametrize(
    ("found", "going"),
    [
        (claim(), False),
        (claim(SET), False),
        (claim(FOREIGN), False),
        (claim(reference("Pod", "gpu-0", "old", controller=False)), False),
        (claim(OLD_WORKER), True),
        (claim(OLD_SET), True),
        (claim(deletionTimestamp="2026-01-01T00:00:00Z"), True),
    ],
)
def test_claims_about_to_vanish_are_recognised(found: PersistentVolumeClaim, going: bool) -> None:  # noqa: FBT001 - a table
    """A claim that is deleted, or whose controller is gone, must not be given to a new pod."""
    assert leaving(gpu(), "gpu-0", [found]) == (("data-gpu-0",) if going else ())


# ------------------------------------------------------------------------------------------------- ownership


@pytest.mark.parametrize(
    ("deleted", "scaled", "kept", "condemned"),
    [
        ("Retain", "Retain", ClaimOwner.NONE, ClaimOwner.NONE),
        ("Delete", "Retain", ClaimOwner.NODE_SET, ClaimOwner.NODE_SET),
        ("Retain", "Delete", ClaimOwner.NONE, ClaimOwner.WORKER),
        ("Delete", "Delete", ClaimOwner.NODE_SET, ClaimOwner.WORKER),
    ],
)
def test_the_policy_decides_who_owns_claims(
    deleted: str, scaled: str, kept: ClaimOwner, condemned: ClaimOwner
) -> None:
    """Claims belong to a worker only while it is scaled in, else to the NodeSet, else to nobody."""
    nodeset = gpu(deleted, scaled)
    assert owner_of(nodeset, scaled_in=False) is kept
    assert owner_of(nodeset, scaled_in=True) is condemned
    wanted = {ClaimOwner.NONE: [], ClaimOwner.NODE_SET: [SET], ClaimOwner.WORKER: [WORKER]}
    for scaled_in, owner in ((False, kept), (True, condemned)):
        for before in ([], [SET], [WORKER], [SET, WORKER], [SET | {"controller": False}], [BYSTANDER]):
            decided = ownership(nodeset, claim(*before), POD, scaled_in=scaled_in)
            after = [item for item in before if item == BYSTANDER] + wanted[owner]
            assert decided.conflict is None
            if before == after:
                assert decided.patch is None
            else:
                assert decided.patch is not None
                assert decided.patch.body["metadata"]["ownerReferences"] == after
                assert ownership(nodeset, claim(*after), POD, scaled_in=scaled_in) == Ownership()


def test_a_patch_is_for_the_claim_that_was_looked_at() -> None:
    """The patch names UID and version, so that it cannot hit another claim or undo somebody's change."""
    decided = ownership(gpu("Delete"), claim(), POD, scaled_in=False)
    assert decided.patch is not None
    assert decided.patch.claim == "data-gpu-0"
    assert decided.patch.body == {"metadata": {"uid": "c", "resourceVersion": "7", "ownerReferences": [SET]}}


def test_a_cordoned_worker_keeps_its_data() -> None:
    """A worker that is cordoned, and not scaled in, does not own its claims: it comes back for them."""
    cordoned = msgspec.convert(
        {
            "metadata": {
                "name": "gpu-0",
                "uid": "pod-uid",
                "annotations": {"nodeset.slinky.slurm.net/pod-cordon": "true"},
            }
        },
        Pod,
    )
    assert ownership(gpu("Retain", "Delete"), claim(), cordoned, scaled_in=False) == Ownership()
    decided = ownership(gpu("Retain", "Delete"), claim(WORKER), cordoned, scaled_in=False)
    assert decided.patch is not None
    assert decided.patch.body["metadata"]["ownerReferences"] == []


@pytest.mark.parametrize("owners", [(OLD_SET,), (OLD_WORKER,), (OLD_SET, SET), (OLD_WORKER, WORKER)])
@pytest.mark.parametrize("scaled_in", [False, True])
def test_claims_of_somebody_who_is_gone_are_left_alone(owners: tuple[Any, ...], scaled_in: bool) -> None:  # noqa: FBT001 - a table
    """A claim owned by an earlier object of the same name is the garbage collector's."""
    assert ownership(gpu("Delete", "Delete"), claim(*owners), POD, scaled_in=scaled_in) == Ownership()


def test_a_claim_that_is_deleted_is_left_alone() -> None:
    """Nothing is changed about a claim on its way out."""
    going = claim(deletionTimestamp="2026-01-01T00:00:00Z")
    assert ownership(gpu("Delete"), going, POD, scaled_in=False) == Ownership()


def test_another_controller_keeps_its_claim() -> None:
    """A claim that somebody else controls is not ours to delete: we let go of it, and tell."""
    decided = ownership(gpu("Delete"), claim(FOREIGN), POD, scaled_in=False)
    assert decided.patch is None
    assert decided.conflict is not None
    assert decided.conflict.name == "b"
    decided = ownership(gpu("Delete"), claim(FOREIGN, SET | {"controller": False}), POD, scaled_in=False)
    assert decided.conflict is not None
    assert decided.patch is not None
    assert [item["uid"] for item in decided.patch.body["metadata"]["ownerReferences"]] == ["b-uid"]


def test_who_keeps_all_claims_has_no_conflict() -> None:
    """A policy that deletes nothing does not mind who else controls a claim."""
    assert ownership(gpu(), claim(FOREIGN), POD, scaled_in=True) == Ownership()


def test_without_a_pod_nothing_is_given_to_it() -> None:
    """A worker whose pod is gone cannot own anything, so the claim goes with the NodeSet at most."""
    decided = ownership(gpu("Delete", "Delete"), claim(), None, scaled_in=True)
    assert decided.patch is not None
    assert decided.patch.body["metadata"]["ownerReferences"] == [SET]
    assert ownership(gpu("Retain", "Delete"), claim(), None, scaled_in=True) == Ownership()
