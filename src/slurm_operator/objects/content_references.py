"""The Secrets and ConfigMaps that custom resources name, and their content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_operator.objects.desired import Unbuildable, existing, missing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api.accounting import AccountingSpec
    from slurm_operator.api.controller import ControllerSpec
    from slurm_operator.api.shared import ConfigMapKeySelector, SecretKeySelector
    from slurm_operator.kube.models.kinds import ConfigMap, Secret


@dataclass(frozen=True, slots=True)
class References:
    """The names of the objects, in the namespace of the one that names them, whose content matters."""

    secrets: frozenset[str] = frozenset()
    config_maps: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """Those of the named objects that exist, by name. Who fills it must know; unknown is not absent."""

    secrets: Mapping[str, Secret] = field(default_factory=dict)
    config_maps: Mapping[str, ConfigMap] = field(default_factory=dict)

    def secret(self, name: str, where: str) -> Secret:
        """Return a Secret; `where` is the field that names it."""
        if not name:
            raise missing(where, "has no name; set the name of a Secret")
        return existing(self.secrets.get(name), where, "Secret", name)

    def secret_key(self, ref: SecretKeySelector | None, where: str) -> bytes:
        """Return the value of one key of a Secret."""
        if ref is None:
            raise missing(where, "is not set; name a Secret and a key in it")
        value = (self.secret(ref.name, where).data or {}).get(ref.key)
        if value is None:
            raise missing(where, f"Secret {ref.name!r} has no key {ref.key!r}; add it")
        return value

    def secret_checksum(self, ref: SecretKeySelector | None, where: str) -> str:
        """Return the hash of a Secret that must have the key; empty for an optional one that is not there."""
        try:
            self.secret_key(ref, where)
        except Unbuildable:
            if ref is None or not ref.optional:
                raise
            return ""
        return data_checksum(self.secret(ref.name, where).data if ref else None)

    def config_map(self, name: str, where: str) -> dict[str, bytes]:
        """Return the files of a ConfigMap, text and binary alike."""
        if not name:
            raise missing(where, "has no name; set the name of a ConfigMap")
        found = existing(self.config_maps.get(name), where, "ConfigMap", name)
        return {key: text.encode() for key, text in (found.data or {}).items()} | (found.binary_data or {})

    def config_map_key(self, ref: ConfigMapKeySelector, where: str) -> bytes:
        """Return the value of one key of a ConfigMap."""
        value = self.config_map(ref.name, where).get(ref.key)
        if value is None:
            raise missing(where, f"ConfigMap {ref.name!r} has no key {ref.key!r}; add it")
        return value


def jwt_field(spec: ControllerSpec | AccountingSpec) -> str:
    """Return the field that names the key of tokens, under the spelling that the user chose."""
    old = spec.jwt_key_ref is None and spec.jwt_hs256_key_ref is not None
    return "spec.jwtHs256KeyRef" if old else "spec.jwtKeyRef"


def checksum(*values: bytes) -> str:
    """Return the hash of a sequence of values, read as one; empty when there is none."""
    return hashlib.sha256(b"".join(values)).hexdigest() if values else ""


def data_checksum(data: Mapping[str, bytes] | None) -> str:
    """Return the hash of all values, in the order of their keys, as Slinky slurm-operator computes it."""
    return checksum(*(value for _, value in sorted((data or {}).items())))


def files_checksum(files: Mapping[str, bytes]) -> str:
    """Return a hash of names and contents, in which no content can pass for a name; empty for no files."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest() if files else ""
