from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.manifests.revisions import (
    data_digest,
    go_json,
    hash_of,
    hash_revision,
    next_revision,
    revision_name,
    same_data,
    sorted_revisions,
)
from slurm_operator.kube.manifests.semantics import canonical_quantity
from slurm_operator.kube.models.kinds import ControllerRevision

MINIMAL: dict[str, Any] = {
    "spec": {
        "logfile": {"$patch": "replace", "image": "example.org/alpine:26.05", "name": "", "resources": {}},
        "ordinalPadding": 0,
        "oversubscribeNode": False,
        "slurmd": {"$patch": "replace", "image": "example.org/slurmd:26.05", "name": "", "resources": {}},
        "template": {"$patch": "replace", "metadata": {}, "spec": {"containers": None}},
    }
}
RICH: dict[str, Any] = {
    "spec": {
        "extraConf": "Feature=a100,nvlink Gres=gpu:8 weight=10",
        "logfile": {"$patch": "replace", "image": "example.org/alpine:26.05", "name": "", "resources": {}},
        "ordinalPadding": 3,
        "oversubscribeNode": False,
        "slurmd": {
            "$patch": "replace",
            "args": ["-vvv"],
            "env": [{"name": "Z", "value": "9"}, {"name": "POD_CPUS", "value": "override"}],
            "image": "example.org/slurmd:26.05",
            "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3},
            "name": "",
            "resources": {"limits": {"cpu": "3500m", "memory": "10Gi"}},
            "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
            "volumeMounts": [{"mountPath": "/data", "name": "data"}],
        },
        "ssh": {
            "$patch": "replace",
            "enabled": True,
            "extraSshdConfig": "X11Forwarding yes",
            "sssdConfRef": {"key": "sssd.conf", "name": "sssd"},
        },
        "template": {
            "$patch": "replace",
            "metadata": {"annotations": {"note": "n"}, "labels": {"team": "x"}},
            "spec": {
                "containers": [{"image": "example.org/side:1", "name": "sidecar", "resources": {}}],
                "hostname": "gpu-",
                "initContainers": [{"image": "example.org/first:1", "name": "first", "resources": {}}],
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "volumes": [{"emptyDir": {"medium": "Memory"}, "name": "shm"}],
            },
        },
    }
}
DAEMON: dict[str, Any] = {
    "spec": {
        **MINIMAL["spec"],
        "template": {
            "$patch": "replace",
            "metadata": {},
            "spec": {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {
                                            "key": "kubernetes.io/hostname",
                                            "operator": "In",
                                            "values": ["kwok-00001", "kwok-00003"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                },
                "containers": None,
            },
        },
    }
}


def revision(
    name: str, number: int = 1, data: Any = None, created: int = 0, **metadata: Any
) -> ControllerRevision:
    body = {
        "metadata": {
            "name": name,
            "creationTimestamp": datetime.fromtimestamp(created, UTC).isoformat(),
            **metadata,
        },
        "revision": number,
        "data": data,
    }
    return msgspec.convert(body, ControllerRevision)


@pytest.mark.parametrize(
    ("data", "expected"), [(MINIMAL, "f47ccb485"), (RICH, "5587658988"), (DAEMON, "9d95c6688")]
)
def test_hash_is_that_of_the_go_operator(data: Any, expected: str) -> None:
    """The data of revisions that Slinky slurm-operator made hashes to the label that it gave them."""
    assert hash_revision(go_json(data), 0) == expected


def test_collision_count_is_part_of_the_hash() -> None:
    """Each count gives another hash, and none at all is not the same as zero."""
    data = go_json(MINIMAL)
    hashes = [hash_revision(data, count) for count in (None, 0, 1, 10)]
    assert len(set(hashes)) == 4


def test_hash_of_nothing_is_the_offset_of_fnv() -> None:
    """An empty input leaves FNV-1's offset basis, 2166136261, in the safe alphabet."""
    expected = "".join("bcdfghjklmnpqrstvwxz2456789"[ord(digit) % 27] for digit in "2166136261")
    assert hash_revision(b"", None) == expected


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ('{"b": 1, "a": [true, null]}', '{"a":[true,null],"b":1}'),
        ('"<a href=\\"x\\">&\'/"', '"\\u003ca href=\\"x\\"\\u003e\\u0026\'/"'),
        ('"\\u0000\\b\\t\\n\\f\\r\\u001f\\u007f"', '"\\u0000\\b\\t\\n\\f\\r\\u001f\x7f"'),
        ('"\\u2028\\u2029 \\u00e9 \\ud83d\\ude00"', '"\\u2028\\u2029 \u00e9 \U0001f600"'),
        ('"\\ud800"', '"\ufffd"'),
        ('{"\\uffff": 1, "\\ud83d\\ude00": 2}', '{"\uffff":1,"\U0001f600":2}'),
        ("[1.0, -0.0, 0.1, 100.0, 1e2]", "[1,-0,0.1,100,100]"),
        ("[1e20, 1e21, 999999999999999999999]", "[100000000000000000000,1e+21,1e+21]"),
        ("[0.000001, 9.9e-7, 1e-7, 1.5e-10]", "[0.000001,9.9e-7,1e-7,1.5e-10]"),
        ("[9007199254740993, -9007199254740993]", "[9007199254740992,-9007199254740992]"),
    ],
)
def test_go_json_writes_what_go_writes(text: str, encoded: str) -> None:
    """The encoder agrees with encoding/json (Go 1.26) on escapes, numbers and the order of keys."""
    assert go_json(json.loads(text)).decode() == encoded


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_go_json_is_json_for_the_same_value(value: Any) -> None:
    """Decoding gives back what was encoded."""
    assert json.loads(go_json(value), parse_int=float) == value


