"""Every verb of the client against a real API server."""

from __future__ import annotations

import base64
from contextlib import aclosing
from typing import Any

import pytest

from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Invalid,
    NotFound,
    TooManyRequests,
)
from slurm_operator.kube.models.kinds import (
    ConfigMap,
    Deployment,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    Secret,
    metadata_only,
)


def config_map(
    name: str, namespace: str, data: dict[str, str] | None = None, **metadata: Any
) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace} | metadata, "data": data or {}}


def pod(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace} | metadata,
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "example/c:1"}],
        },
    }


# --------------------------------------------------------------------------------------------- read and write


async def test_create_get_list_delete(client: Client, kube_namespace: str) -> None:
    """What was created is read back, listed, and gone after its deletion."""
    made = await client.create(ConfigMap, config_map("a", kube_namespace, {"k": "v"}))
    assert (made.key.name, made.data) == ("a", {"k": "v"})
    assert await client.get(ConfigMap, "a", kube_namespace) == made
    assert [item.key for item in (await client.list(ConfigMap, kube_namespace)).items] == [made.key]
    await client.delete(ConfigMap, "a", kube_namespace)
    with pytest.raises(
        NotFound, match=rf'get ConfigMap {kube_namespace}/a: configmaps "a" not found \(HTTP 404'
    ):
        await client.get(ConfigMap, "a", kube_namespace)


async def test_generated_names_and_namespace_argument(client: Client, kube_namespace: str) -> None:
    """A generated name is returned, and the namespace may come as an argument."""
    made = await client.create(ConfigMap, {"metadata": {"generateName": "gen-"}}, namespace=kube_namespace)
    assert made.metadata.name.startswith("gen-")
    assert made.metadata.namespace == kube_namespace


async def test_cluster_scoped_kinds(client: Client, kube_namespace: str) -> None:
    """Kinds without a namespace are addressed by name alone."""
    assert (await client.get(Namespace, kube_namespace)).status.phase == "Active"
    node = await client.create(
        Node, {"metadata": {"name": f"node-{kube_namespace}"}, "spec": {"unschedulable": True}}
    )
    assert node.spec.unschedulable
    await client.delete(Node, node.metadata.name)


async def test_secret_values_are_bytes(client: Client, kube_namespace: str) -> None:
    """A Secret's data is decoded from base64."""
    body = {
        "metadata": {"name": "s", "namespace": kube_namespace},
        "data": {"k": base64.b64encode(b"\x00v").decode()},
    }
    assert (await client.create(Secret, body)).data == {"k": b"\x00v"}


async def test_dry_run_changes_nothing(client: Client, kube_namespace: str) -> None:
    """A dry run is validated by the server and not stored."""
    await client.create(ConfigMap, config_map("dry", kube_namespace), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "dry", kube_namespace)
    await client.create(ConfigMap, config_map("wet", kube_namespace))
    await client.delete(ConfigMap, "wet", kube_namespace, dry_run=True)
    await client.get(ConfigMap, "wet", kube_namespace)


async def test_selectors(client: Client, kube_namespace: str) -> None:
    """Lists are narrowed by labels and fields, as a mapping or in Kubernetes' own syntax."""
    for name, tier in (("a", "front"), ("b", "back"), ("c", "back")):
        await client.create(ConfigMap, config_map(name, kube_namespace, labels={"tier": tier}))

    async def names(**selection: Any) -> list[str]:
        return [
            item.metadata.name for item in (await client.list(ConfigMap, kube_namespace, **selection)).items
        ]

    assert await names(labels={"tier": "back"}) == ["b", "c"]
    assert await names(labels="tier notin (back)") == ["a"]
    assert await names(fields={"metadata.name": "c"}) == ["c"]
    assert await names(labels={"tier": "back"}, fields="metadata.name!=c") == ["b"]


