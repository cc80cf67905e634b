from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from slurm_operator.kube.apply import Applier, Outcome
from slurm_operator.kube.client import Client, PatchType
from slurm_operator.kube.errors import Conflict, FencedError, Invalid, NotFound
from slurm_operator.kube.models import ConfigMap, Deployment, Secret, StatefulSet
from tests.integration.kube.applying import OWNER, OWNER_UID, Watched, config_map, deployment, raw, watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box
    from slurm_operator.kube.config import ClientConfig

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
TAKEOVER = ("slurm-operator-takeover", "Apply")


@pytest.fixture
async def watched(config: ClientConfig) -> AsyncIterator[Watched]:
    async with watching(config) as opened:
        yield opened


def managers(body: dict[str, Any]) -> set[tuple[str, str]]:
    return {(entry["manager"], entry["operation"]) for entry in body["metadata"]["managedFields"]}


async def made_by_go(client: Client, namespace: str) -> Deployment:
    """Create a Deployment as the Go operator would, with some things that we do not want."""
    body = deployment(namespace)
    body["metadata"]["labels"]["old"] = "1"
    body["metadata"]["annotations"] = {"old": "1"}
    main = body["spec"]["template"]["spec"]["containers"][0]
    main["env"].append({"name": "OLD", "value": "1"})
    main["securityContext"] = {"privileged": True}
    return await client.create(Deployment, body, field_manager="manager")


async def test_fields_of_the_go_operator_are_taken_over(watched: Watched, kube_namespace: str) -> None:
    """What the Go operator set and we do not want disappears; what users set stays."""
    await made_by_go(watched.client, kube_namespace)
    live = await watched.client.patch(
        Deployment,
        "web",
        kube_namespace,
        {"metadata": {"labels": {"theirs": "1"}}},
        type=PatchType.MERGE,
        field_manager="kubectl-edit",
    )
    watched.taken()
    applied = await watched.applier.apply(deployment(kube_namespace), live, Deployment)
    assert applied.outcome is Outcome.UPDATED
    assert watched.taken() == ["apply", "patch", "apply"]
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    main = body["spec"]["template"]["spec"]["containers"][0]
    assert body["metadata"]["labels"] == {"mine": "1", "theirs": "1"}
    assert "annotations" not in body["metadata"]
    assert main["env"] == [{"name": "A", "value": "1"}]
    assert "securityContext" not in main
    assert managers(body) == {("slurm-operator", "Apply"), ("kubectl-edit", "Update")}


async def test_without_a_takeover_the_fields_would_stay(watched: Watched, kube_namespace: str) -> None:
    """The rule above is not the server's doing: a plain apply leaves what another manager set."""
    live = await made_by_go(watched.client, kube_namespace)
    plain = Applier(watched.client, predecessors=())
    await plain.apply(deployment(kube_namespace), live, Deployment)
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert body["metadata"]["labels"] == {"mine": "1", "old": "1"}


async def test_taking_over_equal_content_restarts_nothing(watched: Watched, kube_namespace: str) -> None:
    """When the Go operator made the very same object, its generation does not move."""
    live = await watched.client.create(Deployment, deployment(kube_namespace), field_manager="manager")
    applied = await watched.applier.apply(deployment(kube_namespace), live, Deployment)
    assert applied.outcome is Outcome.UNCHANGED
    assert applied.object is not None
    assert applied.object.metadata.generation == live.metadata.generation == 1
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert [entry["manager"] for entry in body["metadata"]["managedFields"]] == ["slurm-operator"]


async def test_a_takeover_happens_once(watched: Watched, kube_namespace: str) -> None:
    """A restarted operator applies each object once and finds nothing more to do."""
    live = await made_by_go(watched.client, kube_namespace)
    first = await watched.applier.apply(deployment(kube_namespace), live, Deployment)
    watched.taken()
    restarted = Applier(watched.client)
    again = await restarted.apply(deployment(kube_namespace), first.object, Deployment)
    assert again.outcome is Outcome.UNCHANGED
    assert watched.taken() == ["apply"]


