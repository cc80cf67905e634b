"""What a request writes, and how writes are named, numbered and sampled.

A write is named by what it does, as in `PATCH pods/status compute-0`, so that it is found again in another
run, in which concurrent writes may come in another order. `#2` behind it is the second one of that
name. Requests that change nothing (reviews), Events and, unless asked for, Leases are recorded without a
number: no crash is planned at them.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from ClusterShell.NodeSet import NodeSet  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KUBERNETES: Final = "kubernetes"
SLURM: Final = "slurm"
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_REVIEWS: Final = re.compile(r"(reviews|tokenrequests)$")
_NODE_NAME: Final = re.compile(r"NodeName=(\S+)")
_UNNUMBERED: Final = frozenset({"events", "leases"})
# A number, or the numbers of a Slurm hostlist: how many nodes one request is about is a matter of moments.
_NUMBER: Final = re.compile(r"\[[\d,-]+\]|\d+")
# Hashes in generated names, in the alphabet that Kubernetes uses for them, or with digits among the letters.
_GENERATED: Final = re.compile(
    r"(?<=-)(?=[a-z0-9]*\d)[a-z0-9]{5,}$|(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5,10}$"
)


@dataclass(frozen=True)
class Target:
    """What a request of the Kubernetes API is about."""

    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    group: str = ""

    @property
    def kind(self) -> str:
        """The resource with its subresource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass
class Write:
    """One write of the operator, as the proxy saw it."""

    number: int
    """Counted from 1 over both servers; 0 for one that is not counted."""
    server: str
    method: str
    kind: str
    name: str
    occurrence: int
    body_hash: str
    at: float
    """Seconds since the start of the run."""
    life: int
    """Which process of the operator sent it, counted from 1."""
    counted: bool
    """Whether it was sent after the scenario's own beginning."""
    status: int = 0
    """The server's answer; 0 when the request was never sent on."""
    changed: bool = False
    """Whether the server accepted it and something is different since; a repeated apply changes nothing."""

    @property
    def signature(self) -> str:
        """The name under which it is found again in another run."""
        return f"{self.method} {self.kind} {self.name}".rstrip()

    @property
    def point(self) -> str:
        """The signature with its occurrence."""
        return f"{self.signature} #{self.occurrence}"

    @property
    def family(self) -> str:
        """The signature without numbers, the same for all workers of a NodeSet."""
        return _NUMBER.sub("N", self.signature)

    @property
    def follows_placement(self) -> bool:
        """Whether it writes only a Slurm comment: it names the Kubernetes node that the scheduler chose."""
        return self.server == SLURM and self.name.endswith(" comment")

    @property
    def made_or_deleted(self) -> list[str]:
        """What it creates or deletes, by signature; of Slurm the records of nodes, each by itself."""
        if self.method not in ("POST", "DELETE"):
            return []
        if self.server == KUBERNETES:
            return [self.signature]
        if self.kind == "slurm:new/node" and (named := _NODE_NAME.match(self.name)):
            return [f"POST slurm:node {name}" for name in NodeSet(named[1])]
        return [self.signature] if self.method == "DELETE" and self.kind == "slurm:node" else []

    @property
    def accepted(self) -> bool:
        """Whether the server did what it asked for."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the range of HTTP success

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "number": self.number,
            "server": self.server,
            "write": self.point,
            "body": self.body_hash,
            "at": round(self.at, 3),
            "process": self.life,
            "status": self.status,
            "changed": self.changed,
        }


def kubernetes_target(path: str) -> Target:
    """Read the path of a request of the Kubernetes API."""
    parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:  # noqa: PLR2004 - api, v1 and a resource
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:  # noqa: PLR2004 - apis, group, version and a resource
        group, rest = parts[1], parts[3:]
    else:
        return Target("/" + "/".join(parts))
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:  # noqa: PLR2004 - a namespace and a resource in it
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    return Target(resource, namespace, name, subresource, group)


def slurm_target(method: str, path: str, body: bytes) -> Target:
    """Read a request to slurmrestd: the list it changes, the names, and the state that it asks for."""
    parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
    rest = [*parts[2:], ""] if len(parts) > 2 else [*parts, ""]  # noqa: PLR2004 - slurm and a version
    what, name = (f"{rest[0]}/{rest[1]}", rest[2] if len(rest) > 2 else "") if rest[0] == "new" else rest[:2]  # noqa: PLR2004
    if method == "POST":
        content = _json(body)
        named = content.get("name", content.get("node_conf", ""))
        words = [",".join(named) if isinstance(named, list) else str(named)]
        state = content.get("state")
        words += [*state] if isinstance(state, list) else []
        words += [key for key in ("comment", "features", "topology_str") if key in content]
        name = " ".join(words)
    return Target(f"slurm:{what}", name=name)


def kubernetes_name(target: Target, body: bytes) -> str:
    """Return the name of the object that a request writes, also of one that it creates."""
    if target.name:
        return stable_name(target.name)
    metadata = _json(body).get("metadata", {})
    return stable_name(str(metadata.get("name") or f"{metadata.get('generateName', '')}…"))


def stable_name(name: str) -> str:
    """Replace the hash at the end of a generated name."""
    short = _GENERATED.sub("…", name)
    # A pod of a Deployment has the hash of its ReplicaSet before its own.
    return f"{_GENERATED.sub('', short[:-2]).removesuffix('-')}-…" if short.endswith("-…") else short


def is_numbered(target: Target, *, leases: bool) -> bool:
    """Return whether a write to this target may be crashed at."""
    if _REVIEWS.search(target.resource) or target.subresource == "token":
        return False
    return target.resource not in _UNNUMBERED or (leases and target.resource == "leases")


def body_hash(body: bytes, namespace: str) -> str:
    """Return a short hash of what is written, the same in any namespace."""
    plain = body.replace(namespace.encode(), b"NAMESPACE") if namespace else body
    return hashlib.sha256(plain).hexdigest()[:12]


def sample(writes: Sequence[Write], most: int) -> list[Write]:
    """Return at most so many writes of each family: the first, the last, and others evenly between."""
    families: dict[str, list[Write]] = {}
    for write in writes:
        families.setdefault(write.family, []).append(write)
    chosen = [write for family in families.values() for write in _spread(family, most)]
    return sorted(chosen, key=lambda write: write.number)


def _spread(writes: list[Write], most: int) -> Iterable[Write]:
    if most <= 0 or len(writes) <= most:
        return writes
    if most == 1:
        return writes[:1]
    return (writes[round(index * (len(writes) - 1) / (most - 1))] for index in range(most))


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
