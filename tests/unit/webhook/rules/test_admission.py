"""Updates, what cannot be read, and what must always pass."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api import Controller, NodeSet
from slurm_operator.webhook.rules import CHECKS
from slurm_operator.webhook.rules.admission import Undecodable, decode, harmless, validate
from slurm_operator.webhook.rules.findings import CauseType
from tests.support.webhook.rule_cases import DROP, GOOD, HA, MAX, key, manifest, mount, read, template, twice

encode = msgspec.json.encode


def test_several_errors_come_together() -> None:
    """One answer names every mistake, whichever rule and whichever renderer found it."""
    bad = read(
        manifest(
            "NodeSet",
            {
                "controllerRef": {"name": ""},
                MAX: "0%",
                "extraConf": "NodeName=x",
                "partition": {"enabled": True, "config": "Nodes=ALL"},
                "minReadySeconds": -1,
                "template.spec": {"hostname": "-", "containers": twice("a")},
            },
        )
    )
    errors, _ = validate(bad)
    assert {error.path for error in errors} == {
        "spec.controllerRef.name",
        f"spec.{MAX}",
        "spec.extraConf",
        "spec.partition.config",
        "spec.minReadySeconds",
        "spec.template.spec.hostname",
        "spec.template.spec.containers[1].name",
    }


def test_all_immutable_fields_are_named_together() -> None:
    """An update that changes several fixed values hears of all of them, and what they were."""
    old = read(manifest("Controller", {"clusterName": "a"}))
    new = read(manifest("Controller", {"clusterName": "b", "slurmKeyRef": key("t"), "jwtKeyRef": key("t")}))
    errors, _ = validate(new, old)
    assert [error.path for error in errors] == ["spec.clusterName", "spec.slurmKeyRef", "spec.jwtKeyRef"]
    assert {error.cause for error in errors} == {CauseType.FORBIDDEN}


@pytest.mark.parametrize(
    ("kind", "before", "after", "path", "kept"),
    [
        ("Controller", {"clusterName": "demo"}, {"clusterName": "other"}, "spec.clusterName", "'demo'"),
        ("NodeSet", {}, {"controllerRef": {"name": "d"}}, "spec.controllerRef", "name 'c'"),
        (
            "NodeSet",
            {},
            {"volumeClaimTemplates": [template("a")], "slurmd": mount("a")},
            "spec.volumeClaimTemplates",
            "",
        ),
        ("Controller", {}, {"slurmKeyRef": key("t")}, "spec.slurmKeyRef", "'secret'"),
    ],
)
def test_what_cannot_be_changed_is_said_once(
    kind: str, before: dict[str, Any], after: dict[str, Any], path: str, kept: str
) -> None:
    """The refusal names the value to keep, where that is short, and says once that it stays."""
    (error,), _ = validate(read(manifest(kind, after)), read(manifest(kind, before)))
    assert (error.path, error.cause) == (path, CauseType.FORBIDDEN)
    assert error.message.count("after creation") == 1
    assert error.message.startswith(f"keep {kept}: ") is bool(kept)


def test_computed_cluster_name_may_be_written_out() -> None:
    """To write down the name that the cluster has anyway is no change."""
    old, new = read(manifest("Controller")), read(manifest("Controller", {"clusterName": "slurm_x"}))
    assert validate(new, old) == ((), ())


def test_a_moved_mistake_is_an_old_one() -> None:
    """A mistake that only moved in its list was there before."""
    side = [{"name": "first", "image": "any"}]
    old = read(manifest("NodeSet", {"template.spec": {"containers": twice("a")}}))
    new = read(manifest("NodeSet", {"template.spec": {"containers": [*twice("a"), *side]}}))
    assert validate(new, old)[0] == ()
    moved = read(manifest("NodeSet", {"template.spec": {"containers": [*side, *twice("b")]}}))
    assert validate(moved, old)[0] != ()


def test_an_old_mistake_does_not_excuse_another() -> None:
    """What the change itself makes wrong is refused, whatever was wrong before."""
    old = read(manifest("NodeSet", {MAX: "0%"}))
    new = read(manifest("NodeSet", {MAX: "0%", "minReadySeconds": -1}))
    errors, warnings = validate(new, old)
    assert [error.path for error in errors] == ["spec.minReadySeconds"]
    assert [warning.partition(": ")[0] for warning in warnings] == [f"spec.{MAX}"]


def test_warnings_fit_the_api_server() -> None:
    """The API server cuts long warnings and drops what is too much; these are neither."""
    lines = "\n".join(f"SlurmctldLogFile=/{number}" for number in range(3))
    old = read(manifest("Controller", {"extraConf": "x" * 300 + "=1\x01", "clusterName": "c" * 300}))
    new = read(manifest("Controller", {"extraConf": f"{lines}\n\x01", "clusterName": "c" * 300}))
    errors, warnings = validate(new, old)
    assert errors == ()
    assert len(warnings) >= 3
    assert all(len(warning) <= 256 for warning in warnings)
    assert sum(map(len, warnings)) <= 4096


# --- what must pass


def dying(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"metadata": body["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize("kind", list(GOOD))
def test_metadata_of_a_bad_object_may_change(kind: str) -> None:
    """Labels, finalizers and status can be written whatever is wrong with the spec."""
    bad = manifest(kind, {"anything": "wrong"})
    labelled = bad | {"metadata": bad["metadata"] | {"labels": {"a": "b"}, "finalizers": []}, "status": {}}
    assert harmless(encode(labelled), encode(bad))
    assert not harmless(encode(manifest(kind)), encode(bad))
    assert not harmless(encode(bad), None)


def test_a_dying_object_may_change() -> None:
    """While an object is deleted nothing is refused, so that its finalizers can go."""
    old, new = manifest("NodeSet"), manifest("NodeSet", {MAX: 0, "controllerRef": DROP})
    assert harmless(encode(dying(new)), encode(old))
    assert not harmless(encode(new), encode(old))


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'"text"', b'{"metadata": 5}', b"\xff"])
def test_what_is_no_object_is_not_harmless(raw: bytes) -> None:
    """Text that is no object is never let through unseen."""
    assert not harmless(raw, encode(manifest("NodeSet")))


# --- what cannot be read


@pytest.mark.parametrize(
    ("edits", "path"),
    [
        ({"replicas": "three"}, "spec.replicas"),
        ({"template": {"spec": []}}, "spec.template.spec"),
        ({"volumeClaimTemplates": [5]}, "spec.volumeClaimTemplates[0]"),
        ({"controllerRef": "c"}, "spec.controllerRef"),
    ],
)
def test_undecodable_names_its_field(edits: dict[str, Any], path: str) -> None:
    """A value of the wrong type is refused by its path, like any other mistake."""
    with pytest.raises(Undecodable) as refused:
        decode(NodeSet, encode(manifest("NodeSet", edits)))
    assert refused.value.finding.path == path
    assert refused.value.finding.cause is CauseType.INVALID


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"5", b"\xff\x00"])
def test_what_is_no_object_is_undecodable(raw: bytes) -> None:
    """Text that is no object at all is refused, and not an exception of the decoder."""
    with pytest.raises(Undecodable):
        decode(Controller, raw)


# --- what users can write

scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8)
names = st.sampled_from(
    [
        *("name", "image", "containers", "initContainers", "volumes", "volumeMounts", "args", "ports"),
        *("resources", "limits", "cpu", "memory", "affinity", "tolerations", "hostname", "dnsConfig"),
        *("searches", "nodeSelector", "securityContext", "selector", "key", "port", "metadata", "spec"),
        *("podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "env", "$patch", "labels"),
        *("livenessProbe", "httpGet", "lifecycle", "externalIPs", "hostNetwork", "emptyDir"),
    ]
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
maps = st.dictionaries(names, trees, max_size=4)
lines = st.text(alphabet="Nn=\\\n\r #\"'a%1,\t\x00\u2028", max_size=20)
_OPEN = {
    "Controller": ("slurmctld", "logfile", "reconfigure", "template.spec", "service.spec"),
    "Accounting": ("slurmdbd", "template.spec", "service.spec"),
    "NodeSet": ("slurmd", "logfile", "template.spec"),
    "LoginSet": ("login", "initconf", "template.spec", "service.spec"),
    "RestApi": ("slurmrestd", "template.spec", "service.spec"),
}


@given(st.data())
def test_no_manifest_breaks_a_rule(data: st.DataObject) -> None:
    """Whatever a user writes where the schema lets him, the rules answer."""
    kind = data.draw(st.sampled_from(sorted(_OPEN)))
    edits: dict[str, Any] = {path: data.draw(maps) for path in _OPEN[kind]}
    if kind in ("Controller", "Accounting", "NodeSet"):
        edits["extraConf"] = data.draw(lines)
    if kind == "NodeSet":
        edits["partition"] = {"enabled": True, "config": data.draw(lines)}
        edits["volumeClaimTemplates"] = data.draw(st.lists(maps, max_size=2))
        edits[MAX] = data.draw(st.integers(-5, 5) | lines)
        edits["scalingMode"] = data.draw(st.sampled_from(["StatefulSet", "DaemonSet"]))
    if kind == "Controller" and data.draw(st.booleans()):
        edits |= HA
    item = read(manifest(kind, edits, data.draw(st.sampled_from(["x", "n" * 63, "a.b"]))))
    errors, warnings = validate(item)
    assert all(error.path and error.message for error in errors)
    # Nothing is worse than before if nothing changes.
    assert validate(item, item)[0] == ()
    assert all(len(warning) <= 256 for warning in warnings)


MANY = 200_000


@pytest.mark.parametrize("text", ["a" * MANY, "a " * MANY, 'a="' * MANY, " " * MANY + "=", "a\\\n" * MANY])
def test_a_long_text_is_validated_soon(text: str) -> None:
    """No text takes more than a time in proportion to its length, and no answer repeats all of it."""
    for body in (
        manifest("Controller", {"extraConf": text, "clusterName": text}),
        manifest("Accounting", {"extraConf": text}),
        manifest("NodeSet", {"extraConf": text, "partition": {"enabled": True, "config": text}}),
    ):
        errors, warnings = validate(read(body))
        assert len(errors) <= 50
        assert sum(map(len, map(str, errors))) + sum(map(len, warnings)) < 100_000


@pytest.mark.parametrize("depth", [300, 990, 5000])
def test_no_nesting_breaks_the_decoder(depth: int) -> None:
    """An object that is nested without end is refused or judged; never an exception."""
    text = encode(manifest("NodeSet", {"slurmd": {"image": "HERE"}}))
    deep = text.replace(b'"HERE"', b'"any","x":' + b"[" * depth + b"]" * depth)
    harmless(deep, deep)
    with contextlib.suppress(Undecodable):
        decode(NodeSet, deep)


def test_every_kind_has_rules() -> None:
    """No kind of the API is admitted unseen."""
    assert {kind.RESOURCE.kind for kind in CHECKS} == set(GOOD)
