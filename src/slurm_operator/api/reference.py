"""Write the API reference for users, `docs/reference/api.md`, from the same structs as the CRDs.

python -m slurm_operator.api.reference --write docs/reference/api.md
python -m slurm_operator.api.reference --check docs/reference/api.md
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from slurm_operator.api import KINDS, Kind
from slurm_operator.api.descriptions import struct_description
from slurm_operator.api.persistence import Quantity
from slurm_operator.api.schema import crd, struct_schema, unwrap
from slurm_operator.kube.models.meta import ObjectMeta, Part

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTRODUCTION = """\
<!-- Generated from src/slurm_operator/api by `python -m slurm_operator.api.reference`; do not edit. -->
# API reference

Everything that can be written in a manifest. The same text is in the cluster: `kubectl explain
nodesets.spec`. Every reference is to an object in the same namespace. `kubectl get slurm` lists the objects
of all kinds.
"""


def render_reference() -> str:
    """Return the whole page."""
    users = Counter(part for kind in KINDS for part in set(_parts(kind)))
    shared = [part for part, count in users.items() if count > 1]
    sections = [_INTRODUCTION, _contents()]
    for kind in KINDS:
        sections.append(_kind_section(kind))
        sections += [_struct_section(part) for part in dict.fromkeys(_parts(kind)) if part not in shared]
    sections.append("## Shared types\n")
    sections += [_struct_section(part) for part in sorted(shared, key=lambda part: part.__name__)]
    return "\n".join(sections)


def _parts(struct: type[Part]) -> Iterator[type[Part]]:
    """Yield the structs below one, in the order in which a reader meets them."""
    for field in msgspec.structs.fields(struct):
        part = _item_type(unwrap(field.type)[1])
        if isinstance(part, type) and issubclass(part, Part) and part is not ObjectMeta:
            yield part
            yield from _parts(part)


def _item_type(hint: Any) -> Any:
    """Return what a list is a list of; anything else is its own item."""
    return unwrap(get_args(hint)[0])[1] if get_origin(hint) is tuple else hint


# --------------------------------------------------------------------------------------------------- sections
def _contents() -> str:
    return "\n".join(f"- [{kind.__name__}](#{kind.__name__.lower()})" for kind in KINDS) + "\n"


def _kind_section(kind: type[Kind]) -> str:
    spec = crd(kind)["spec"]
    version = spec["versions"][0]
    columns = ", ".join(
        f"`{column['name']}`" + (" (wide)" if column.get("priority") else "")
        for column in version["additionalPrinterColumns"]
    )
    facts = [f"- `apiVersion: {kind.RESOURCE.api_version}`, `kind: {kind.RESOURCE.kind}`"]
    if "shortNames" in spec["names"]:
        facts.append("- Short names: " + ", ".join(f"`{name}`" for name in spec["names"]["shortNames"]))
    facts.append(f"- Columns of `kubectl get`: {columns}")
    if "scale" in version["subresources"]:
        facts.append(
            f"- Scalable: `kubectl scale {spec['names']['singular']}`, HorizontalPodAutoscaler, KEDA"
        )
    lines = [f"## {kind.__name__}", "", _markdown(struct_description(kind)), "", *facts, ""]
    return "\n".join(lines)


def _struct_section(struct: type[Part]) -> str:
    schema = struct_schema(struct)
    lines = [f"### {struct.__name__}", "", _markdown(schema["description"]), ""]
    lines += [f"- Rule: {rule['message']}." for rule in schema.get("x-kubernetes-validations", ())]
    lines += [""] if "x-kubernetes-validations" in schema else []
    for field in msgspec.structs.fields(struct):
        about = schema["properties"][field.encode_name]
        notes = [_type_name(field.type, about)]
        notes += ["required"] if field.encode_name in schema.get("required", ()) else []
        notes += [f"{word} `{about[word]}`" for word in ("minimum", "maximum", "pattern") if word in about]
        notes += ["one of " + ", ".join(f"`{value}`" for value in about["enum"])] if "enum" in about else []
        lines.append(f"- **`{field.encode_name}`** ({', '.join(notes)})")
        lines += ["", _indent(_markdown(about["description"])), ""]
    return "\n".join(lines)


def _type_name(hint: Any, about: dict[str, Any]) -> str:
    item = _item_type(unwrap(hint)[1])
    if isinstance(item, type) and issubclass(item, Part):
        name = f"[{item.__name__}](#{item.__name__.lower()})"
    elif "x-kubernetes-int-or-string" in about:
        name = "integer or string"
    elif "additionalProperties" in about:
        value = get_args(unwrap(hint)[1])[1]
        plain = f"{_type_name(value, about['additionalProperties'])}s"
        name = f"map of {'quantities' if value == Quantity else plain}"
    else:
        name = about.get("items", about)["type"]
    return f"list of {name}" if about.get("type") == "array" else name


# --------------------------------------------------------------------------------------------------- Markdown
def _markdown(text: str) -> str:
    """Turn the indented examples of a description into code blocks."""
    return re.sub(
        r"(?:^|\n\n)((?: .*(?:\n|$)|\n(?= ))+)",
        lambda block: f"\n\n```yaml\n{_dedent(block[1])}\n```\n",
        text,
    ).strip()


def _dedent(block: str) -> str:
    return "\n".join(line.removeprefix("  ") for line in block.rstrip().split("\n"))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


# ----------------------------------------------------------------------------------------------- command line
def main(arguments: list[str] | None = None) -> int:
    """Write or check the API reference."""
    parser = argparse.ArgumentParser(prog="python -m slurm_operator.api.reference", description=main.__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", metavar="FILE", type=Path, help="write the page to FILE")
    action.add_argument("--check", metavar="FILE", type=Path, help="fail when FILE is not this page")
    options = parser.parse_args(arguments)
    page = render_reference()
    if options.write:
        options.write.write_text(page, encoding="utf-8")
        return 0
    if not options.check.is_file() or options.check.read_text(encoding="utf-8") != page:
        sys.stderr.write(f"{options.check} is stale: run this command again with --write\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
