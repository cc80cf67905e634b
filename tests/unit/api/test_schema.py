"""The CRDs: field for field those of the reference, plus what is listed here; documented, readable, fresh."""

from __future__ import annotations

import json
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
import yaml

from slurm_operator.api import duration
from slurm_operator.api.descriptions import WIDTH
from slurm_operator.api.markers import (
    ATOMIC_LIST,
    ATOMIC_MAP,
    DEFAULTED,
    NULLABLE,
    REQUIRED,
    Int32,
    KeyedList,
    Rule,
    minimum,
    one_of,
    pattern,
)
from slurm_operator.api.schema import all_crds, main, render_crds, type_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "charts" / "slurm-operator-crds" / "templates"
REFERENCE: dict[str, Any] = json.loads(Path(__file__).with_name("reference-schema.json").read_text("utf-8"))
CRDS = {item["spec"]["names"]["plural"]: item["spec"] for item in all_crds()}
PLURALS = sorted(CRDS)

# `kubectl apply` keeps a copy of the object in an annotation, which may have this many bytes.
ANNOTATION_LIMIT = 262_144

# Upper bounds, which the reference mostly does not have; a test below says that everything has one.
BOUNDS = frozenset({"maximum", "maxLength", "maxItems", "maxProperties"})
_OBSERVED = {"status.observedGeneration": {"format": "int64", "type": "integer"}}
_DURATION = {"pattern": duration.PATTERN, "type": "string"}
# Stricter only where the reference itself could not decode what its schema lets through, or could not run it.
DIFFERENCES: dict[str, dict[str, Any]] = {
    "accountings": _OBSERVED,
    "clusters": _OBSERVED,
    "controllers": {
        # Each is a pod, and a host that every client tries in turn: a typo must not become a million of them.
        "spec.ha.backups": {
            "default": 1,
            "format": "int32",
            "minimum": 1,
            "type": "integer",
        },
        **_OBSERVED,
    },
    "loginsets": _OBSERVED,
    "nodesets": {
        # Ours: the reference has no autoscaling by Slurm.
        "spec.autoscaling": {"required": ["maxReplicas"], "type": "object"},
        **{
            f"spec.autoscaling.{name}": {"format": "int32", "minimum": least, "type": "integer", **default}
            for name, least, default in (
                ("minReplicas", 0, {"default": 0}),
                ("maxReplicas", 1, {}),
                ("idleSeconds", 1, {"default": 300}),
                ("resumeTimeoutSeconds", 10, {"default": 600}),
                ("suspendTimeoutSeconds", 10, {"default": 60}),
            )
        },
        "spec.ordinalPadding": {"default": 0, "minimum": 0, "type": "integer"},
        # One value more than the reference has.
        "spec.pruneSlurmNodeRecords": {
            "default": "Never",
            "enum": ["Never", "NodeNotFound", "ScaledIn"],
            "type": "string",
        },
        "spec.updateStrategy.scheduledUpdate.duration": {"default": "30m", **_DURATION},
        "spec.volumeClaimTemplates": {"nullable": True, "type": "array"},
        "spec.volumeClaimTemplates[]": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    "restapis": _OBSERVED,
    "tokens": {
        "spec.lifetime": _DURATION,
        "status.expiresAt": {"format": "date-time", "type": "string"},
        **_OBSERVED,
    },
}
NEW_COLUMNS = {
    "accountings": ["READY", "REASON"],
    "clusters": ["HEALTHY", "REASON"],
    "controllers": ["READY", "REASON"],
    "loginsets": ["READY", "REASON"],
    "nodesets": ["HEALTHY", "POWER", "REASON"],
    "restapis": ["READY", "REASON"],
    "tokens": ["READY", "REASON"],
}


def _version(plural: str) -> dict[str, Any]:
    (version,) = CRDS[plural]["versions"]
    return dict(version)


def _schema(plural: str) -> dict[str, Any]:
    return dict(_version(plural)["schema"]["openAPIV3Schema"])


def _walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if path:
        yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from _walk(below, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from _walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _walk(schema["additionalProperties"], f"{path}{{}}")


def _facts(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a schema says about one field, without prose, bounds, rules and the fields below it."""
    nested = {"description", "properties", "items", "additionalProperties", "x-kubernetes-validations"}
    facts = {key: value for key, value in schema.items() if key not in nested | BOUNDS}
    return facts | ({"required": sorted(facts["required"])} if "required" in facts else {})


# ------------------------------------------------------------------------------------ equal to the reference
def test_all_kinds_are_there() -> None:
    """There is one definition for each kind of the reference."""
    assert sorted(REFERENCE) == PLURALS


@pytest.mark.parametrize("plural", PLURALS)
def test_fields_are_those_of_the_reference(plural: str) -> None:
    """Every field has the type, default and constraints of the reference, but for the listed ones."""
    ours = {
        path: _facts(schema)
        for path, schema in _walk(_schema(plural))
        if path not in {"apiVersion", "kind", "metadata"}
    }
    # By its default kstatus sees that no operator has read a new object.
    assert ours["status"].pop("default")["observedGeneration"] == -1
    theirs = {path: _facts(facts) for path, facts in REFERENCE[plural]["fields"].items()}
    assert ours == theirs | DIFFERENCES[plural]


@pytest.mark.parametrize("plural", PLURALS)
def test_bounds_of_the_reference_stay(plural: str) -> None:
    """Where the reference has an upper bound, it is ours."""
    ours = dict(_walk(_schema(plural)))
    for path, facts in REFERENCE[plural]["fields"].items():
        assert {name: facts[name] for name in BOUNDS & facts.keys()}.items() <= ours[path].items(), path


@pytest.mark.parametrize("plural", PLURALS)
def test_everything_in_a_manifest_has_an_upper_bound(plural: str) -> None:
    """No string, list, map or count that a user writes can be as large as one likes."""
    bound = {"string": "maxLength", "array": "maxItems", "integer": "maximum"}
    unbounded = []
    for path, schema in _walk(_schema(plural)["properties"]["spec"], "spec"):
        wanted = "maxLength" if "anyOf" in schema else bound.get(schema["type"])
        if isinstance(schema.get("additionalProperties"), dict):
            wanted = "maxProperties"
        if wanted and wanted not in schema and "enum" not in schema:
            unbounded.append(path)
    # A time, not an amount: nothing grows with it.
    assert unbounded == (["spec.minReadySeconds"] if plural == "nodesets" else [])


@pytest.mark.parametrize("plural", ["loginsets", "nodesets"])
def test_the_api_server_itself_keeps_the_controller(plural: str) -> None:
    """The reference to the Controller cannot be changed, with or without a webhook."""
    (rule,) = dict(_walk(_schema(plural)))["spec.controllerRef"]["x-kubernetes-validations"]
    assert rule["rule"] == "self == oldSelf"


@pytest.mark.parametrize("plural", PLURALS)
def test_names_and_subresources_are_those_of_the_reference(plural: str) -> None:
    """A kind has the version, names, short names, status and scale paths of the reference."""
    names = dict(CRDS[plural]["names"])
    assert names.pop("categories") == ["slurm"]
    assert names == REFERENCE[plural]["names"]
    assert CRDS[plural]["group"] == "slinky.slurm.net"
    assert CRDS[plural]["scope"] == "Namespaced"
    assert _version(plural)["name"] == REFERENCE[plural]["version"]
    assert (_version(plural)["served"], _version(plural)["storage"]) == (True, True)
    assert _version(plural)["subresources"] == REFERENCE[plural]["subresources"]


@pytest.mark.parametrize("plural", PLURALS)
def test_columns_of_the_reference_stay_in_their_order(plural: str) -> None:
    """New columns come between the old ones, which keep their names, paths, priorities and order."""
    columns = [
        {key: value for key, value in column.items() if key != "description"}
        for column in _version(plural)["additionalPrinterColumns"]
    ]
    added = [column["name"] for column in columns if column not in REFERENCE[plural]["columns"]]
    assert [column for column in columns if column["name"] not in added] == REFERENCE[plural]["columns"]
    assert added == NEW_COLUMNS[plural]


# ------------------------------------------------------------------------------------------------- documented
@pytest.mark.parametrize("plural", PLURALS)
def test_every_field_is_described(plural: str) -> None:
    """Every field says in a whole sentence what it is for."""
    for path, schema in _walk(_schema(plural)):
        if path == "metadata" or (path.endswith(("[]", "{}")) and "properties" not in schema):
            continue  # Kubernetes describes the first; plain items are described by their list or map
        text = schema.get("description", "")
        assert len(text) >= 20, f"{path}: {text!r}"
        assert text.endswith(".") or "\n  " in text, f"{path}: {text!r}"


@pytest.mark.parametrize("plural", PLURALS)
def test_descriptions_fit_kubectl_explain(plural: str) -> None:
    """No line of a description is so long that kubectl would wrap it and lose its indentation."""
    for path, schema in _walk(_schema(plural)):
        for line in schema.get("description", "").split("\n"):
            assert len(line) <= WIDTH, f"{path}: {line}"


@pytest.mark.parametrize("plural", PLURALS)
def test_defaults_are_spelled_out(plural: str) -> None:
    """A default that the API server fills in is also told in words, since kubectl explain shows none."""
    for path, schema in _walk(_schema(plural)["properties"]["spec"], "spec"):
        default = schema.get("default", "")
        if default != "":
            spelled = str(default).lower() if isinstance(default, bool) else default
            assert f"Default: {spelled}." in schema["description"], path


@pytest.mark.parametrize("plural", PLURALS)
def test_rules_blame_a_field_and_say_what_to_do(plural: str) -> None:
    """Each CEL rule names an existing field, starts its message with one, and stays on one line."""
    for path, schema in _walk(_schema(plural)):
        for rule in schema.get("x-kubernetes-validations", ()):
            # A rule of a field blames that field by itself.
            fields = schema["properties"] if "fieldPath" in rule else {path.split(".")[-1]}
            assert rule.get("fieldPath", f".{path.split('.')[-1]}").removeprefix(".") in fields, path
            assert rule["message"].split()[0].split(".")[0] in fields, rule["message"]
            assert "\n" not in rule["message"]
            assert ": " in rule["message"], "the part after the colon says what to do"


# ----------------------------------------------------------------------------------------- YAML, fresh files
def test_rendered_files_are_plain_readable_yaml() -> None:
    """Each file parses back to its definition, has nothing for Helm to expand, and fits an annotation."""
    rendered = render_crds()
    assert sorted(rendered) == [f"slinky.slurm.net_{plural}.yaml" for plural in PLURALS]
    for name, text in rendered.items():
        document = yaml.safe_load(text)
        assert document["spec"] == CRDS[document["spec"]["names"]["plural"]]
        assert "{{" not in text
        assert "\\n" not in text.replace(r"^[^\n]+$", ""), f"{name} has a text that is not a block"
        assert len(json.dumps(document)) < ANNOTATION_LIMIT / 2


def test_output_does_not_depend_on_the_process() -> None:
    """Two runs with different hash seeds print the same bytes."""
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "slurm_operator.api.schema"],
            check=True,
            capture_output=True,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {"".join(render_crds().values()).encode()}


def test_chart_is_fresh() -> None:
    """The files in the chart are those that the structs give now."""
    assert main(["--check", str(TEMPLATES)]) == 0


def test_stale_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A changed, a missing and a leftover file each fail the check and are named."""
    assert main(["--write", str(tmp_path / "new")]) == 0
    folder = tmp_path / "new"
    assert main(["--check", str(folder)]) == 0
    changed = folder / "slinky.slurm.net_tokens.yaml"
    changed.write_text(changed.read_text("utf-8").replace("Default: true.", "Default: false."), "utf-8")
    (folder / "slinky.slurm.net_nodesets.yaml").unlink()
    (folder / "slinky.slurm.net_gone.yaml").write_text("{}\n", "utf-8")
    assert main(["--check", str(folder)]) == 1
    complaint = capsys.readouterr().err
    for line, plural in zip(complaint.splitlines(), ["gone", "nodesets", "tokens"], strict=True):
        assert line.startswith(f"{folder}/slinky.slurm.net_{plural}.yaml is stale")
    assert main(["--write", str(folder)]) == 0
    assert main(["--check", str(folder)]) == 0


# -------------------------------------------------------------------------------------- from types to schemas
class _Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (Int32, {"type": "integer", "format": "int32"}),
        (Annotated[Int32 | None, minimum(1)], {"type": "integer", "format": "int32", "minimum": 1}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
        (
            int | str | None,
            {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
        ),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (dict[str, str], {"type": "object", "additionalProperties": {"type": "string"}}),
        (
            Annotated[tuple[str, ...] | None, NULLABLE, ATOMIC_LIST],
            {
                "type": "array",
                "items": {"type": "string"},
                "nullable": True,
                "x-kubernetes-list-type": "atomic",
            },
        ),
        (
            Annotated[tuple[str, ...], KeyedList("name")],
            {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
        (
            Annotated[str, one_of(_Colour), pattern("^.*$")],
            {"type": "string", "enum": ["Red", "Blue"], "pattern": "^.*$"},
        ),
        (Annotated[str, REQUIRED, DEFAULTED], {"type": "string"}),
    ],
)
def test_types_become_openapi(hint: Any, expected: dict[str, Any]) -> None:
    """A type annotation with markers becomes the schema that says the same."""
    assert type_schema(hint) == expected


@pytest.mark.parametrize("hint", [float, set[str], int | bool, list[str]])
def test_types_without_an_openapi_form_are_refused(hint: Any) -> None:
    """A field of a type that the generator does not know is an error, never an open schema."""
    with pytest.raises(TypeError, match="no OpenAPI type"):
        type_schema(hint)


def test_markers_are_plain_data() -> None:
    """A rule and a keyword say what they add to a schema."""
    rule = Rule("self.a", "a is needed: set it", field="a")
    assert rule.as_validation()["fieldPath"] == ".a"
    assert ATOMIC_MAP.keywords() == {"x-kubernetes-map-type": "atomic"}
