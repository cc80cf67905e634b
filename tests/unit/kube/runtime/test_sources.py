from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from slurm_operator.kube.models.meta import Key, Object, ObjectMeta, OwnerReference, Resource
from slurm_operator.kube.models.store import Change
from slurm_operator.kube.runtime.sources import (
    Channel,
    all_of,
    any_of,
    enqueue_owner,
    enqueue_self,
    generation_changed,
    ignore_status,
    metadata_changed,
    resource_version_changed,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Child(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "children", "Child")


class Owner(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("example.org", "v1", "owners", "Owner")


class ClusterOwner(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "clusterowners", "ClusterOwner", namespaced=False)


BASE = ObjectMeta(name="child", namespace="ns", uid="1", resource_version="7", generation=3)


def child(**changes: Any) -> Child:
    return Child(metadata=msgspec.structs.replace(BASE, **changes))


def owner(name: str, api_version: str = "example.org/v1", kind: str = "Owner") -> dict[str, Any]:
    ref = OwnerReference(api_version=api_version, kind=kind, name=name, uid=name, controller=True)
    return {"owner_references": (ref,)}


def test_enqueue_self_is_the_own_key() -> None:
    """An object, deleted or not, maps to its own key."""
    assert list(enqueue_self(Change(child(), None))) == [Key("ns", "child")]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, child(**owner("a")), [Key("ns", "a")]),
        (child(**owner("a")), None, [Key("ns", "a")]),
        (child(**owner("a")), child(**owner("a")), [Key("ns", "a")]),
        (child(**owner("a")), child(**owner("b")), [Key("ns", "a"), Key("ns", "b")]),
        (child(**owner("a")), child(), [Key("ns", "a")]),
        (None, child(**owner("a", api_version="example.org/v1alpha1")), [Key("ns", "a")]),
        (None, child(**owner("a", api_version="other.org/v1")), []),
        (None, child(**owner("a", api_version="v1")), []),
        (None, child(**owner("a", kind="Other")), []),
        (None, child(), []),
    ],
)
def test_enqueue_owner_follows_the_controlling_owner(
    old: Child | None, new: Child | None, expected: list[Key]
) -> None:
    """The owner before and the owner after are enqueued, if group and kind match, whatever the version."""
    assert list(enqueue_owner(Owner)(Change(old, new))) == expected


def test_enqueue_owner_ignores_owners_that_do_not_control() -> None:
    """A reference without `controller: true` is somebody's interest, not ownership."""
    ref = OwnerReference(api_version="example.org/v1", kind="Owner", name="a", uid="a")
    assert list(enqueue_owner(Owner)(Change(None, child(owner_references=(ref,))))) == []


def test_enqueue_owner_knows_cluster_scoped_kinds() -> None:
    """The key of a cluster-scoped owner has no namespace; the core group has an empty name."""
    change = Change(None, child(**owner("a", api_version="v1", kind="ClusterOwner")))
    assert list(enqueue_owner(ClusterOwner)(change)) == [Key("", "a")]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "generation", "metadata", "version"),
    [
        ({}, False, False, False),
        ({"resource_version": "8"}, False, False, True),
        ({"resource_version": "8", "generation": 4}, True, False, True),
        ({"resource_version": "8", "labels": {"a": "b"}}, False, True, True),
        ({"resource_version": "8", "annotations": {"a": "b"}}, False, True, True),
        ({"resource_version": "8", "finalizers": ("f",)}, False, True, True),
        ({"resource_version": "8", **owner("o")}, False, True, True),
        ({"resource_version": "8", "deletion_timestamp": NOW}, False, True, True),
    ],
)
def test_predicates_on_updates(
    changes: dict[str, Any],
    generation: bool,  # noqa: FBT001 - a column of the table above
    metadata: bool,  # noqa: FBT001
    version: bool,  # noqa: FBT001
) -> None:
    """Each predicate sees exactly its part of an update."""
    change = Change(child(), child(**changes))
    assert generation_changed(change) is generation
    assert metadata_changed(change) is metadata
    assert resource_version_changed(change) is version
    assert ignore_status(change) is (generation or metadata)
    assert any_of(generation_changed, metadata_changed)(change) is (generation or metadata)
    assert all_of(resource_version_changed, metadata_changed)(change) is (version and metadata)


@pytest.mark.parametrize(
    "predicate", [generation_changed, metadata_changed, resource_version_changed, ignore_status]
)
def test_predicates_never_hide_what_they_cannot_judge(predicate: Callable[[Change[Child]], bool]) -> None:
    """Additions, deletions and the mark that an object became unreadable pass every predicate."""
    same = child()
    assert predicate(Change(None, same))
    assert predicate(Change(same, None))
    assert predicate(Change(same, same))


def test_generation_changed_passes_kinds_without_generation() -> None:
    """A kind that does not count generations is never hidden by a predicate on them."""
    change = Change(child(generation=0), child(generation=0, resource_version="8"))
    assert generation_changed(change)


def test_channel_reaches_every_subscriber_in_order() -> None:
    """An event has reached every subscriber when send returns."""
    channel: Channel[str] = Channel()
    heard: list[tuple[str, str]] = []
    channel.subscribe(lambda event: heard.append(("first", event)))
    channel.subscribe(lambda event: heard.append(("second", event)))
    channel.send("x")
    assert heard == [("first", "x"), ("second", "x")]