def test_name_is_cut_to_leave_room_for_the_hash() -> None:
    """A long parent name gives a valid revision name."""
    assert revision_name("compute", "abc") == "compute-abc"
    assert revision_name("x" * 253, "b" * 10) == "x" * 223 + "-" + "b" * 10


def test_hash_of_a_revision_without_label_is_the_end_of_its_name() -> None:
    """Revisions that lost their label can still be told apart."""
    assert hash_of(revision("compute-abc")) == "abc"
    labelled = revision("compute-abc", labels={"controller.kubernetes.io/hash": "xyz"})
    assert hash_of(labelled) == "xyz"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": None, "b": 1}, {"b": 1}),
        ({"containers": []}, {"containers": None}),
        ({"c": {"resources": {}, "name": ""}}, {"c": {}}),
        ({"resources": {"limits": {"cpu": "1000m"}}}, {"resources": {"limits": {"cpu": 1}}}),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1073741824"}}),
        ({"requests": {"cpu": "0.5"}}, {"requests": {"cpu": "500m"}}),
        ({"limits": {"x": "1e3"}}, {"limits": {"x": "1k"}}),
        ({"emptyDir": {"sizeLimit": "1024Ki"}}, {"emptyDir": {"sizeLimit": "1Mi"}}),
        ({"resourceFieldRef": {"divisor": "0"}}, {"resourceFieldRef": {}}),
        ({"resourceFieldRef": {"divisor": "0m"}}, {"resourceFieldRef": {"divisor": 0}}),
        ({"limits": {"x": "1e100"}}, {"limits": {"x": "10e99"}}),
        ({"replicas": 1}, {"replicas": 1.0}),
        ({"nodeSelector": {}}, {}),
        ({"spec": {"affinity": {}, "hostname": "a"}}, {"spec": {"hostname": "a"}}),
        ({"metadata": {"labels": {}, "annotations": None, "creationTimestamp": None}}, {}),
        ({"nodeSelector": {"a": "b", "c": None}}, {"nodeSelector": {"a": "b"}}),
    ],
)
def test_different_spellings_mean_the_same(left: Any, right: Any) -> None:
    """What Go's types cannot tell apart does not make a new revision."""
    assert same_data(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"volumes": [{"name": "a", "emptyDir": {}}]}, {"volumes": [{"name": "a"}]}),
        ({"namespaceSelector": {}}, {"namespaceSelector": None}),
        ({"affinity": {"podAffinity": {}}}, {}),
        ({"privileged": False}, {}),
        ({"runAsUser": 0}, {}),
        ({"value": ""}, {}),
        ({"a": 1}, {"a": True}),
        ({"a": 0}, {"a": False}),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}}),
        ({"limits": {"cpu": "1m"}}, {"limits": {"cpu": "1M"}}),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}),
        ({"image": "1"}, {"image": "1.0"}),
        ({"limits": {"cpu": "one"}}, {"limits": {"cpu": "two"}}),
        ({"limits": {"cpu": "1.2.3"}}, {"limits": {"cpu": "1.2.4"}}),
        ({"limits": {"cpu": "1e9999999"}}, {"limits": {"cpu": "1e9999998"}}),
        ({"limits": {"cpu": "1e-9999999"}}, {"limits": {"cpu": "0"}}),
        ({"limits": {"cpu": "1e" + "9" * 5000}}, {"limits": {"cpu": "1"}}),
        ({"limits": {"cpu": "1." + "0" * 70 + "1"}}, {"limits": {"cpu": "1"}}),
        ({"limits": {"cpu": "0"}}, {"limits": {}}),
        ({"name": "0"}, {}),
        ({"status": ""}, {}),
        ({"resources": 0}, {}),
    ],
)
def test_different_meanings_are_told_apart(left: Any, right: Any) -> None:
    """A change that a user can have meant is never overlooked."""
    assert not same_data(left, right)


