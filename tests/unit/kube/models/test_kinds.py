from __future__ import annotations

import gc
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.kube.models import meta
from slurm_operator.kube.models.kinds import CustomResourceDefinition, Node, Pod, Scale, Secret, metadata_only
from slurm_operator.kube.models.meta import Condition, Object, ObjectMeta, Part
from tests.support.model_kinds import STORED_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: tuple[type[Object], ...] = (*STORED_KINDS, Scale, metadata_only(Pod))


def pod(**content: Any) -> Pod:
    return msgspec.json.decode(json.dumps(content), type=Pod)


def pinned(*names: str, operator: str = "In") -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": operator, "values": list(names)}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def parts(of: type[Part]) -> Iterator[type[Part]]:
    for part in of.__subclasses__():
        yield part
        yield from parts(part)


def test_the_garbage_collector_need_not_look_at_what_is_cached() -> None:
    """No read model is known to the collector: thousands of them would hold up the process at each look."""
    known = {*parts(Part)}
    assert known >= {*KINDS}
    assert [part.__name__ for part in known if part.__struct_config__.gc] == []
    assert not gc.is_tracked(pod(metadata={"name": "a", "labels": {"b": "c"}}))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_may_be_absent_and_unknown_ones_are_skipped(kind: type[Object]) -> None:
    """An object with nothing but unknown fields decodes: servers older and newer than us are served alike."""
    decoded = msgspec.json.decode(b'{"metadata": {"name": "a", "new": 1}, "newer": {"x": [1]}}', type=kind)
    assert decoded.key.name == "a"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_objects_are_immutable_and_printable(kind: type[Object]) -> None:
    """Cached objects are shared, so nobody may change one."""
    decoded = kind()
    assert repr(decoded)
    with pytest.raises(AttributeError):
        decoded.metadata = ObjectMeta(name="b")  # type: ignore[misc]  # the point of the test


def test_secret_values_are_never_printed() -> None:
    """A Secret prints its name and keys only."""
    secret = msgspec.json.decode(b'{"metadata": {"name": "s"}, "data": {"key": "aHVzaA=="}}', type=Secret)
    assert secret.data == {"key": b"hush"}
    assert repr(secret) == str(secret) == "Secret(s, keys=['key'])"


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([], False),
        ([("Ready", "False")], False),
        ([("Ready", "Unknown")], False),
        ([("Ready", "True")], True),
    ],
)
def test_ready_is_the_condition(conditions: list[tuple[str, str]], *, ready: bool) -> None:
    """A Pod or Node is ready when its Ready condition says True, and only then."""
    status = {"conditions": [{"type": kind, "status": value} for kind, value in conditions]}
    assert pod(status=status).ready is ready
    assert msgspec.convert({"status": status}, Node).ready is ready


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({}, ""),
        ({"nodeName": "w1", "affinity": pinned("w2")}, "w1"),
        ({"affinity": pinned("w2")}, "w2"),
        ({"affinity": pinned("w2", "w3")}, ""),
        ({"affinity": pinned("w2", operator="NotIn")}, ""),
        ({"affinity": {"nodeAffinity": {}}}, ""),
        ({"affinity": {}}, ""),
    ],
)
def test_target_node(spec: dict[str, Any], node: str) -> None:
    """A Pod's node is the one it is bound to, else the only one that its affinity allows by name."""
    assert pod(spec=spec).target_node == node


def test_claims() -> None:
    """The claims of a Pod are those of its volumes, in order."""
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "one"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "two", "readOnly": True}},
    ]
    assert pod(spec={"volumes": volumes}).claims == ("one", "two")


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed", "Unknown", "Brand-New"])
def test_finished(phase: str) -> None:
    """Only Succeeded and Failed are final; a phase we do not know is not."""
    assert pod(status={"phase": phase}).finished is (phase in {"Succeeded", "Failed"})


def test_definition_before_the_server_looked_at_it() -> None:
    """A definition whose status is still null is not established."""
    definition = msgspec.json.decode(
        b'{"status": {"conditions": null, "storedVersions": null}}', type=CustomResourceDefinition
    )
    assert not definition.established


# --------------------------------------------------------------------------------------------------- sharing


def twins(content: dict[str, Any]) -> tuple[Pod, Pod]:
    return pod(**content), pod(**content)


def test_what_repeats_is_stored_once() -> None:
    """Labels, node names, containers and owners of many Pods are the same few objects."""
    one, two = twins(
        {
            "metadata": {
                "namespace": "some-namespace",
                "labels": {"a-rather-long-label-key-for-a-test/of-sharing": "some-value"},
                "ownerReferences": [{"kind": "NodeSet", "name": "workers", "uid": "1-2-3"}],
            },
            "spec": {
                "nodeName": "worker-node-17",
                "containers": [{"name": "slurmd", "image": "example/slurmd:1"}],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    assert one is not two
    assert one == two
    pairs = [
        (one.metadata.namespace, two.metadata.namespace),
        (next(iter(one.metadata.labels)), next(iter(two.metadata.labels))),
        (next(iter(one.metadata.labels.values())), next(iter(two.metadata.labels.values()))),
        (one.metadata.owner_references, two.metadata.owner_references),
        (one.spec.node_name, two.spec.node_name),
        (one.spec.containers, two.spec.containers),
        (one.status.phase, two.status.phase),
        (one.status.conditions[0].type, two.status.conditions[0].type),
    ]
    assert [a is b for a, b in pairs] == [True] * len(pairs)


def test_table_of_shared_values_is_bounded() -> None:
    """Values that never repeat do not accumulate."""
    for number in range(3 * meta._MOST):
        meta.share(("unique", number))
    assert len(meta._shared) <= meta._MOST


def test_enumerations_survive_sharing() -> None:
    """A condition built from an enumeration keeps it: only plain strings are interned."""

    class Reason(StrEnum):
        DRAINING = "Draining"

    condition = Condition(type="Ready", status="False", reason=Reason.DRAINING)
    assert condition.reason is Reason.DRAINING
    assert ObjectMeta(labels={"reason": Reason.DRAINING}).labels == {"reason": "Draining"}
