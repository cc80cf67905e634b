from __future__ import annotations

import copy
from typing import Any

import pytest

from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Deployment, Secret, Service
from slurm_operator.kube.runtime.apply import Applier, ApplyOutcome
from tests.support.kube.counted_client import OWNER_UID, Watched, config_map, deployment, labelled, raw


async def test_at_rest_nothing_is_sent(watched: Watched, kube_namespace: str) -> None:
    """After the first apply, equal applies on an unchanged object send no request at all."""
    desired = deployment(kube_namespace)
    first = await watched.applier.apply(desired, None, Deployment)
    assert first.outcome is ApplyOutcome.CREATED
    assert first.changed
    live = await watched.client.get(Deployment, "web", kube_namespace)
    assert first.object == live
    watched.taken()
    for _ in range(3):
        again = await watched.applier.apply(copy.deepcopy(desired), live, Deployment)
        assert again.outcome is ApplyOutcome.UNCHANGED
        assert not again.changed
    assert watched.taken() == []


async def test_status_changes_cause_no_write(watched: Watched, kube_namespace: str) -> None:
    """A new status moves the resourceVersion and still costs no request."""
    desired = deployment(kube_namespace)
    await watched.applier.apply(desired, None, Deployment)
    live = await watched.client.patch_status(Deployment, "web", kube_namespace, {"observedGeneration": 1})
    watched.taken()
    assert (await watched.applier.apply(desired, live, Deployment)).outcome is ApplyOutcome.UNCHANGED
    assert watched.taken() == []


@pytest.mark.parametrize(
    "drift",
    [
        {"metadata": {"labels": {"mine": "2"}}},
        {"metadata": {"labels": {"mine": None}}},
        {"metadata": {"ownerReferences": None}},
        {"spec": {"replicas": 5}},
    ],
)
async def test_drift_is_corrected(watched: Watched, kube_namespace: str, drift: dict[str, Any]) -> None:
    """Whoever changes a field of ours, it comes back with one request."""
    desired = deployment(kube_namespace)
    await watched.applier.apply(desired, None, Deployment)
    live = await watched.client.patch(
        Deployment, "web", kube_namespace, drift, type=PatchType.MERGE, field_manager="someone"
    )
    watched.taken()
    fixed = await watched.applier.apply(desired, live, Deployment)
    assert fixed.outcome is ApplyOutcome.UPDATED
    assert watched.taken() == ["apply"]
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    assert body["metadata"]["labels"] == {"mine": "1"}
    assert body["spec"]["replicas"] == 1
    assert body["metadata"]["ownerReferences"][0]["uid"] == OWNER_UID


async def test_fields_of_others_stay_and_cost_one_look(watched: Watched, kube_namespace: str) -> None:
    """A label of somebody else is kept; it causes one apply that changes nothing, and then none."""
    desired = deployment(kube_namespace)
    await watched.applier.apply(desired, None, Deployment)
    live = await labelled(watched.client, kube_namespace, by="someone")
    watched.taken()
    assert (await watched.applier.apply(desired, live, Deployment)).outcome is ApplyOutcome.UNCHANGED
    assert watched.taken() == ["apply"]
    assert (await watched.applier.apply(desired, live, Deployment)).outcome is ApplyOutcome.UNCHANGED
    assert watched.taken() == []
    assert live.metadata.labels == {"mine": "1", "theirs": "1"}


async def test_what_is_no_longer_wanted_disappears(watched: Watched, kube_namespace: str) -> None:
    """A label, a variable or a limit that the next wish leaves out is removed on the server."""
    desired = deployment(kube_namespace)
    first = await watched.applier.apply(desired, None, Deployment)
    del desired["metadata"]["labels"]["mine"]
    main = desired["spec"]["template"]["spec"]["containers"][0]
    del main["env"], main["resources"]
    assert (await watched.applier.apply(desired, first.object, Deployment)).outcome is ApplyOutcome.UPDATED
    body = await raw(watched.client, Deployment, "web", kube_namespace)
    main = body["spec"]["template"]["spec"]["containers"][0]
    assert "labels" not in body["metadata"]
    assert "env" not in main
    assert main["resources"] == {}


async def test_a_late_cache_does_not_cause_a_second_write(watched: Watched, kube_namespace: str) -> None:
    """While the cache still shows the object from before our own write, nothing is sent."""
    first = await watched.applier.apply(config_map(kube_namespace, a="1"), None, ConfigMap)
    second = await watched.applier.apply(config_map(kube_namespace, a="2"), first.object, ConfigMap)
    assert second.outcome is ApplyOutcome.UPDATED
    watched.taken()
    late = await watched.applier.apply(config_map(kube_namespace, a="2"), first.object, ConfigMap)
    assert late.outcome is ApplyOutcome.UNCHANGED
    assert watched.taken() == []


async def test_a_cache_that_misses_our_own_creation_reports_no_change(
    watched: Watched, kube_namespace: str
) -> None:
    """Asked again before the cache has the object, the answer is that nothing changed."""
    desired = config_map(kube_namespace, a="1")
    await watched.applier.apply(desired, None, ConfigMap)
    assert (await watched.applier.apply(desired, None, ConfigMap)).outcome is ApplyOutcome.UNCHANGED


