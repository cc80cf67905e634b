"""The scenario files: what is there, what a person does, when it is over, and what is compared.

    about: one sentence
    base: another file, whose objects and setup come first
    fresh: true                 without that file's setup: the operator starts with all still to do
    objects: [manifests]        created in a new namespace before the operator starts; $NAMESPACE stands for
                                its name; owner references get the UIDs of the objects before them; one
                                that the base has as well is merged into it
    setup: [steps]              before the faults: nothing is counted there
    steps: [steps]              what the person does; every write from here on is a crash point
    end: [conditions]           when it is over
    ignore: [paths]             what is not compared, as in `Pod/*.spec.hostname`
    leases: true                Leases are crash points, too
    quiet: 12                   seconds without a write after which the reference run is at rest
    limit: 120                  seconds that each part may take at most
    flags: [words]              for the operator's command, beside those that the command line gives

Steps, one key each:

    create: manifest | patch: {kind, name, body, subresource} | delete: {kind, name, refused: true}
    evict: {pod, refused: true} | wait: condition | settle: seconds | pause: seconds
    job: {name, node} | end-job: name | slurm: {node, state, reason} | label-node: {node, labels}

Conditions:

    {kind, name, fields: {path: value}, set: [paths]} | {kind, name, gone: true} | {kind, count, labels}
    {node, state: [words], not: [words], set: [fields]} for a Slurm node | {node, gone: true}
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from faultlab.errors import ScenarioError

Json = dict[str, Any]

FOLDER: Final = Path(__file__).with_name("scenarios")
_STEPS: Final = frozenset(
    {"create", "patch", "delete", "evict", "wait", "settle", "pause", "job", "end-job", "slurm"}
)
_KEYS: Final = frozenset(
    {
        "about",
        "base",
        "fresh",
        "objects",
        "setup",
        "steps",
        "end",
        "ignore",
        "leases",
        "quiet",
        "limit",
        "flags",
    }
)
_FILTER: Final = re.compile(r"(?P<key>[^\[]+)\[(?P<by>\w+)=(?P<value>[^\]]+)\]")


@dataclass(frozen=True)
class Scenario:
    """One scenario."""

    name: str
    source: str
    """How it is named on the command line."""
    about: str
    objects: list[Json] = field(default_factory=list)
    setup: list[Json] = field(default_factory=list)
    steps: list[Json] = field(default_factory=list)
    end: list[Json] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)
    leases: bool = False
    quiet: float = 8.0
    limit: float = 120.0
    flags: list[str] = field(default_factory=list)


def load(name: str | Path) -> Scenario:
    """Read a scenario from a file, or by the name of one that comes with the lab."""
    path = Path(name)
    if not path.is_file():
        path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise ScenarioError(f"there is no scenario {name}: those of the lab are {', '.join(names())}")
    content = _read(path)
    for key in ("steps", "end", "about"):
        if not content.get(key):
            raise ScenarioError(f"{path}: {key} is missing")
    if base := content.pop("base", None):
        below = _read(path.with_name(base))
        for key in ("ignore",) if content.pop("fresh", False) else ("setup", "ignore"):
            content[key] = [*below.get(key, ()), *content.get(key, ())]
        content["objects"] = _merged(below.get("objects", []), content.get("objects", []))
    for step in [*content.get("setup", ()), *content["steps"]]:
        if not isinstance(step, dict) or len(step) != 1 or step.keys() - _STEPS:
            raise ScenarioError(f"{path}: {step!r} is no step: a step is one of {', '.join(sorted(_STEPS))}")
    return Scenario(path.stem, str(name), **content)


def _merged(below: list[Json], above: list[Json]) -> list[Json]:
    objects = {(item["kind"], item["metadata"]["name"]): item for item in below}
    for item in above:
        key = (item["kind"], item["metadata"]["name"])
        objects[key] = _over(objects.get(key, {}), item)
    return [*objects.values()]


def _over(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{name: _over(below.get(name), value) for name, value in above.items()}}


def names() -> list[str]:
    """Return the names of the scenarios that come with the lab."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if not path.stem.startswith("base"))


def _read(path: Path) -> Json:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ScenarioError(f"{path}: {error}") from None
    if not isinstance(content, dict) or (unknown := content.keys() - _KEYS):
        raise ScenarioError(
            f"{path}: unknown keys {', '.join(sorted(unknown))}" if content else f"{path}: empty"
        )
    return content


def in_namespace(value: Any, namespace: str) -> Any:
    """Return an object of a scenario with the name of the run's namespace in it."""
    return json.loads(json.dumps(value).replace("$NAMESPACE", namespace))


def value_at(item: Any, path: str) -> Any:
    r"""Return the value at a path such as `status.conditions[type=Ready].status`; None if there is none.

    A dot in a key is written as `\.`.
    """
    for part in (one.replace("\\.", ".") for one in re.split(r"(?<!\\)\.", path)):
        found = _FILTER.fullmatch(part)
        if found is None:
            item = item.get(part) if isinstance(item, dict) else None
            continue
        entries = item.get(found["key"]) if isinstance(item, dict) else None
        item = next((one for one in entries or () if str(one.get(found["by"])) == found["value"]), None)
    return item


def unmet(item: Json | None, condition: Json) -> str:
    """Return why an object does not meet a condition; empty if it does."""
    title = f"{condition['kind']} {condition['name']}"
    if condition.get("gone"):
        return "" if item is None else f"{title} still exists"
    if item is None:
        return f"there is no {title}"
    for path, wanted in condition.get("fields", {}).items():
        if (found := value_at(item, path)) != wanted:
            return f"{title}: {path} is {found!r}, not {wanted!r}"
    for path in condition.get("set", ()):
        if value_at(item, path) is None:
            return f"{title}: {path} is not set"
    return ""
