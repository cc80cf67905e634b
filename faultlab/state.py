"""What is compared at the end of a run.

Removed from the objects: what kube-apiserver counts and dates (resourceVersion, managedFields, generation,
times), what names this run (its namespace, UIDs, generated names), what is secret (of each value of a Secret
a hash stays), and where the scheduler put a pod. A status that is behind its object's generation says so.
Whatever still differs between two runs without any fault is no state either: `unstable` finds it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from faultlab.writes import stable_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Json = dict[str, Any]

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The nodes of the lab; which of them a pod gets is the scheduler's choice.
_NODE: Final = re.compile(r"\blab-\d+\b")
_METADATA: Final = frozenset(
    {"uid", "resourceVersion", "generation", "managedFields", "creationTimestamp", "selfLink", "generateName"}
)
_POD_SPEC: Final = frozenset({"nodeName"})
_POD_STATUS: Final = frozenset({"hostIP", "hostIPs", "podIP", "podIPs", "observedGeneration"})
_SERVICE: Final = frozenset({"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort"})
# A JSON Web Token has the time in it, and so is never the same twice.
_TOKEN: Final = b"eyJ"
_MISSING: Final = "(missing)"
# What counts changes, and what tells of the last one: they differ where something was done and undone.
_HISTORY: Final = re.compile(
    r"^(ControllerRevision|ReplicaSet)/|\.deployment\.kubernetes\.io/revision$|\.status\.collisionCount$"
    r"|\.status\.conditions\.[^.]+\.(reason|message)$"
)
_LONGEST: Final = 160


def normalise(objects: Iterable[Json], namespace: str, ignored: Iterable[str] = ()) -> dict[str, Any]:
    """Return the objects of a namespace by kind and name, without what differs from run to run."""
    listed = [*objects]
    names = {item["metadata"]["uid"]: _title(item) for item in listed}
    result: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for item in sorted(listed, key=_order):
        title = _title(item)
        seen[title] += 1
        key = title if seen[title] == 1 else f"{title} ({seen[title]})"
        result[key] = _replace(_object(item, namespace), namespace, names)
    for path in ignored:
        _drop(result, path)
    return result


def normalise_slurm(snapshot: Json, objects: Iterable[Json], namespace: str) -> Json:
    """Return the state of Slurm without what names this run."""
    names = {item["metadata"]["uid"]: _title(item) for item in objects}
    replaced: Json = _replace(snapshot, namespace, names)
    return replaced


def _order(item: Json) -> tuple[str, int, str, str]:
    """Return a key that does not depend on hashes in names, unless nothing else tells objects apart."""
    meta = item["metadata"]
    return (_title(item), item.get("revision") or 0, meta.get("creationTimestamp") or "", meta["name"])


def _title(item: Json) -> str:
    return f"{item['kind']}/{stable_name(item['metadata']['name'])}"


def _object(item: Json, namespace: str) -> Json:
    meta = {key: value for key, value in item["metadata"].items() if key not in _METADATA}
    meta["name"] = stable_name(meta["name"])
    if "deletionTimestamp" in meta:
        meta["deletionTimestamp"] = "set"
    body = {**item, "metadata": meta}
    status = dict(body.get("status") or {})
    if "observedGeneration" in status:
        behind = status["observedGeneration"] != item["metadata"].get("generation")
        status["observedGeneration"] = "behind" if behind else "current"
    if item["kind"] == "Pod":
        body["spec"] = {key: value for key, value in item["spec"].items() if key not in _POD_SPEC}
        status = {key: value for key, value in status.items() if key not in _POD_STATUS}
    elif item["kind"] == "Service":
        body["spec"] = {key: value for key, value in item["spec"].items() if key not in _SERVICE}
        body["spec"]["ports"] = [
            {key: value for key, value in port.items() if key not in _SERVICE}
            for port in body["spec"].get("ports", ())
        ]
    elif item["kind"] == "Secret":
        body["data"] = {
            name: _fingerprint(data, namespace) for name, data in (item.get("data") or {}).items()
        }
    if "conditions" in status:
        # A set with a key; in which order it is written depends on what happened first.
        status["conditions"] = {
            one["type"]: {key: value for key, value in one.items() if key != "observedGeneration"}
            for one in status["conditions"]
        }
    if status:
        body["status"] = status
    return body


def _fingerprint(data: str, namespace: str) -> str:
    """Return what a value of a Secret is compared by, and from which it cannot be guessed."""
    content = base64.b64decode(data)
    if content.startswith(_TOKEN):
        return "a token"
    return hashlib.sha256(content.replace(namespace.encode(), b"NAMESPACE")).hexdigest()[:12]


def _replace(value: Any, namespace: str, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _replace(one, namespace, names) for key, one in value.items() if key != "resourceVersion"
        }
    if isinstance(value, list):
        return [_replace(one, namespace, names) for one in value]
    if isinstance(value, str):
        if value in names:
            return f"UID of {names[value]}"
        value = _UID.sub(lambda found: f"UID of {names.get(found[0], 'another object')}", value)
        return _NODE.sub("NODE", _TIME.sub("TIME", value.replace(namespace, "NAMESPACE")))
    return value


def _drop(objects: dict[str, Any], path: str) -> None:
    r"""Remove a path such as `Pod/*.spec.hostname`; a dot in a key is written as `\.`."""
    title, *keys = (part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", path))
    pattern = re.compile(re.escape(title).replace(r"\*", ".*"))
    for name in [*objects]:
        if not pattern.fullmatch(name):
            continue
        if not keys:
            del objects[name]
            continue
        value = objects[name]
        for key in keys[:-1]:
            value = value.get(key, {}) if isinstance(value, dict) else {}
        if isinstance(value, dict):
            value.pop(keys[-1], None)


def differences(expected: Any, found: Any, path: str = "") -> dict[str, str]:
    """Return the paths at which two states differ, each with both values in words."""
    if isinstance(expected, dict) and isinstance(found, dict):
        result: dict[str, str] = {}
        for key in {**expected, **found}:
            where = f"{path}.{key}" if path else str(key)
            result |= differences(expected.get(key, _MISSING), found.get(key, _MISSING), where)
        return result
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        result = {}
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            result |= differences(one, other, f"{path}[{index}]")
        return result
    return {} if expected == found else {path: f"expected {_short(expected)}, found {_short(found)}"}


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def unstable(one: Any, other: Any) -> frozenset[str]:
    """Return the paths that differ between two runs without a fault, and so are not compared."""
    return frozenset(differences(one, other))


def compare(expected: Any, found: Any, ignored: frozenset[str], *, history: bool = True) -> dict[str, str]:
    """Return the differences, but those at ignored paths or below them, and without history if so asked."""
    return {
        path: text
        for path, text in differences(expected, found).items()
        if not any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in ignored)
        and (history or not _HISTORY.search(path))
    }
