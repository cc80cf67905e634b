"""Turns the structs of this package into CustomResourceDefinitions.

The walk is short because the structs say everything: types become OpenAPI types, markers become keywords,
docstrings become descriptions, and struct defaults become OpenAPI defaults where a field is marked
`DEFAULTED`. The files in the chart are written by it and checked against it:

    python -m slurm_operator.api.schema --write charts/slurm-operator-crds/templates
    python -m slurm_operator.api.schema --check charts/slurm-operator-crds/templates
"""

from __future__ import annotations

import argparse
import sys
import types
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import yaml

from slurm_operator.api import KINDS, Kind, wellknown
from slurm_operator.api.descriptions import field_descriptions, reflow, struct_description
from slurm_operator.api.markers import DEFAULTED, REQUIRED, Immutable, KeyedList, Keyword, Rule
from slurm_operator.kube.models.meta import Part

Schema = dict[str, Any]

# Every kind shows in `kubectl get slurm`.
CATEGORY = "slurm"

HEADER = "# Generated from src/slurm_operator/api by `python -m slurm_operator.api.schema`; do not edit.\n"

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    datetime: {"type": "string", "format": "date-time"},
}

# How `kubectl explain`, which shows no bounds by itself, tells of them.
_BOUNDS = {
    "maximum": "At most {:,}.",
    "maxLength": "At most {:,} characters.",
    "maxItems": "At most {:,} entries.",
    "maxProperties": "At most {:,} entries.",
}

# To kubectl a comment, to helm the annotation that makes it leave the definition behind: with a definition go
# all objects of its kind, that is, every cluster and its jobs.
CHART_LINE = """\
  #{{ if .Values.keep }}{{ "\\n  annotations:\\n    helm.sh/resource-policy: keep" }}{{ end }}
"""

_API_VERSION = "The group and version of the API that this object is written for."
_KIND = "The kind of this object."
# The status of an object that no operator has seen. Without one, kstatus takes a new object for complete.
_UNOBSERVED = {"observedGeneration": -1}


# ---------------------------------------------------------------------------------------- types to schemas
def type_schema(hint: Any) -> Schema:
    """Return the schema of one type annotation."""
    markers, hint = unwrap(hint)
    schema = _plain_schema(hint)
    for marker in markers:
        if isinstance(marker, Keyword | KeyedList):
            schema |= marker.keywords()
    return schema


def _plain_schema(hint: Any) -> Schema:
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    if isinstance(hint, type) and issubclass(hint, Part):
        return struct_schema(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return {"type": "array", "items": type_schema(arguments[0])}
    if origin is dict and arguments[1] is Any:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if origin is dict:
        return {"type": "object", "additionalProperties": type_schema(arguments[1])}
    if origin in {Union, types.UnionType} and set(arguments) == {int, str}:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    raise TypeError(f"no OpenAPI type for {hint!r}: use a scalar, a Part, a tuple or a dict")


def unwrap(hint: Any) -> tuple[list[Any], Any]:
    """Take the markers off a type, and the None off an optional one."""
    if get_origin(hint) is Annotated:
        inner, *markers = get_args(hint)
        more, plain = unwrap(inner)
        return [*more, *markers], plain
    if get_origin(hint) in {Union, types.UnionType}:
        arms = [arm for arm in get_args(hint) if arm is not type(None)]
        if len(arms) == 1:
            return unwrap(arms[0])
        return [], Union[tuple(arms)]  # noqa: UP007 - the arms are only known at run time
    return [], hint


# -------------------------------------------------------------------------------------- structs to schemas
def struct_schema(struct: type[Part]) -> Schema:
    """Return the schema of a struct with all its fields."""
    descriptions = field_descriptions(struct)
    schema: Schema = {"description": struct_description(struct), "type": "object"}
    properties: Schema = {}
    required: list[str] = []
    for field in msgspec.structs.fields(struct):
        markers, _ = unwrap(field.type)
        properties[field.encode_name] = _property(field, markers, descriptions.get(field.name, ""))
        if REQUIRED in markers:
            required.append(field.encode_name)
    if required:
        schema["required"] = required
    schema["properties"] = properties
    struct_markers: tuple[Any, ...] = getattr(struct, "MARKERS", ())
    for marker in struct_markers:
        if isinstance(marker, Keyword):
            schema |= marker.keywords()
    rules = [marker.as_validation() for marker in struct_markers if isinstance(marker, Rule)]
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def _property(field: msgspec.structs.FieldInfo, markers: list[Any], description: str) -> Schema:
    schema = type_schema(field.type)
    paragraphs = [description or schema.get("description", "")]
    default = msgspec.to_builtins(field.default) if DEFAULTED in markers else None
    facts = [f"Default: {_spell(default)}."] if default not in (None, "") else []
    facts += [text.format(schema[name]) for name, text in _BOUNDS.items() if name in schema]
    paragraphs += [" ".join(facts)] if facts else []
    paragraphs += [reflow(marker.note) for marker in markers if isinstance(marker, Immutable)]
    rules = [
        marker.as_validation(field.encode_name)
        for marker in markers
        if isinstance(marker, Immutable) and marker.in_schema
    ]
    if rules:
        schema["x-kubernetes-validations"] = [*schema.get("x-kubernetes-validations", ()), *rules]
    described: Schema = {"description": "\n\n".join(paragraphs)}
    if default is not None:
        described["default"] = default
    return schema | described if "description" in schema else described | schema


def _spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --------------------------------------------------------------------------------------------- definitions
def crd(kind: type[Kind]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    resource, definition = kind.RESOURCE, kind.CRD
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "categories": [CATEGORY],
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    subresources: dict[str, Any] = {"status": {}}
    if definition.scalable:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    parts = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [column.as_printer_column() for column in definition.columns],
                    "subresources": subresources,
                    "schema": {
                        "openAPIV3Schema": {
                            "description": struct_description(kind),
                            "type": "object",
                            "properties": {
                                "apiVersion": {"description": _API_VERSION, "type": "string"},
                                "kind": {"description": _KIND, "type": "string"},
                                "metadata": {"type": "object"},
                                "spec": type_schema(parts["spec"]),
                                "status": _status_schema(parts["status"]),
                            },
                        },
                    },
                },
            ],
        },
    }


