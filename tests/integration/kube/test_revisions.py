from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.kube.client.client import Client, PatchType, RequestInfo
from slurm_operator.kube.errors import Conflict, NotFound
from slurm_operator.kube.manifests.revisions import HASH_LABEL, go_json, hash_of, hash_revision, same_data
from slurm_operator.kube.models.kinds import ControllerRevision
from slurm_operator.kube.runtime.revision_history import (
    History,
    HistoryOwner,
    HistoryPlan,
    new_controller_revision,
    plan_history,
    sync_history,
    truncate_history,
)
from tests.fixtures.golden import CASES

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurm_operator.kube.client.config import ClientConfig

LABELS = {"app.kubernetes.io/instance": "compute", "app.kubernetes.io/name": "slurmd"}


def data(image: str) -> dict[str, Any]:
    """Return revision data with everything that JSON encoders disagree on."""
    return {
        "spec": {
            "extraConf": "Weight<5 & Feature>'a'\n\u2028é",
            "ordinalPadding": 0,
            "slurmd": {"$patch": "replace", "image": image, "name": "", "resources": {}},
            "template": {"$patch": "replace", "metadata": {}, "spec": {"containers": None, "weight": 0.5}},
        }
    }


def owner(namespace: str) -> HistoryOwner:
    return HistoryOwner(
        "slinky.slurm.net/v1beta1", "NodeSet", namespace, "compute", str(uuid.uuid4()), LABELS
    )


async def stored(client: Client, namespace: str) -> list[ControllerRevision]:
    page = await client.list_all(ControllerRevision, namespace)
    return sorted(page.items, key=lambda item: item.revision)


async def decide(
    client: Client, who: HistoryOwner, content: Any, *, live: Collection[str] = (), limit: int = 10
) -> HistoryPlan:
    return plan_history(who, await stored(client, who.namespace), content, live=live, limit=limit)


async def use(client: Client, who: HistoryOwner, content: Any) -> History:
    return await sync_history(client, await decide(client, who, content))


async def test_the_hash_survives_the_server(client: Client, kube_namespace: str) -> None:
    """The data read back hashes to the same label, and means the same."""
    who = owner(kube_namespace)
    history = await use(client, who, data("a"))
    (revision,) = await stored(client, kube_namespace)
    assert history.current == revision
    assert hash_revision(go_json(revision.data), 0) == revision.metadata.labels[HASH_LABEL]
    assert revision.metadata.name == f"compute-{hash_of(revision)}"
    assert same_data(revision.data, data("a"))
    listed = await client.list_all(ControllerRevision, kube_namespace, labels=LABELS)
    assert listed.items == [revision]


async def test_at_rest_nothing_is_written(config: ClientConfig, kube_namespace: str) -> None:
    """A second reconcile of an unchanged history sends no write."""
    requests: list[RequestInfo] = []
    who = owner(kube_namespace)
    async with Client(config, observe=requests.append) as client:
        first = await use(client, who, data("a"))
        plan = await decide(client, who, data("a"))
        requests.clear()
        second = await sync_history(client, plan)
        assert await truncate_history(client, plan) == 0
    assert plan.settled
    assert second == dataclasses.replace(first, written=())
    assert requests == []


async def test_a_late_cache_does_not_make_a_second_revision(client: Client, kube_namespace: str) -> None:
    """Planning again before the cache shows the revision ends with the same one and no collision."""
    who = owner(kube_namespace)
    plan = plan_history(who, [], data("a"), live=(), limit=10)
    first = await sync_history(client, plan)
    second = await sync_history(client, plan)
    assert second == first
    assert second.collision_count == 0
    assert len(await stored(client, kube_namespace)) == 1


async def test_a_collision_moves_to_another_name(client: Client, kube_namespace: str) -> None:
    """Other content under the wanted name raises the count; the next reconcile needs no new one."""
    who = owner(kube_namespace)
    taken = new_controller_revision(who, data("a"), 1, 0)
    await client.create(ControllerRevision, {**taken, "data": data("other")})
    history = await use(client, who, data("a"))
    assert history.collision_count == 1
    assert history.current.metadata.name != taken["metadata"]["name"]
    assert same_data(history.current.data, data("a"))
    again = await use(client, who, data("a"))
    assert again.current == history.current