async def test_pages(client: Client, kube_namespace: str) -> None:
    """A list in pages is complete, in order, and of one version even when objects change meanwhile."""
    names = [f"cm-{i:02}" for i in range(7)]
    for name in names:
        await client.create(ConfigMap, config_map(name, kube_namespace))
    first = await client.list(ConfigMap, kube_namespace, limit=3)
    assert [item.metadata.name for item in first.items] == names[:3]
    await client.delete(ConfigMap, "cm-06", kube_namespace)
    second = await client.list(ConfigMap, kube_namespace, limit=9, continue_token=first.continue_token)
    assert [item.metadata.name for item in second.items] == names[3:]
    assert (second.continue_token, second.resource_version) == ("", first.resource_version)
    whole = await client.list_all(ConfigMap, kube_namespace, page_size=2)
    assert [item.metadata.name for item in whole.items] == names[:6]


async def test_list_not_older_than_a_version(client: Client, kube_namespace: str) -> None:
    """A list may be asked for from the server's cache, or not older than a known version."""
    made = await client.create(ConfigMap, config_map("a", kube_namespace))
    cached = await client.list(ConfigMap, kube_namespace, resource_version="0")
    assert int(cached.resource_version) > 0
    version = made.metadata.resource_version
    page = await client.list(ConfigMap, kube_namespace, resource_version=version)
    assert int(page.resource_version) >= int(version)
    assert page.items == [made]


async def test_metadata_only(client: Client, kube_namespace: str) -> None:
    """Metadata can be read, listed and watched without the rest of the object; a creation answers with it."""
    partial = metadata_only(Secret)
    start = await client.list(partial, kube_namespace)
    body = {
        "metadata": {"name": "s", "namespace": kube_namespace, "labels": {"a": "b"}},
        "stringData": {"k": "v"},
    }
    made = await client.create(partial, body)
    read = await client.get(partial, "s", kube_namespace)
    assert read == made
    assert (await client.get(Secret, "s", kube_namespace)).data == {"k": b"v"}
    assert read.metadata.labels == {"a": "b"}
    assert not hasattr(read, "data")
    assert (await client.list(partial, kube_namespace)).items == [read]
    async with aclosing(
        client.watch(partial, kube_namespace, resource_version=start.resource_version)
    ) as events:
        assert (await anext(events)).object == read


# --------------------------------------------------------------------------------------------------- refusals


async def test_taken_name(client: Client, kube_namespace: str) -> None:
    """Creating a name that is taken is AlreadyExists, which is a Conflict."""
    await client.create(ConfigMap, config_map("a", kube_namespace))
    with pytest.raises(AlreadyExists, match=rf"^create ConfigMap {kube_namespace}/a: "):
        await client.create(ConfigMap, config_map("a", kube_namespace))


async def test_invalid_object_names_the_field(client: Client, kube_namespace: str) -> None:
    """A validation failure names the field in message and details."""
    with pytest.raises(Invalid, match=r"spec\.containers") as caught:
        await client.create(Pod, {"metadata": {"name": "p", "namespace": kube_namespace}, "spec": {}})
    assert any(cause["field"] == "spec.containers" for cause in caught.value.details["causes"])


async def test_malformed_body(client: Client, kube_namespace: str) -> None:
    """A body of the wrong shape is a BadRequest."""
    with pytest.raises(BadRequest):
        await client.create(ConfigMap, config_map("a", kube_namespace) | {"data": "text"})


async def test_invalid_secret_is_not_quoted(client: Client, kube_namespace: str) -> None:
    """Whatever is wrong with a Secret, its values stay out of the error."""
    body = {"metadata": {"name": "s", "namespace": kube_namespace}, "data": {"k": "hush-not-base64!"}}
    with pytest.raises(BadRequest, match=r"create Secret .*: refused") as caught:
        await client.create(Secret, body)
    assert "hush" not in f"{caught.value} {caught.value.details}"


@pytest.mark.parametrize("name", ["", "a/b", "..", "a%2fb", "a b", "ä"])
async def test_impossible_names_never_leave(client: Client, name: str) -> None:
    """A name that would change the meaning of the URL is refused on this side."""
    with pytest.raises(ValueError, match="is not a Kubernetes name"):
        await client.get(ConfigMap, name, "default")