async def test_another_program_called_manager_keeps_its_fields(watched: Watched, kube_namespace: str) -> None:
    """Only who set the owner reference counts as maker; other programs of that name are not robbed."""
    first = await watched.applier.apply(deployment(kube_namespace), None, Deployment)
    live = await watched.client.patch(
        Deployment,
        "web",
        kube_namespace,
        {"metadata": {"labels": {"theirs": "1"}}},
        type=PatchType.MERGE,
        field_manager="manager",
    )
    assert first.object is not None
    await Applier(watched.client).apply(deployment(kube_namespace), live, Deployment)
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert body["metadata"]["labels"] == {"mine": "1", "theirs": "1"}


async def test_a_takeover_that_lost_a_race_is_done_again(
    config: ClientConfig, kube_box: Box, kube_namespace: str
) -> None:
    """When the object changes between the steps the apply fails with Conflict and starts over next time."""
    writes = 0

    def change_before_the_second_write() -> None:
        nonlocal writes
        writes += 1
        if writes == 2:
            kube_box.kubectl("annotate", "deployment/web", "race=lost", "-n", kube_namespace)

    async with Client(config) as client:
        live = await made_by_go(client, kube_namespace)
    async with Client(config, fence=change_before_the_second_write) as client:
        applier = Applier(client)
        with pytest.raises(Conflict):
            await applier.apply(deployment(kube_namespace), live, Deployment)
        assert writes == 2
        live = await client.get(Deployment, "web", kube_namespace)
        await applier.apply(deployment(kube_namespace), live, Deployment)
        body = await raw(client, Deployment, "web", kube_namespace)
        assert body["metadata"]["labels"] == {"mine": "1"}
        assert body["metadata"]["annotations"] == {"race": "lost"}


async def test_an_object_deleted_meanwhile_is_not_created_empty(
    config: ClientConfig, kube_box: Box, kube_namespace: str
) -> None:
    """When the object goes away before its fields are cleaned up, the apply fails and nothing appears."""
    writes = 0

    def delete_before_the_third_write() -> None:
        nonlocal writes
        writes += 1
        if writes == 3:
            kube_box.kubectl("delete", "configmap/conf", "-n", kube_namespace)

    desired = config_map(kube_namespace, a="1")
    desired["metadata"]["ownerReferences"] = [OWNER]
    async with Client(config) as client:
        live = await client.create(ConfigMap, desired, field_manager="manager")
        async with Client(config, fence=delete_before_the_third_write) as racing:
            with pytest.raises(Conflict):
                await Applier(racing).apply(desired, live, ConfigMap)
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "conf", kube_namespace)


async def test_without_an_owner_nothing_is_taken(watched: Watched, kube_namespace: str) -> None:
    """An object that nobody owns shows no maker, so whoever is called `manager` keeps its fields."""
    body = config_map(kube_namespace, a="1", theirs="1")
    live = await watched.client.create(ConfigMap, body, field_manager="manager")
    await watched.applier.apply(config_map(kube_namespace, a="2"), live, ConfigMap)
    body = await raw(watched.client, ConfigMap, "conf", kube_namespace)
    assert body["data"] == {"a": "2", "theirs": "1"}
    assert ("manager", "Update") in managers(body)


# ------------------------------------------------------------------------------ fields that cannot be changed


