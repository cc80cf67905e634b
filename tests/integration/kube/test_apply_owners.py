"""Objects that another controller owns, and how they come to us."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.errors import Conflict, Invalid
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from slurm_operator.kube.runtime.apply import ApplyOutcome
from tests.support.kube.counted_client import OWNER, OWNER_UID, Watched, managers, raw

KEY_UID = "8f2f54a2-0000-4000-8000-000000000002"
USER_UID = "8f2f54a2-0000-4000-8000-000000000003"
KEY_OWNER = {
    "apiVersion": "v1",
    "kind": "Secret",
    "name": "auth-jwt",
    "uid": KEY_UID,
    "controller": True,
    "blockOwnerDeletion": True,
}
USER_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "user", "uid": USER_UID}


def token_secret(namespace: str, content: str = "two", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "alice", "namespace": namespace, "ownerReferences": [OWNER]},
        "data": {"SLURM_JWT": base64.b64encode(content.encode()).decode()},
        **more,
    }


async def token_made_by_go(client: Client, namespace: str, **more: Any) -> Secret:
    """Create a token Secret as Slinky does, controlled by the key's Secret; a user adds an owner."""
    body = token_secret(namespace, "one", **more)
    body["data"]["OLD"] = "b2xk"
    body["metadata"]["ownerReferences"] = [KEY_OWNER]
    await client.create(Secret, body, field_manager="manager")
    return await client.patch(
        Secret,
        "alice",
        namespace,
        [{"op": "add", "path": "/metadata/ownerReferences/-", "value": USER_OWNER}],
        type=PatchType.JSON,
        field_manager="kubectl-edit",
    )


async def test_another_controller_makes_way(watched: Watched, kube_namespace: str) -> None:
    """The former controller is replaced by ours, its maker's fields are cleaned up, other owners stay."""
    live = await token_made_by_go(watched.client, kube_namespace)
    watched.taken()
    desired = token_secret(kube_namespace)
    applied = await watched.applier.apply(desired, live, Secret, former_owners={KEY_UID})
    assert applied.outcome is ApplyOutcome.UPDATED
    assert watched.taken() == ["get", "patch", "apply", "apply"]
    body = await raw(watched.client, Secret, "alice", kube_namespace)
    assert {owner["uid"] for owner in body["metadata"]["ownerReferences"]} == {OWNER_UID, USER_UID}
    assert body["data"] == {"SLURM_JWT": base64.b64encode(b"two").decode()}
    assert managers(body) == {("slurm-operator", "Apply"), ("kubectl-edit", "Update")}
    assert applied.object == await watched.client.get(Secret, "alice", kube_namespace)
    watched.taken()
    again = await watched.applier.apply(desired, applied.object, Secret, former_owners={KEY_UID})
    assert again.outcome is ApplyOutcome.UNCHANGED
    assert watched.taken() == []


async def test_a_controller_that_came_back_makes_way_again(watched: Watched, kube_namespace: str) -> None:
    """When Slinky ran once more in between, what it set goes too, without a restart of ours."""
    desired = token_secret(kube_namespace)
    await watched.applier.apply(desired, None, Secret)
    live = await watched.client.patch(
        Secret,
        "alice",
        kube_namespace,
        {"metadata": {"ownerReferences": [KEY_OWNER]}, "data": {"OLD": "b2xk"}},
        type=PatchType.MERGE,
        field_manager="manager",
    )
    applied = await watched.applier.apply(desired, live, Secret, former_owners={KEY_UID})
    assert applied.outcome is ApplyOutcome.UPDATED
    body = await raw(watched.client, Secret, "alice", kube_namespace)
    assert body["metadata"]["ownerReferences"] == [OWNER]
    assert body["data"] == desired["data"]


async def test_another_controller_would_be_in_the_way(watched: Watched, kube_namespace: str) -> None:
    """The rule above is needed: the server does not let an object have two controllers."""
    live = await token_made_by_go(watched.client, kube_namespace)
    with pytest.raises(Invalid):
        await watched.applier.apply(token_secret(kube_namespace), live, Secret)


async def test_an_owner_that_was_not_named_stays(watched: Watched, kube_namespace: str) -> None:
    """Only the named owners go; a cache that still shows one that is gone already does no harm."""
    stale = await token_made_by_go(watched.client, kube_namespace)
    await watched.client.patch(
        Secret,
        "alice",
        kube_namespace,
        [{"op": "remove", "path": "/metadata/ownerReferences/0"}],
        type=PatchType.JSON,
        field_manager="kubectl-edit",
    )
    watched.taken()
    await watched.applier.apply(token_secret(kube_namespace), stale, Secret, former_owners={KEY_UID})
    assert watched.taken() == ["get", "apply"]
    body = await raw(watched.client, Secret, "alice", kube_namespace)
    assert {owner["uid"] for owner in body["metadata"]["ownerReferences"]} == {OWNER_UID, USER_UID}


@pytest.mark.parametrize("kind", [ConfigMap, Secret])
async def test_the_owner_of_an_immutable_object_is_replaced(
    watched: Watched, kube_namespace: str, kind: type[ConfigMap | Secret]
) -> None:
    """What cannot be changed any more still goes over to its new owner, in one step and once."""
    body = token_secret(kube_namespace, "one", immutable=True)
    body["metadata"]["ownerReferences"] = [KEY_OWNER, USER_OWNER]
    live = await watched.client.create(kind, body, field_manager="manager")
    watched.taken()
    held = await watched.applier.apply(token_secret(kube_namespace), live, kind, former_owners={KEY_UID})
    assert held.outcome is ApplyOutcome.IMMUTABLE
    assert watched.taken() == ["patch"]
    assert held.object == await watched.client.get(kind, "alice", kube_namespace)
    after = await raw(watched.client, kind, "alice", kube_namespace)
    assert after["data"] == body["data"]
    assert after["metadata"]["ownerReferences"] == [USER_OWNER, OWNER]
    watched.taken()
    again = await watched.applier.apply(
        token_secret(kube_namespace), held.object, kind, former_owners={KEY_UID}
    )
    assert again.outcome is ApplyOutcome.IMMUTABLE
    assert watched.taken() == []


async def test_an_owner_is_not_replaced_from_a_late_cache(watched: Watched, kube_namespace: str) -> None:
    """When the immutable object changed meanwhile, the replacement fails with Conflict and is retried."""
    live = await token_made_by_go(watched.client, kube_namespace, immutable=True)
    await watched.client.patch(
        Secret, "alice", kube_namespace, {"metadata": {"labels": {"a": "1"}}}, type=PatchType.MERGE
    )
    with pytest.raises(Conflict):
        await watched.applier.apply(token_secret(kube_namespace), live, Secret, former_owners={KEY_UID})