async def test_missing_namespace_never_leaves(client: Client) -> None:
    """A namespaced object without a namespace is refused on this side instead of looking absent."""
    with pytest.raises(ValueError, match="namespace is empty; a ConfigMap lives in a namespace"):
        await client.get(ConfigMap, "a")
    with pytest.raises(ValueError, match="namespace is empty"):
        await client.create(ConfigMap, {"metadata": {"name": "a"}})


# ------------------------------------------------------------------------------------------------------ apply


async def test_apply_creates_then_changes_then_rests(client: Client, kube_namespace: str) -> None:
    """Apply creates what is absent, changes what differs, and writes nothing when nothing differs."""
    first = await client.apply(ConfigMap, config_map("a", kube_namespace, {"k": "1", "gone": "x"}))
    second = await client.apply(ConfigMap, config_map("a", kube_namespace, {"k": "2"}))
    third = await client.apply(ConfigMap, config_map("a", kube_namespace, {"k": "2"}))
    assert (first.metadata.uid, second.data) == (second.metadata.uid, {"k": "2"})
    assert third == second


async def test_apply_conflict_names_the_other_manager(client: Client, kube_namespace: str) -> None:
    """A field that belongs to somebody else is a Conflict without force, and ours with it."""
    await client.apply(ConfigMap, config_map("a", kube_namespace, {"k": "1"}), field_manager="somebody")
    with pytest.raises(Conflict, match='conflict with "somebody"') as caught:
        await client.apply(ConfigMap, config_map("a", kube_namespace, {"k": "2"}), force=False)
    assert caught.value.details["causes"][0]["field"] == ".data.k"
    assert (await client.apply(ConfigMap, config_map("a", kube_namespace, {"k": "2"}))).data == {"k": "2"}


async def test_apply_of_a_status(client: Client, kube_namespace: str) -> None:
    """A status can be applied on its own subresource."""
    await client.create(Pod, pod("p", kube_namespace))
    body = {"metadata": {"name": "p", "namespace": kube_namespace}, "status": {"message": "hello"}}
    assert (await client.apply(Pod, body, subresource="status")).status.message == "hello"


async def test_apply_dry_run(client: Client, kube_namespace: str) -> None:
    """An apply can be tried without effect."""
    await client.apply(ConfigMap, config_map("a", kube_namespace), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", kube_namespace)


# ------------------------------------------------------------------------------------------------------ patch


async def test_patch_types(client: Client, kube_namespace: str) -> None:
    """Merge, strategic and JSON patches each do what Kubernetes says they do."""
    await client.create(Pod, pod("p", kube_namespace, labels={"a": "1", "b": "1"}))
    merged = await client.patch(
        Pod, "p", kube_namespace, {"metadata": {"labels": {"a": None, "c": "1"}}}, type=PatchType.MERGE
    )
    assert merged.metadata.labels == {"b": "1", "c": "1"}
    strategic = await client.patch(
        Pod,
        "p",
        kube_namespace,
        {"spec": {"containers": [{"name": "c", "image": "example/c:2"}]}},
        type=PatchType.STRATEGIC,
    )
    assert [container.image for container in strategic.spec.containers] == ["example/c:2"]
    operations = [{"op": "replace", "path": "/metadata/labels/b", "value": "2"}]
    exact = await client.patch(Pod, "p", kube_namespace, operations, type=PatchType.JSON)
    assert exact.metadata.labels["b"] == "2"
    with pytest.raises(Invalid):
        await client.patch(
            Pod,
            "p",
            kube_namespace,
            [{"op": "test", "path": "/metadata/name", "value": "q"}],
            type=PatchType.JSON,
        )


async def test_patch_status_with_a_precondition(client: Client, kube_namespace: str) -> None:
    """A status patch with a version applies to that version only, and never touches the spec."""
    made = await client.create(Pod, pod("p", kube_namespace))
    version = made.metadata.resource_version
    seen = await client.patch_status(Pod, "p", kube_namespace, {"phase": "Running"}, resource_version=version)
    assert (seen.status.phase, seen.spec) == ("Running", made.spec)
    with pytest.raises(Conflict):
        await client.patch_status(Pod, "p", kube_namespace, {"phase": "Failed"}, resource_version=version)
    assert (await client.patch_status(Pod, "p", kube_namespace, {"message": "m"})).status.phase == "Running"


async def test_scale(client: Client, kube_namespace: str) -> None:
    """The scale subresource reads and sets replicas."""
    labels = {"app": "x"}
    body = {
        "metadata": {"name": "d", "namespace": kube_namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("p", kube_namespace)["spec"]},
        },
    }
    await client.create(Deployment, body)
    scale = await client.get_scale(Deployment, "d", kube_namespace)
    assert (scale.spec.replicas, scale.status.selector) == (2, "app=x")
    assert (await client.set_scale(Deployment, "d", kube_namespace, 0)).spec.replicas == 0
    assert (await client.get(Deployment, "d", kube_namespace)).spec.replicas == 0