def test_zero_fields_are_the_callers_business() -> None:
    """A field that the caller names is absent when it is zero, and only then."""
    assert same_data({"ordinalPadding": 0}, {}, zero_fields=["ordinalPadding"])
    assert not same_data({"ordinalPadding": 3}, {}, zero_fields=["ordinalPadding"])
    assert not same_data({"key": "0"}, {}, zero_fields=["key"])
    assert not same_data({"labels": {"key": ""}}, {}, zero_fields=["key"])


USER_MAPS = (
    ("template", "metadata", "labels"),
    ("template", "metadata", "annotations"),
    ("template", "spec", "nodeSelector"),
    ("slurmd", "resources", "limits"),
)
# Keys and values that other rules know in other places, and any other.
KEYS = st.sampled_from(
    ["name", "status", "spec", "metadata", "divisor", "resources", "labels", "limits", "key"]
) | st.text(min_size=1)
VALUES = st.sampled_from(["", "0", "{}", "null"]) | st.text()


@given(where=st.sampled_from(USER_MAPS), key=KEYS, value=VALUES, other=VALUES)
def test_no_entry_of_a_users_map_is_overlooked(
    where: tuple[str, ...], key: str, value: str, other: str
) -> None:
    """Adding, changing or removing a label, an annotation, a selector or a limit is always a change."""
    added, changed = copy.deepcopy(RICH), copy.deepcopy(RICH)
    for data, text in ((added, value), (changed, other)):
        target = data["spec"]
        for step in where:
            target = target[step]
        target[key] = text
    zero_fields = ["key", "ordinalPadding"]
    before = RICH["spec"]
    for step in where:
        before = before[step]
    quantities = where[-1] == "limits"
    assert same_data(added, RICH, zero_fields=zero_fields) == _same_entry(before.get(key), value, quantities)
    assert same_data(added, changed, zero_fields=zero_fields) == _same_entry(value, other, quantities)


def _same_entry(left: str | None, right: str, quantities: bool) -> bool:  # noqa: FBT001 - what kind of map
    if quantities and left is not None:
        return bool(canonical_quantity(left) == canonical_quantity(right))
    return left == right


def test_the_digest_is_that_of_the_meaning() -> None:
    """Spellings of one meaning have one digest, and a change has another."""
    spelled = copy.deepcopy(RICH)
    spelled["spec"]["slurmd"]["resources"]["limits"]["cpu"] = 3.5
    changed = copy.deepcopy(RICH)
    changed["spec"]["slurmd"]["resources"]["limits"]["cpu"] = 3
    assert data_digest(spelled) == data_digest(RICH)
    assert data_digest(changed) != data_digest(RICH)
    assert data_digest({"a": 1}) != data_digest({"a": True})


def test_order_is_by_number_then_age_then_name() -> None:
    """Revisions that all carry number 1, as Slinky slurm-operator left them, are ordered by age."""
    expected = [
        revision("b", 1, created=10),
        revision("a", 1, created=20),
        revision("c", 1, created=20),
        revision("d", 2, created=5),
    ]
    assert sorted_revisions(reversed(expected)) == expected
    assert next_revision(expected) == 3
    assert next_revision([]) == 1
