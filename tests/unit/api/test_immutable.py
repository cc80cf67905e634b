"""What an update of an object may not change, and which edits are no change of it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from slurm_operator.api import KINDS, Controller, NodeSet
from slurm_operator.api.immutable import immutable_values
from slurm_operator.api.shared import Kind

KindT = TypeVar("KindT", bound=Kind)


def _make(kind: type[KindT], spec: dict[str, Any] | None = None) -> KindT:
    return msgspec.convert({"metadata": {"name": "blue", "namespace": "hpc"}, "spec": spec or {}}, kind)


def _key(name: str, key: str = "k") -> dict[str, str]:
    return {"name": name, "key": key}


def test_immutable_fields_of_every_kind() -> None:
    """The values that an update may not change are exactly the ones that the API promises to keep."""
    assert {kind.__name__: set(immutable_values(_make(kind))) for kind in KINDS} == {
        "Controller": {
            "spec.clusterName",
            "spec.slurmKeyRef",
            "spec.jwtKeyRef",
            "spec.persistence.enabled",
            "spec.persistence.existingClaim",
        },
        "NodeSet": {"spec.controllerRef", "spec.volumeClaimTemplates"},
        "LoginSet": {"spec.controllerRef"},
        "Accounting": {"spec.slurmKeyRef", "spec.jwtKeyRef"},
        "Token": {"spec.jwtKeyRef"},
        "RestApi": set(),
        "Cluster": set(),
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"clusterName": "hpc_blue"}),
        ({"slurmKeyRef": _key("s", "a")}, {"slurmKeyRef": _key("s", "b")}),
        ({"jwtHs256KeyRef": _key("j")}, {"jwtKeyRef": _key("j")}),
        ({}, {"persistence": {"enabled": True, "accessModes": ["ReadWriteOnce"]}}),
        (
            {"persistence": {"enabled": False, "existingClaim": "a"}},
            {"persistence": {"enabled": False, "existingClaim": "b"}},
        ),
        ({"extraConf": "A=1"}, {"extraConf": "A=2"}),
    ],
)
def test_edits_without_effect_on_what_is_kept(before: dict[str, Any], after: dict[str, Any]) -> None:
    """An edit that changes only the spelling of an immutable value is no change of it."""
    assert immutable_values(_make(Controller, before)) == immutable_values(_make(Controller, after))


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("spec.clusterName", {}, {"clusterName": "other"}),
        ("spec.slurmKeyRef", {"slurmKeyRef": _key("s")}, {"slurmKeyRef": _key("t")}),
        ("spec.jwtKeyRef", {"jwtKeyRef": _key("j")}, {"jwtKeyRef": _key("j", "other")}),
        ("spec.persistence.enabled", {}, {"persistence": {"enabled": False}}),
        (
            "spec.persistence.existingClaim",
            {"persistence": {"existingClaim": "a"}},
            {"persistence": {"existingClaim": "b"}},
        ),
    ],
)
def test_edits_of_what_is_kept(path: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """An edit of an immutable value shows under the path of its field, and only there."""
    old, new = (immutable_values(_make(Controller, spec)) for spec in (before, after))
    assert [name for name in old if old[name] != new[name]] == [path]


_CLAIM: dict[str, Any] = {
    "metadata": {"name": "a"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def _claim(metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the claim template with some fields changed."""
    return {
        "metadata": {**_CLAIM["metadata"], **(metadata or {})},
        "spec": {**_CLAIM["spec"], **(spec or {})},
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, []),
        ([_CLAIM], [_claim({"creationTimestamp": None})]),
        ([_CLAIM], [_claim({"labels": {}, "annotations": None})]),
        ([_CLAIM], [{**_CLAIM, "status": {}}]),
        ([_CLAIM], [_claim(spec={"resources": {"requests": {"storage": "1024Mi"}}})]),
        ([_CLAIM], [_claim(spec={"resources": {"limits": {}, "requests": {"storage": 2**30}}})]),
        ([_CLAIM], [_claim(spec={"volumeName": "", "selector": None})]),
    ],
)
def test_claim_templates_may_be_spelled_anew(before: Any, after: Any) -> None:
    """Claim templates that mean the same are equal, however they are written."""
    old, new = (immutable_values(_make(NodeSet, {"volumeClaimTemplates": item})) for item in (before, after))
    assert old == new


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [_CLAIM]),
        ([_CLAIM], [_CLAIM, _claim({"name": "b"})]),
        ([_CLAIM], [_claim(spec={"resources": {"requests": {"storage": "2Gi"}}})]),
        ([_CLAIM], [_claim(spec={"storageClassName": ""})]),
        ([_CLAIM], [_claim(spec={"selector": {}})]),
        ([_CLAIM], [_claim({"labels": {"name": ""}})]),
        ([_CLAIM], [_claim(spec={"accessModes": ["ReadWriteMany"]})]),
        ([_CLAIM], [_claim(spec={"volumeName": "pv"})]),
    ],
)
def test_claim_templates_may_not_change_their_meaning(before: Any, after: Any) -> None:
    """A claim template that asks for something else shows under its path, and only there."""
    old, new = (immutable_values(_make(NodeSet, {"volumeClaimTemplates": item})) for item in (before, after))
    assert [path for path in old if old[path] != new[path]] == ["spec.volumeClaimTemplates"]


def test_volume_claim_templates_are_compared_whole() -> None:
    """A NodeSet's claim templates and its cluster may not change in any detail."""
    old = immutable_values(_make(NodeSet, {"volumeClaimTemplates": [{"metadata": {"name": "a"}}]}))
    new = immutable_values(_make(NodeSet, {"volumeClaimTemplates": [{"metadata": {"name": "b"}}]}))
    assert old["spec.volumeClaimTemplates"] != new["spec.volumeClaimTemplates"]
    assert old["spec.controllerRef"] == new["spec.controllerRef"]
