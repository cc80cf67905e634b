"""The volumes that workers have for themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.api import NodeSet
from slurm_operator.kube.models.kinds import PersistentVolumeClaim, Pod
from tests.support.processes import eventually

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object
    from tests.support.controllers.nodeset_namespace import Stage

NOWHERE = {"spec": {"nodeSelector": {"no": "such"}}}
SCRATCH: list[dict[str, Any]] = [
    {
        "metadata": {"name": "scratch"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
]


def controllers(found: Object) -> list[tuple[str, str]]:
    """Return kind and name of the objects that control another."""
    return [(one.kind, one.name) for one in found.metadata.owner_references if one.controller]


@pytest.mark.parametrize(
    ("policy", "owners"),
    [({}, []), ({"whenDeleted": "Delete"}, [("NodeSet", "blue")])],
    ids=["retained", "deleted with the NodeSet"],
)
async def test_claims_are_there_before_the_pod_and_have_their_owner(
    stage: Stage, policy: dict[str, str], owners: list[tuple[str, str]]
) -> None:
    """Each worker gets its claim first, owned as the policy says, and mounts it by the template's name."""
    await stage.operator()
    await stage.nodeset(
        replicas=2,
        template=NOWHERE,
        volumeClaimTemplates=SCRATCH,
        persistentVolumeClaimRetentionPolicy=policy,
    )
    pods = await stage.until_pods("blue-0", "blue-1")
    claims = await stage.claims()
    assert {*claims} == {"scratch-blue-0", "scratch-blue-1"}
    for number in (0, 1):
        claim, pod = claims[f"scratch-blue-{number}"], pods[f"blue-{number}"]
        assert controllers(claim) == owners
        assert claim.metadata.creation_timestamp is not None
        assert pod.metadata.creation_timestamp is not None
        assert claim.metadata.creation_timestamp <= pod.metadata.creation_timestamp
        assert pod.claims == (claim.metadata.name,)


async def test_claims_of_a_scaled_in_worker_stay_or_go_as_the_policy_says(stage: Stage) -> None:
    """With whenScaled: Delete the claim goes with the scaled-in worker; one that comes back has a new one."""
    await stage.operator()
    spec: dict[str, Any] = {"template": NOWHERE, "volumeClaimTemplates": SCRATCH}
    policy = {"whenScaled": "Delete"}
    await stage.nodeset(replicas=2, persistentVolumeClaimRetentionPolicy=policy, **spec)
    await stage.until_pods("blue-0", "blue-1")
    before = (await stage.claims())["scratch-blue-1"]
    await stage.scale(1)
    await stage.until_pods("blue-0")

    async def gone() -> bool:
        claim = (await stage.claims()).get("scratch-blue-1")
        return claim is None or claim.deleting

    await eventually(gone, "the claim of the worker that went is deleted")
    # Nobody runs the controller that takes this off, once no pod mounts a claim.
    await stage.release(PersistentVolumeClaim, "scratch-blue-1")
    await stage.scale(2)
    await stage.until_pods("blue-0", "blue-1")
    assert (await stage.claims())["scratch-blue-1"].metadata.uid != before.metadata.uid


async def test_a_worker_that_is_replaced_finds_its_claim_again(stage: Stage) -> None:
    """A deleted pod comes back with the same claim, also where claims of scaled-in workers go."""
    await stage.operator()
    await stage.nodeset(
        replicas=1,
        template=NOWHERE,
        volumeClaimTemplates=SCRATCH,
        persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete", "whenDeleted": "Delete"},
    )
    before = await stage.until_pods("blue-0")
    claim = (await stage.claims())["scratch-blue-0"]
    await stage.delete(Pod, "blue-0")
    await stage.until(
        lambda pods: bool(pods) and pods["blue-0"].metadata.uid != before["blue-0"].metadata.uid,
        "the worker is back",
    )
    after = (await stage.claims())["scratch-blue-0"]
    assert (after.metadata.uid, after.deleting) == (claim.metadata.uid, False)
    assert controllers(after) == [("NodeSet", "blue")]


async def test_a_claim_that_a_person_made_is_used(stage: Stage) -> None:
    """A claim of the right name is used as it is, and gets the labels by which it is found."""
    metadata = {"name": "scratch-blue-0", "namespace": stage.namespace}
    await stage.client.create(PersistentVolumeClaim, {"metadata": metadata, "spec": SCRATCH[0]["spec"]})
    uid = (await stage.claims())["scratch-blue-0"].metadata.uid
    await stage.operator()
    await stage.nodeset(replicas=1, template=NOWHERE, volumeClaimTemplates=SCRATCH)
    await stage.until_pods("blue-0")
    claim = (await stage.claims())["scratch-blue-0"]
    assert claim.metadata.uid == uid
    assert claim.metadata.labels["app.kubernetes.io/instance"] == "blue"


async def test_an_unusable_template_is_named(stage: Stage) -> None:
    """A claim that the API server refuses keeps its worker away, and the condition names the claim."""
    await stage.operator()
    broken = [{"metadata": {"name": "scratch"}, "spec": {"accessModes": ["Sometimes"]}}]
    await stage.nodeset(replicas=1, template=NOWHERE, volumeClaimTemplates=broken)
    degraded = await stage.says(NodeSet, "blue", "ApplyFailed", "Degraded")
    assert "'scratch-blue-0'" in degraded.message
    assert await stage.pods() == {}


async def test_a_claim_that_disappears_under_a_waiting_pod_comes_back(stage: Stage) -> None:
    """A person deletes the claim of a pod that has not started: it is made again, owned as before."""
    await stage.operator()
    await stage.nodeset(
        replicas=1,
        template=NOWHERE,
        volumeClaimTemplates=SCRATCH,
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"},
    )
    pods = await stage.until_pods("blue-0")
    before = (await stage.claims())["scratch-blue-0"]
    await stage.delete(PersistentVolumeClaim, "scratch-blue-0")
    await stage.release(PersistentVolumeClaim, "scratch-blue-0")

    async def back() -> bool:
        claim = (await stage.claims()).get("scratch-blue-0")
        return claim is not None and claim.metadata.uid != before.metadata.uid

    await eventually(back, "the claim is there again")
    assert controllers((await stage.claims())["scratch-blue-0"]) == [("NodeSet", "blue")]
    assert (await stage.pods())["blue-0"].metadata.uid == pods["blue-0"].metadata.uid