def _status_schema(hint: Any) -> Schema:
    """Return the schema of a status, by default that of an object which no operator has seen."""
    schema = type_schema(hint)
    return {**schema, "default": {**_UNOBSERVED, **dict.fromkeys(schema.get("required", ()), "")}}


def all_crds() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of all kinds, sorted by name."""
    return sorted((crd(kind) for kind in KINDS), key=lambda item: str(item["metadata"]["name"]))


# ---------------------------------------------------------------------------------------------------- YAML
class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that the files can be read."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def to_yaml(document: dict[str, Any]) -> str:
    """Return one document as block-style YAML, keys in the order they have."""
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )


def render_crds() -> dict[str, str]:
    """Return the definitions, each as the content of a file, by file name."""
    return {
        f"{document['spec']['group']}_{document['spec']['names']['plural']}.yaml": HEADER + to_yaml(document)
        for document in all_crds()
    }


def render_templates() -> dict[str, str]:
    """Return the content of each file of the CRD chart's templates folder, by file name."""
    crds = render_crds().items()
    return {name: text.replace("\nspec:\n", f"\n{CHART_LINE}spec:\n", 1) for name, text in crds}


# -------------------------------------------------------------------------------------------- command line
def write_files(folder: Path) -> None:
    """Make the files in a folder those of `render_templates`, and remove what is no longer generated."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = render_templates()
    for path in _generated(folder):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


def stale_files(folder: Path) -> list[str]:
    """Return the names of files in a folder that are missing, outdated or no longer generated."""
    wanted = render_templates()
    present = {path.name: path.read_text(encoding="utf-8") for path in _generated(folder)}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def _generated(folder: Path) -> list[Path]:
    return list(folder.glob(f"{wellknown.GROUP}_*.yaml"))


def main(arguments: list[str] | None = None) -> int:
    """Write, check or print the CRDs."""
    parser = argparse.ArgumentParser(prog="python -m slurm_operator.api.schema", description=main.__doc__)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", metavar="DIR", type=Path, help="write one file per kind into DIR")
    action.add_argument("--check", metavar="DIR", type=Path, help="fail when the files in DIR are not these")
    options = parser.parse_args(arguments)
    if options.write:
        write_files(options.write)
        return 0
    if options.check:
        stale = stale_files(options.check)
        for name in stale:
            sys.stderr.write(f"{options.check / name} is stale: run this command again with --write\n")
        return 1 if stale else 0
    sys.stdout.write("".join(render_crds().values()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
