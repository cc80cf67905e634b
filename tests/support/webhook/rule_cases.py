"""Every rule as a case: a good manifest, an edit, and the field that is refused or warned of.

The same table is validated by the pure functions, and by a real API server with the webhook. The sentences
are in the golden file (`tests.support.message_golden`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slurm_operator.api import KINDS, Kind
from slurm_operator.webhook.rules.admission import decode

_KINDS = {kind.RESOURCE.kind: kind for kind in KINDS}
V1BETA1 = "slinky.slurm.net/v1beta1"
DROP = object()


def key(name: str = "secret", data_key: str = "k") -> dict[str, str]:
    """Return a reference to a key of a Secret or ConfigMap."""
    return {"name": name, "key": data_key}


def config_map(name: str, *files: str) -> dict[str, Any]:
    """Return a ConfigMap with some files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": dict.fromkeys(files, "#"),
    }


def claim(name: str, mode: str) -> dict[str, Any]:
    """Return a claim for a volume."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    }


MEMORY = {"resources": {"requests": {"memory": "1Gi"}}}
IMAGE = {"image": "any", **MEMORY}


def worker(controller: str, name: str = "worker") -> dict[str, Any]:
    """Return the pod of a worker of a Controller."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "slurmd", "slinky.slurm.net/cluster": controller},
        },
        "spec": {"containers": [{"name": "slurmd", **IMAGE}]},
    }


GOOD: dict[str, dict[str, Any]] = {
    "Controller": {"slurmKeyRef": key(), "jwtKeyRef": key(), "slurmctld": IMAGE, "logfile": IMAGE},
    "Accounting": {
        "slurmKeyRef": key(),
        "jwtKeyRef": key(),
        "slurmdbd": IMAGE,
        "storageConfig": {"host": "db", "username": "slurm", "passwordKeyRef": key()},
    },
    "NodeSet": {"controllerRef": {"name": "c"}, "slurmd": IMAGE, "logfile": IMAGE},
    "LoginSet": {"controllerRef": {"name": "c"}, "sssdConfRef": key(), "login": IMAGE, "initconf": IMAGE},
    "RestApi": {"controllerRef": {"name": "c"}, "slurmrestd": IMAGE},
    "Token": {"username": "alice", "jwtKeyRef": key()},
    "Cluster": {"server": "http://r:6820", "token": {"secretRef": "t"}},
}


def manifest(kind: str, edits: dict[str, Any] | None = None, name: str = "x") -> dict[str, Any]:
    """Return a good manifest with the values at some dotted paths of its spec replaced, or dropped."""
    spec = copy.deepcopy(GOOD[kind])
    for path, value in (edits or {}).items():
        *parents, last = path.split(".")
        place = spec
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is DROP:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    version = "slinky.slurm.net/v1alpha1" if kind == "Cluster" else V1BETA1
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def read(body: dict[str, Any], namespace: str = "slurm") -> Kind:
    """Return a manifest as the struct that a rule validates."""
    body = body | {"metadata": body["metadata"] | {"namespace": namespace, "uid": "u"}}
    return decode(_KINDS[body["kind"]], msgspec.json.encode(body))


@dataclass(frozen=True)
class Case:
    """One edit: refused or warned of at `path`, or, without one, admitted in silence."""

    kind: str
    edits: dict[str, Any]
    path: str = ""
    named: str = ""
    """What the message must name: the value, another field, or a parameter of Slurm."""
    before: dict[str, Any] | None = None
    """For an update: the edits of the object that is stored."""
    name: str = "x"
    others: tuple[dict[str, Any], ...] = field(default=())
    """Objects that exist besides."""
    crd: str = ""
    """What the message of the CRD names, where it refuses the object before the webhook is asked."""

    @property
    def new(self) -> dict[str, Any]:
        return manifest(self.kind, self.edits, self.name)

    @property
    def old(self) -> dict[str, Any] | None:
        return None if self.before is None else manifest(self.kind, self.before, self.name)

    def __str__(self) -> str:
        change = "update" if self.before is not None else "create"
        edits = ",".join(self.edits) or self.name[:12]
        return f"{self.kind}-{change}-{edits}-{self.named or 'good'}"[:90].replace(" ", "_")


def twice(name: str) -> list[dict[str, Any]]:
    return [{"name": name, **IMAGE}, {"name": name, **IMAGE}]


def template(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def mount(name: str, path: str = "/data") -> dict[str, Any]:
    return {**IMAGE, "volumeMounts": [{"name": name, "mountPath": path}]}


HA = {"ha": {"enabled": True}, "persistence": {"enabled": True, "existingClaim": "state"}}
MAX = "updateStrategy.rollingUpdate.maxUnavailable"
WINDOW = {
    "updateStrategy": {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": "2030-01-01T04:00:00Z", "duration": "1h"},
    }
}
EXTERNAL = {"external": True, "externalConfig": {"host": "h", "port": 6817}}
TOO_LONG = "n" * 62
