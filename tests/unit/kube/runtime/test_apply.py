from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.manifests.managed_fields import (
    FieldsEntry,
    hand_over,
    has_applied,
    managed_fields,
    union,
    with_managers,
    without_managers,
)
from slurm_operator.kube.models.kinds import ConfigMap, Secret, StatefulSet
from slurm_operator.kube.runtime.apply import Applier, fingerprint, hash_desired

METADATA: dict[str, Any] = {
    "name": "web",
    "namespace": "ns",
    "uid": "u1",
    "generation": 3,
    "resourceVersion": "10",
    "labels": {"a": "1"},
    "annotations": {"b": "2"},
    "finalizers": ["f"],
    "ownerReferences": [{"uid": "o", "kind": "NodeSet", "name": "n", "apiVersion": "v1", "controller": True}],
}


def workload(**changes: Any) -> StatefulSet:
    return msgspec.convert({"metadata": {**METADATA, **changes}}, StatefulSet)


def test_hash_does_not_depend_on_the_order_of_keys() -> None:
    """Two ways to write one object are the same wish."""
    assert hash_desired({"a": {"b": 1, "c": 2}}) == hash_desired({"a": {"c": 2, "b": 1}})


@pytest.mark.parametrize("other", [{"a": {"b": 0}}, {"a": {"b": "1"}}, {"a": {"b": True}}, {"a": {}}])
def test_hash_tells_wishes_apart(other: dict[str, Any]) -> None:
    """Any other value is another wish."""
    assert hash_desired({"a": {"b": 1}}) != hash_desired(other)


def test_a_status_change_leaves_the_fingerprint() -> None:
    """What moves only the resourceVersion of a kind with a generation needs no write."""
    assert fingerprint(workload()) == fingerprint(workload(resourceVersion="11"))


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 4},
        {"labels": {"a": "2"}},
        {"labels": {}},
        {"annotations": {}},
        {"finalizers": []},
        {"ownerReferences": []},
        {"uid": "u2"},
    ],
)
def test_drift_changes_the_fingerprint(change: dict[str, Any]) -> None:
    """Whatever an apply might have to correct shows in the fingerprint."""
    assert fingerprint(workload()) != fingerprint(workload(**change))


def test_without_a_generation_the_version_counts() -> None:
    """A ConfigMap is told apart by its resourceVersion."""
    first = msgspec.convert({"metadata": {"uid": "u", "resourceVersion": "1"}}, ConfigMap)
    second = msgspec.convert({"metadata": {"uid": "u", "resourceVersion": "2"}}, ConfigMap)
    assert fingerprint(first) != fingerprint(second)


def test_an_object_read_with_its_managers_equals_the_cached_one() -> None:
    """The answer to a first apply is given out in the shape the cache has."""
    body = {"metadata": {**METADATA, "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]}}
    found = msgspec.convert(body, with_managers(StatefulSet))
    assert managed_fields(found)[0].fields_v1 == {"f:spec": {}}
    assert without_managers(StatefulSet, found) == workload()


def entry(manager: str, operation: str, fields: dict[str, Any], **more: Any) -> FieldsEntry:
    return FieldsEntry(manager=manager, operation=operation, fields_v1=fields, **more)


OURS = entry("slurm-operator", "Apply", {"f:spec": {"f:a": {}}})
OWNED: dict[str, Any] = {"f:ownerReferences": {'k:{"uid":"o"}': {}}}


def test_updates_of_the_predecessor_become_an_apply_of_the_caretaker() -> None:
    """The predecessor's entry is renamed, one left half-way joins it, and all others stay as they are."""
    theirs = entry(
        "manager", "Update", {"f:spec": {"f:b": {}}, "f:metadata": OWNED}, time="2026-01-01T00:00:00Z"
    )
    left = entry("caretaker", "Apply", {"f:spec": {"f:d": {}}})
    user = entry("kubectl-edit", "Update", {"f:spec": {"f:c": {}}})
    status = entry("manager", "Update", {"f:status": {}, "f:metadata": OWNED}, subresource="status")
    result = hand_over([left, theirs, OURS, user, status], {"manager"}, "caretaker", owners={"o", "p"})
    assert result is not None
    assert result[1:] == [OURS, user, status]
    assert (result[0].manager, result[0].operation, result[0].time) == ("caretaker", "Apply", theirs.time)
    assert result[0].fields_v1 == {"f:spec": {"f:b": {}, "f:d": {}}, "f:metadata": OWNED}
    assert has_applied(result, "caretaker")


@pytest.mark.parametrize(
    ("others", "owners"),
    [
        ([], {"o"}),
        ([entry("kubectl", "Update", {"f:spec": {}, "f:metadata": OWNED})], {"o"}),
        ([entry("manager", "Apply", {"f:spec": {}, "f:metadata": OWNED})], {"o"}),
        ([entry("manager", "Update", {"f:status": {}, "f:metadata": OWNED}, subresource="status")], {"o"}),
        ([entry("manager", "Update", {"f:spec": {"f:b": {}}})], {"o"}),
        ([entry("manager", "Update", {"f:spec": {}, "f:metadata": OWNED})], {"another"}),
        ([entry("manager", "Update", {"f:spec": {}, "f:metadata": OWNED})], set()),
        ([entry("manager", "Update", {"f:spec": {"f:b": {}}})], set()),
    ],
)
def test_fields_of_others_are_never_taken(others: list[FieldsEntry], owners: set[str]) -> None:
    """Another manager or operation, a subresource, or a `manager` that did not make the object is left."""
    assert hand_over([*others, OURS], {"manager"}, "caretaker", owners=owners) is None
    assert not has_applied([*others, OURS], "caretaker")


async def test_string_data_is_refused() -> None:
    """A field that the server forgets and never cleans up is named, with the fix, and its values are not."""
    desired = {"metadata": {"name": "s", "namespace": "ns"}, "stringData": {"key": "hush"}}
    applier = Applier(Client(ClientConfig(server="https://127.0.0.1:1")))
    with pytest.raises(ValueError, match=r"Secret ns/s: stringData .* put the values into data") as caught:
        await applier.apply(desired, None, Secret)
    assert "hush" not in str(caught.value)


def test_union_of_field_sets() -> None:
    """Every field of either set is in the union, and the inputs are not changed."""
    left: dict[str, Any] = {"f:a": {"f:b": {}}}
    right: dict[str, Any] = {"f:a": {".": {}, "f:c": {}}, "f:d": {}}
    assert union(left, right) == {"f:a": {"f:b": {}, ".": {}, "f:c": {}}, "f:d": {}}
    assert left == {"f:a": {"f:b": {}}}