async def test_endless_collisions_are_reported(client: Client, kube_namespace: str) -> None:
    """When every name is taken the error says so and how to go on."""
    who = owner(kube_namespace)
    for count in range(16):
        body = new_controller_revision(who, data("a"), 1, count)
        await client.create(ControllerRevision, {**body, "data": {"other": count}})
    with pytest.raises(Conflict, match=r"no free name .*/compute .*delete its stale ControllerRevisions"):
        await use(client, who, data("a"))


async def test_an_old_revision_that_vanished_is_no_obstacle(client: Client, kube_namespace: str) -> None:
    """Only the revision in use must exist; the plan for any other may be out of date."""
    who = owner(kube_namespace)
    for number, image in enumerate("ab", start=1):
        body = new_controller_revision(who, data(image), number, 0)
        del body["metadata"]["labels"]["app.kubernetes.io/name"]
        await client.create(ControllerRevision, body)
    plan = await decide(client, who, data("b"))
    old, current = await stored(client, kube_namespace)
    await client.delete(ControllerRevision, old.metadata.name, kube_namespace)
    assert (await sync_history(client, plan)).current.metadata.uid == current.metadata.uid
    await client.delete(ControllerRevision, current.metadata.name, kube_namespace)
    with pytest.raises(NotFound):
        await sync_history(client, plan)


async def test_equal_content_of_a_stranger_is_a_collision_too(client: Client, kube_namespace: str) -> None:
    """A revision that another object controls is never used, not even with the same content."""
    stranger, who = owner(kube_namespace), owner(kube_namespace)
    theirs = await use(client, stranger, data("a"))
    ours = await use(client, who, data("a"))
    assert ours.collision_count == 1
    assert ours.current.metadata.uid != theirs.current.metadata.uid
    assert ours.current.controller_owner is not None
    assert ours.current.controller_owner.uid == who.uid


async def test_orphans_are_adopted_and_labels_completed(client: Client, kube_namespace: str) -> None:
    """An orphan becomes ours, a bare revision of ours gets its labels, and neither loses anything."""
    who = owner(kube_namespace)
    orphan = new_controller_revision(who, data("orphan"), 1, 0)
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": str(uuid.uuid4())}
    orphan["metadata"]["ownerReferences"] = [other]
    orphan["metadata"]["annotations"] = {"kept": "yes"}
    bare = new_controller_revision(who, data("bare"), 2, 0)
    bare["metadata"]["labels"] = {HASH_LABEL: bare["metadata"]["labels"][HASH_LABEL], "team": "x"}
    for body in (orphan, bare):
        await client.create(ControllerRevision, body)
    history = await use(client, who, data("bare"))
    adopted, labelled = await stored(client, kube_namespace)
    assert history.current == labelled
    assert adopted.controller_owner is not None
    assert adopted.controller_owner.uid == who.uid
    assert {item.uid for item in adopted.metadata.owner_references} == {who.uid, other["uid"]}
    assert adopted.metadata.annotations == {"kept": "yes"}
    assert labelled.metadata.labels.items() >= {**LABELS, "team": "x"}.items()


@pytest.mark.parametrize("cached", [True, False], ids=["in the cache", "not in the cache"])
async def test_the_orphan_of_a_deleted_set_is_used(
    client: Client, kube_namespace: str, *, cached: bool
) -> None:
    """A Go revision left by a deletion with --cascade=orphan serves the set recreated, under its hash."""
    case = next(case for case in CASES if case.name == "06-nodeset-rich")
    recorded = next(item for item in case.made if item["kind"] == "ControllerRevision")
    orphan = {**recorded, "metadata": {**recorded["metadata"], "namespace": kube_namespace}}
    del orphan["metadata"]["ownerReferences"]
    left = await client.create(ControllerRevision, orphan)
    who = dataclasses.replace(owner(kube_namespace), name="gpu")
    known = [left] if cached else []
    plan = plan_history(who, known, recorded["data"], live={hash_of(left)}, limit=0)
    history = await sync_history(client, plan)
    assert history.current_hashes == {hash_of(left)}
    assert history.collision_count == 0
    assert history.current.metadata.uid == left.metadata.uid
    assert history.current.controller_owner is not None
    assert history.current.controller_owner.uid == who.uid
    assert history.current.metadata.labels == {**left.metadata.labels, **LABELS}
    assert (await decide(client, who, recorded["data"])).settled