async def test_config_maps_are_watched_by_version(watched: Watched, kube_namespace: str) -> None:
    """A kind without generation is left alone while its version stands, and corrected when it moved."""
    desired = config_map(kube_namespace, a="1")
    first = await watched.applier.apply(desired, None, ConfigMap)
    watched.taken()
    await watched.applier.apply(desired, first.object, ConfigMap)
    assert watched.taken() == []
    drifted = await watched.client.patch(
        ConfigMap, "conf", kube_namespace, {"data": {"a": "9"}}, type=PatchType.MERGE, field_manager="someone"
    )
    fixed = await watched.applier.apply(desired, drifted, ConfigMap)
    assert fixed.outcome is ApplyOutcome.UPDATED
    assert fixed.object is not None
    assert fixed.object.data == {"a": "1"}


async def test_a_service_keeps_its_address(watched: Watched, kube_namespace: str) -> None:
    """What the server allocated survives every apply, and a service at rest costs nothing."""
    desired = {
        "metadata": {"name": "web", "namespace": kube_namespace},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    }
    first = await watched.applier.apply(desired, None, Service)
    address = (await raw(watched.client, Service, "web", kube_namespace))["spec"]["clusterIP"]
    assert address
    desired["spec"]["ports"][0]["port"] = 81  # type: ignore[index]  # the literal's type is wider than it
    second = await watched.applier.apply(desired, first.object, Service)
    body = await raw(watched.client, Service, "web", kube_namespace)
    assert [port["port"] for port in body["spec"]["ports"]] == [81]
    assert body["spec"]["clusterIP"] == address
    watched.taken()
    await watched.applier.apply(desired, second.object, Service)
    assert watched.taken() == []


async def test_a_recreated_object_is_applied_again(watched: Watched, kube_namespace: str) -> None:
    """Another object of the same name is not taken for the one we applied."""
    desired = config_map(kube_namespace, a="1")
    await watched.applier.apply(desired, None, ConfigMap)
    await watched.client.delete(ConfigMap, "conf", kube_namespace)
    foreign = await watched.client.create(
        ConfigMap, {**config_map(kube_namespace), "data": {"b": "1"}}, field_manager="someone"
    )
    assert (await watched.applier.apply(desired, foreign, ConfigMap)).outcome is ApplyOutcome.UPDATED
    assert (await raw(watched.client, ConfigMap, "conf", kube_namespace))["data"] == {"a": "1", "b": "1"}


async def test_a_terminating_object_is_left_alone(watched: Watched, kube_namespace: str) -> None:
    """While the old object is going, nothing is applied, and the caller is told."""
    desired = config_map(kube_namespace, a="1")
    desired["metadata"]["finalizers"] = ["example.org/hold"]
    await watched.applier.apply(desired, None, ConfigMap)
    await watched.client.delete(ConfigMap, "conf", kube_namespace)
    live = await watched.client.get(ConfigMap, "conf", kube_namespace)
    assert live.deleting
    watched.taken()
    held = await watched.applier.apply(config_map(kube_namespace, a="2"), live, ConfigMap)
    assert held.outcome is ApplyOutcome.TERMINATING
    assert held.held
    assert not await watched.applier.delete(live)
    assert watched.taken() == []


@pytest.mark.parametrize("kind", [ConfigMap, Secret])
async def test_an_immutable_object_is_left_alone(
    watched: Watched, kube_namespace: str, kind: type[ConfigMap | Secret]
) -> None:
    """The server would refuse the change; the caller is told instead."""
    desired = {"metadata": {"name": "conf", "namespace": kube_namespace}, "data": {"a": "MQ=="}}
    live = await watched.client.create(kind, {**desired, "immutable": True})
    watched.taken()
    held = await watched.applier.apply({**desired, "data": {"a": "Mg=="}}, live, kind)
    assert held.outcome is ApplyOutcome.IMMUTABLE
    assert watched.taken() == []


async def test_delete_never_hits_a_successor(watched: Watched, kube_namespace: str) -> None:
    """A delete decided for one object does not touch the next one of the same name."""
    desired = config_map(kube_namespace, a="1")
    old = (await watched.applier.apply(desired, None, ConfigMap)).object
    assert old is not None
    assert await watched.applier.delete(old)
    new = (await watched.applier.apply(desired, None, ConfigMap)).object
    assert new is not None
    assert not await watched.applier.delete(old)
    assert (await watched.client.get(ConfigMap, "conf", kube_namespace)).metadata.uid == new.metadata.uid
    assert await watched.applier.delete(new)
    assert not await watched.applier.delete(new)
    with pytest.raises(NotFound):
        await watched.client.get(ConfigMap, "conf", kube_namespace)


async def test_memory_is_given_back(watched: Watched, kube_namespace: str) -> None:
    """Forgetting is by name, and a late farewell to an older object does not touch its successor."""
    desired = config_map(kube_namespace, a="1")
    applied = (await watched.applier.apply(desired, None, ConfigMap)).object
    assert applied is not None
    watched.applier.forget(ConfigMap, applied.key, "an older object")
    assert len(watched.applier) == 1
    watched.applier.forget(ConfigMap, applied.key, applied.metadata.uid)
    assert len(watched.applier) == 0
    small = Applier(watched.client, max_records=2)
    for number in range(4):
        body = config_map(kube_namespace)
        body["metadata"]["name"] = f"conf-{number}"
        await small.apply(body, None, ConfigMap)
    assert len(small) == 2