def stateful_set(namespace: str, image: str = "example.org/main:1") -> dict[str, Any]:
    body = deployment(namespace)
    body["spec"]["serviceName"] = "web"
    body["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return body


async def stuck(client: Client, namespace: str) -> StatefulSet:
    """Create a StatefulSet as the Go operator would, with an immutable field that we do not want."""
    body = stateful_set(namespace)
    body["spec"]["podManagementPolicy"] = "Parallel"
    return await client.create(StatefulSet, body, field_manager="manager")


async def test_a_field_that_cannot_be_removed_stays(watched: Watched, kube_namespace: str) -> None:
    """An immutable field of the Go operator costs a warning; what we want is applied, now and later."""
    live = await stuck(watched.client, kube_namespace)
    with structlog.testing.capture_logs() as lines:
        first = await watched.applier.apply(stateful_set(kube_namespace), live, StatefulSet)
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == [
        "fields that a former operator set cannot be removed and stay"
    ]
    assert warnings[0]["key"] == f"{kube_namespace}/web"
    assert first.object == await watched.client.get(StatefulSet, "web", kube_namespace)
    watched.taken()
    again = await watched.applier.apply(stateful_set(kube_namespace), first.object, StatefulSet)
    assert again.outcome is Outcome.UNCHANGED
    assert watched.taken() == []
    newer = stateful_set(kube_namespace, image="example.org/main:2")
    second = await watched.applier.apply(newer, first.object, StatefulSet)
    assert second.outcome is Outcome.UPDATED
    third = await Applier(watched.client).apply(stateful_set(kube_namespace), second.object, StatefulSet)
    assert third.outcome is Outcome.UPDATED
    body = await raw(watched.client, StatefulSet, "web", kube_namespace)
    assert body["spec"]["podManagementPolicy"] == "Parallel"
    assert body["spec"]["template"]["spec"]["containers"][0]["image"] == "example.org/main:1"


async def test_a_takeover_that_was_cut_off_is_finished(config: ClientConfig, kube_namespace: str) -> None:
    """When the process loses its lease half-way, its successor removes what is not wanted."""
    writes = 0

    def fence() -> None:
        nonlocal writes
        writes += 1
        if writes == 3:
            raise FencedError("the lease is lost")

    async with watching(config) as watched:
        live = await made_by_go(watched.client, kube_namespace)
        async with Client(config, fence=fence) as fenced:
            with pytest.raises(FencedError):
                await Applier(fenced).apply(deployment(kube_namespace), live, Deployment)
        body = await raw(watched.client, Deployment, "web", kube_namespace)
        assert managers(body) == {("slurm-operator", "Apply"), TAKEOVER}
        live = await watched.client.get(Deployment, "web", kube_namespace)
        watched.taken()
        await watched.applier.apply(deployment(kube_namespace), live, Deployment)
        assert watched.taken() == ["apply", "apply"]
        body = await raw(watched.client, Deployment, "web", kube_namespace)
        assert body["metadata"]["labels"] == {"mine": "1"}
        assert managers(body) == {("slurm-operator", "Apply")}


# ---------------------------------------------------------------------------------------- another controller


def token_secret(namespace: str, content: str = "two", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "alice", "namespace": namespace, "ownerReferences": [OWNER]},
        "data": {"SLURM_JWT": base64.b64encode(content.encode()).decode()},
        **more,
    }


async def token_made_by_go(client: Client, namespace: str, **more: Any) -> Secret:
    """Create a token Secret as the Go operator does, controlled by the key's Secret; a user adds an owner."""
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
    assert applied.outcome is Outcome.UPDATED
    assert watched.taken() == ["get", "patch", "apply", "apply"]
    body = await raw(watched.client, Secret, "alice", kube_namespace)
    assert {owner["uid"] for owner in body["metadata"]["ownerReferences"]} == {OWNER_UID, USER_UID}
    assert body["data"] == {"SLURM_JWT": base64.b64encode(b"two").decode()}
    assert managers(body) == {("slurm-operator", "Apply"), ("kubectl-edit", "Update")}
    assert applied.object == await watched.client.get(Secret, "alice", kube_namespace)
    watched.taken()
    again = await watched.applier.apply(desired, applied.object, Secret, former_owners={KEY_UID})
    assert again.outcome is Outcome.UNCHANGED
    assert watched.taken() == []


async def test_a_controller_that_came_back_makes_way_again(watched: Watched, kube_namespace: str) -> None:
    """When the Go operator ran once more in between, what it set goes too, without a restart of ours."""
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
    assert applied.outcome is Outcome.UPDATED
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
    assert held.outcome is Outcome.IMMUTABLE
    assert watched.taken() == ["patch"]
    assert held.object == await watched.client.get(kind, "alice", kube_namespace)
    after = await raw(watched.client, kind, "alice", kube_namespace)
    assert after["data"] == body["data"]
    assert after["metadata"]["ownerReferences"] == [USER_OWNER, OWNER]
    watched.taken()
    again = await watched.applier.apply(
        token_secret(kube_namespace), held.object, kind, former_owners={KEY_UID}
    )
    assert again.outcome is Outcome.IMMUTABLE
    assert watched.taken() == []


async def test_an_owner_is_not_replaced_from_a_late_cache(watched: Watched, kube_namespace: str) -> None:
    """When the immutable object changed meanwhile, the replacement fails with Conflict and is retried."""
    live = await token_made_by_go(watched.client, kube_namespace, immutable=True)
    await watched.client.patch(
        Secret, "alice", kube_namespace, {"metadata": {"labels": {"a": "1"}}}, type=PatchType.MERGE
    )
    with pytest.raises(Conflict):
        await watched.applier.apply(token_secret(kube_namespace), live, Secret, former_owners={KEY_UID})
