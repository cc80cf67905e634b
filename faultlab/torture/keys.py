"""The key of the Slurm daemons, rotated step by step, as docs/guides/keys.md says.

A step is taken only when every daemon was started after the step before: until then some do not know the new
key.
"""

from __future__ import annotations

import base64
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from faultlab.torture.stage import Postponed
from scripts.demo_cluster import RELEASE

if TYPE_CHECKING:
    from faultlab.torture.stage import Stage

JWT, SLURM = "slurm-auth-jwt", "slurm-auth-slurm"
_DAEMONS: Final = "app.kubernetes.io/name in (slurmctld,slurmdbd,slurmrestd,slurmd,login)"


@dataclass(frozen=True)
class Key:
    """A key with its name in the set."""

    kid: str
    value: bytes


def key_set(default: Key, *others: Key) -> bytes:
    """Return a slurm.jwks: keys that are all accepted, of which the first one signs."""
    entries = [
        {"alg": "HS256", "kty": "oct", "kid": key.kid, "k": _text(key.value)}
        | ({"use": "default"} if key is default else {})
        for key in (default, *others)
    ]
    return json.dumps({"keys": entries}).encode()


def older_than(pods: dict[str, dict[str, Any]], moment: str) -> list[str]:
    """Return the pods that were created before a time (RFC 3339), or that are ending."""
    return sorted(
        name
        for name, pod in pods.items()
        if pod["metadata"]["creationTimestamp"] <= moment or "deletionTimestamp" in pod["metadata"]
    )


class Rotation:
    """The rotation of the Slurm key: three steps, and then the next one begins."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._step = 0
        self._number = 0
        self._moment = ""
        self._old: Key | None = None
        self._new = Key("", b"")

    def step(self) -> str:
        """Take the next step, and return what it was; Postponed names the pods that have the keys before."""
        cluster = self._stage.cluster
        if waiting := older_than(self._stage.pods(_DAEMONS), self._moment):
            raise Postponed(f"the step before is not over: {', '.join(waiting)}")
        if self._old is None:
            secret = cluster.get("secret", SLURM)
            self._old = Key("key-0", base64.b64decode(secret["data"]["slurm.key"]))
        if self._step == 0:
            self._number += 1
            self._new = Key(f"key-{self._number}", os.urandom(64))
            self._write(key_set(self._old, self._new))
            ref = f"slurmKey.secretRef.name={SLURM},slurmKey.secretRef.key=slurm.jwks"
            cluster.install(RELEASE, "slurm", cluster.namespace, "--reuse-values", "--set", ref)
            done = f"1: both keys are accepted, {self._old.kid} signs"
        elif self._step == 1:
            self._write(key_set(self._new, self._old))
            done = f"2: {self._new.kid} signs"
        else:
            self._write(key_set(self._new))
            self._old = self._new
            done = f"3: only {self._new.kid} is accepted"
        self._step = (self._step + 1) % 3
        return done

    def _write(self, value: bytes) -> None:
        write_secret(self._stage, SLURM, "slurm.jwks", value)
        self._moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_secret(stage: Stage, secret: str, key: str, value: bytes) -> None:
    """Put a value into a Secret."""
    stage.cluster.patch("secret", secret, {"data": {key: _text(value)}})


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