# ------------------------------------------------------------------------------------------- delete and evict


async def test_delete_with_preconditions(client: Client, kube_namespace: str) -> None:
    """A delete that names a UID or version hits that very object or nothing."""
    made = await client.create(ConfigMap, config_map("a", kube_namespace))
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "a", kube_namespace, uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "a", kube_namespace, uid=made.metadata.uid, resource_version="1")
    version = made.metadata.resource_version
    await client.delete(ConfigMap, "a", kube_namespace, uid=made.metadata.uid, resource_version=version)
    with pytest.raises(NotFound):
        await client.delete(ConfigMap, "a", kube_namespace)


async def test_delete_propagation_and_grace(client: Client, kube_namespace: str) -> None:
    """Foreground deletion waits for dependents, and a grace period of zero removes a pod at once."""
    await client.create(ConfigMap, config_map("owner", kube_namespace))
    await client.delete(ConfigMap, "owner", kube_namespace, propagation="Foreground")
    owner = await client.get(ConfigMap, "owner", kube_namespace)
    assert owner.deleting
    assert "foregroundDeletion" in owner.metadata.finalizers
    await client.patch(
        ConfigMap, "owner", kube_namespace, {"metadata": {"finalizers": None}}, type=PatchType.MERGE
    )
    await client.create(Pod, pod("p", kube_namespace))
    await client.delete(Pod, "p", kube_namespace, grace_period=0)
    with pytest.raises(NotFound):
        await client.get(Pod, "p", kube_namespace)


async def test_evict(client: Client, kube_namespace: str) -> None:
    """An eviction with the right UID removes a pod; with a wrong one it is a Conflict."""
    made = await client.create(Pod, pod("p", kube_namespace))
    with pytest.raises(Conflict):
        await client.evict("p", kube_namespace, uid="00000000-0000-0000-0000-000000000000")
    await client.evict("p", kube_namespace, uid=made.metadata.uid, grace_period=0)
    with pytest.raises(NotFound):
        await client.get(Pod, "p", kube_namespace)


async def test_eviction_refused_by_a_budget_returns_at_once(client: Client, kube_namespace: str) -> None:
    """A disruption budget's refusal is TooManyRequests for the caller, not something to sit out."""
    labels = {"app": "x"}
    await client.create(Pod, pod("p", kube_namespace, labels=labels))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch_status(Pod, "p", kube_namespace, ready)
    budget = {
        "metadata": {"name": "b", "namespace": kube_namespace},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
    }
    await client.create(PodDisruptionBudget, budget)
    with pytest.raises(TooManyRequests, match=rf"^evict Pod {kube_namespace}/p: ") as caught:
        await client.evict("p", kube_namespace)
    assert caught.value.details["causes"][0]["reason"] == "DisruptionBudget"
    assert not (await client.get(Pod, "p", kube_namespace)).deleting
