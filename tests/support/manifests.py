"""The smallest good manifest of each kind, and edits of it."""

from __future__ import annotations

import copy
from typing import Any

V1BETA1 = "slinky.slurm.net/v1beta1"


def key(name: str = "secret") -> dict[str, str]:
    """Return a reference to a key of a Secret."""
    return {"name": name, "key": "k"}


def manifest(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest of a kind, named x."""
    version = "slinky.slurm.net/v1alpha1" if kind == "Cluster" else V1BETA1
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


GOOD: dict[str, dict[str, Any]] = {
    "Controller": {"slurmKeyRef": key(), "jwtKeyRef": key()},
    "Accounting": {
        "slurmKeyRef": key(),
        "jwtKeyRef": key(),
        "storageConfig": {"host": "db", "passwordKeyRef": key()},
    },
    "NodeSet": {"controllerRef": {"name": "c"}},
    "LoginSet": {"controllerRef": {"name": "c"}, "sssdConfRef": key()},
    "RestApi": {"controllerRef": {"name": "c"}},
    "Token": {"username": "alice", "jwtKeyRef": key()},
    "Cluster": {"server": "http://r:6820", "token": {"secretRef": "t"}},
}
DROP = object()


def edited(kind: str, edits: dict[str, Any]) -> dict[str, Any]:
    """Return a good manifest with the values at some dotted paths replaced, or dropped."""
    spec = copy.deepcopy(GOOD[kind])
    for path, value in edits.items():
        *parents, last = path.split(".")
        place = spec
        for name in parents:
            place = place.setdefault(name, {})
        if value is DROP:
            place.pop(last, None)
        else:
            place[last] = value
    return manifest(kind, spec)