async def test_an_orphan_found_late_is_compared_with_zero_fields(client: Client, kube_namespace: str) -> None:
    """The name's holder is compared as the plan compares, and becomes the newest when it is used."""
    who = owner(kube_namespace)
    content = data("a")
    body = new_controller_revision(who, content, 1, 0)
    del content["spec"]["ordinalPadding"]
    await client.create(ControllerRevision, {**body, "data": msgspec.Raw(go_json(content))})
    newer = new_controller_revision(who, data("b"), 4, 0)
    known = await client.create(ControllerRevision, newer)
    plan = plan_history(who, [known], data("a"), live=(), limit=9, zero_fields=["ordinalPadding"])
    history = await sync_history(client, plan)
    assert history.collision_count == 0
    assert history.current.metadata.name == body["metadata"]["name"]
    assert history.current.revision == 5


async def test_a_revision_on_its_way_out_is_a_collision(client: Client, kube_namespace: str) -> None:
    """Content that is being deleted is not used, although it is ours and equal."""
    who = owner(kube_namespace)
    body = new_controller_revision(who, data("a"), 1, 0)
    body["metadata"]["finalizers"] = ["example.com/hold"]
    held = await client.create(ControllerRevision, body)
    await client.delete(ControllerRevision, held.metadata.name, kube_namespace)
    history = await use(client, who, data("a"))
    assert history.collision_count == 1
    assert history.current.metadata.uid != held.metadata.uid
    release = {"metadata": {"finalizers": None}}
    await client.patch(ControllerRevision, held.metadata.name, kube_namespace, release, type=PatchType.MERGE)


async def test_what_the_status_said_outlives_its_generation(client: Client, kube_namespace: str) -> None:
    """Values that Go dropped are noted at the revision, so that the next edit elsewhere makes no new one."""
    who = owner(kube_namespace)
    made_by_go = await client.create(ControllerRevision, new_controller_revision(who, data("a"), 1, 0))
    written = data("a")
    written["spec"]["template"]["spec"]["hostNetwork"] = False
    taken_over = plan_history(
        who, [made_by_go], written, live={hash_of(made_by_go)}, limit=0, trusted=hash_of(made_by_go)
    )
    first = await sync_history(client, taken_over)
    assert first.current_hashes == {hash_of(made_by_go)}
    later = await decide(client, who, written)
    assert later.settled
    assert later.current_hashes == {hash_of(made_by_go)}
    written["spec"]["template"]["spec"]["hostNetwork"] = True
    assert (await decide(client, who, written)).create is not None


async def test_history_grows_rolls_back_and_is_truncated(client: Client, kube_namespace: str) -> None:
    """Changes count up, a rollback reuses and renumbers, and truncation leaves what pods still run."""
    who = owner(kube_namespace)
    names = {image: (await use(client, who, data(image))).current.metadata.name for image in "abcd"}
    assert [item.revision for item in await stored(client, kube_namespace)] == [1, 2, 3, 4]
    back = await use(client, who, data("b"))
    assert back.current.metadata.name == names["b"]
    assert back.current.revision == 5
    plan = await decide(client, who, data("b"), live={names["a"]}, limit=1)
    assert await truncate_history(client, plan) == 1
    left = {item.metadata.name for item in await stored(client, kube_namespace)}
    assert left == {names["a"], names["b"], names["d"]}
    assert await truncate_history(client, plan) == 0


async def test_truncation_never_hits_a_successor(client: Client, kube_namespace: str) -> None:
    """A revision that was recreated meanwhile is another one and stays."""
    who = owner(kube_namespace)
    await use(client, who, data("a"))
    await use(client, who, data("b"))
    plan = await decide(client, who, data("b"), limit=0)
    (victim,) = plan.delete
    await client.delete(ControllerRevision, victim.metadata.name, kube_namespace)
    await client.create(ControllerRevision, new_controller_revision(who, data("a"), 1, 0))
    assert await truncate_history(client, plan) == 0
    assert len(await stored(client, kube_namespace)) == 2
