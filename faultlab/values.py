"""The properties of a CRD's schema, and another valid value for each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
Path = tuple[str, ...]

# What can be said in an object whose schema is left open, by what it holds; the first that fits the path.
_OPEN: Final[tuple[tuple[str, Any], ...]] = (
    ("template.spec", {"terminationGracePeriodSeconds": 77}),
    ("service.spec", {"sessionAffinity": "ClientIP"}),
    ("resources", {"requests": {"cpu": "11m"}}),
    ("selector", {"matchLabels": {"faultlab": "value"}}),
    (
        "volumeClaimTemplates",
        {
            "metadata": {"name": "faultlab"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    ),
    ("", {"env": [{"name": "FAULTLAB", "value": "value"}]}),
)
_WORDS: Final = ("faultlab", "faultlab2")
# Values for texts whose form is restricted, tried in this order.
_FORMS: Final = (
    "7m",
    "1Gi",
    "2099-01-01T00:00:00Z",
    "50%",
    "http://faultlab.invalid:6820",
    "a=b",
    "User=faultlab",
)


@dataclass(frozen=True)
class Property:
    """One property of a kind."""

    kind: str
    path: Path
    schema: Json
    needed: tuple[tuple[Path, Json], ...] = ()
    """What the objects around it must have as well, by path."""

    def patch(self, spec: Json, value: Any) -> Json:
        """Return a merge patch that sets it, and beside it what is required and missing in a spec."""
        result = nested(self.path, value)
        for path, schema in self.needed:
            if value_of(spec, path) is None and path != self.path[: len(path)]:
                _put(result["spec"], path, other_values(schema, path, None)[0])
        return result

    def __str__(self) -> str:
        return f"{self.kind}.spec.{'.'.join(self.path)}"


def properties(
    kind: str, schema: Json, path: Path = (), needed: tuple[tuple[Path, Json], ...] = ()
) -> Iterator[Property]:
    """Yield every property of a schema that has no properties of its own."""
    inner = schema.get("properties")
    if inner:
        needed = (*needed, *(((*path, name), inner[name]) for name in schema.get("required", ())))
        for name, below in inner.items():
            yield from properties(kind, below, (*path, name), needed)
    elif path:
        yield Property(kind, path, schema, needed)


def other_values(schema: Json, path: Path, current: Any) -> list[Any]:  # noqa: PLR0911 - one for each type
    """Return values to try in the place of the current one; the first one that is admitted is used."""
    if choices := schema.get("enum"):
        return [choice for choice in choices if choice != current]
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return [value for value in ("50%", 1, 2) if value != current]
    if kind == "boolean":
        return [not current]
    if kind in ("integer", "number"):
        least, most = schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)
        start = current if isinstance(current, int) else int(least)
        return [
            value for value in (start + 1, int(least), 30001) if least <= value <= most and value != current
        ]
    if kind == "array":
        entries = other_values(schema.get("items", {}), path, None)
        return [[entry] for entry in entries]
    if kind == "object":
        return _objects(schema, path)
    texts = [word for word in (*_WORDS, *_FORMS) if word != current]
    longest = schema.get("maxLength", len("".join(texts)))
    return [text for text in texts if len(text) <= longest]


def _objects(schema: Json, path: Path) -> list[Any]:
    entries = schema.get("additionalProperties")
    if isinstance(entries, dict):
        return [{"faultlab": value} for value in other_values(entries, path, None)]
    if inner := schema.get("properties"):
        needed = schema.get("required") or [*inner][:1]
        return [{name: other_values(inner[name], (*path, name), None)[0] for name in needed}]
    dotted = ".".join(path)
    return [value for end, value in _OPEN if dotted.endswith(end)]


def value_of(spec: Any, path: Path) -> Any:
    """Return the value at a path, None if there is none."""
    for name in path:
        spec = spec.get(name) if isinstance(spec, dict) else None
    return spec


def _put(spec: Json, path: Path, value: Any) -> None:
    for name in path[:-1]:
        spec = spec.setdefault(name, {})
    spec[path[-1]] = value


def nested(path: Path, value: Any) -> Json:
    """Return a merge patch of a spec that sets one path."""
    for name in reversed(path):
        value = {name: value}
    return {"spec": value}


def restoring(spec: Json, path: Path, value: Any = None) -> Json:
    """Return a merge patch that restores a path as it is in a spec, also when part of it is missing there.

    A merge patch keeps what it does not name, so the names that the value has added are set to null.
    """
    for length in range(1, len(path) + 1):
        if value_of(spec, path[:length]) is None:
            return nested(path[:length], None)
    return nested(path, _without(value_of(spec, path), value))


def _without(before: Any, added: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(added, dict):
        return before
    return {**dict.fromkeys(added), **{name: _without(old, added.get(name)) for name, old in before.items()}}


def names_field(message: str, path: Path) -> bool:
    """Return whether a refusal names the field, or one beside or around it: `spec.ha`, `ha.enabled`."""
    around = (path[:end] for end in range(1, len(path) + 1))
    dotted = [".".join(part) for part in around]
    return any(f"spec.{part}" in message for part in dotted) or any(
        re.search(rf"\b{re.escape(part)}\.\w", message) for part in dotted[:-1]
    )
