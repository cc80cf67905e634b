"""Software bills of materials in CycloneDX form. Pure: the same lists give the same bytes."""

from __future__ import annotations

import json
import re
import urllib.parse
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubebox.slurm.packages import Package

SPEC_VERSION = "1.6"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# Any name will do, as long as it is the same for every release.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "slurm-operator.release")


@dataclass(frozen=True)
class Library:
    """A Python library that requirements pin, with the digests of the files it may come in."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pinned_libraries(requirements: str) -> list[Library]:
    """Return what a requirements file pins."""
    lines = requirements.replace("\\\n", " ").splitlines()
    return [
        Library(match[1], match[2], tuple(_HASH.findall(line)))
        for line in lines
        if (match := _PINNED.match(line.strip())) is not None
    ]


def package_component(package: Package) -> dict[str, Any]:
    """Return the component for a Debian package."""
    query = {"arch": package.architecture, "distro": f"debian-{package.suite}"}
    purl = f"pkg:deb/debian/{_quoted(package.name)}@{_quoted(package.version)}?{_query(query)}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
        "properties": [{"name": "debian:source", "value": package.source}],
    }


def library_component(library: Library) -> dict[str, Any]:
    """Return the component for a Python library; of several files that are allowed, none is named."""
    purl = f"pkg:pypi/{_quoted(library.name.lower().replace('_', '-'))}@{_quoted(library.version)}"
    hashes = [{"alg": "SHA-256", "content": digest} for digest in library.hashes]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": library.name,
        "version": library.version,
        "purl": purl,
        **({"hashes": hashes} if len(hashes) == 1 else {}),
    }


def wheel_component(version: str, digest: str = "") -> dict[str, Any]:
    """Return the component for the operator itself."""
    purl = f"pkg:pypi/slurm-operator@{_quoted(version)}"
    return {
        "type": "application",
        "bom-ref": purl,
        "name": "slurm-operator",
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        **({"hashes": [{"alg": "SHA-256", "content": digest}]} if digest else {}),
    }


def image_component(name: str, tag: str, digest: str, architecture: str) -> dict[str, Any]:
    """Return the component for an image."""
    query = _query({"arch": architecture, "tag": tag})
    purl = f"pkg:oci/{_quoted(name)}@{_quoted(digest)}?{query}"
    return {"type": "container", "bom-ref": purl, "name": name, "version": tag, "purl": purl}


def document(subject: dict[str, Any], parts: Sequence[dict[str, Any]]) -> str:
    """Return the bill of materials of one subject."""
    ordered = sorted(parts, key=lambda part: str(part["bom-ref"]))
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": subject},
        "components": ordered,
        "dependencies": [
            {"ref": subject["bom-ref"], "dependsOn": [part["bom-ref"] for part in ordered]},
        ],
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps(body, sort_keys=True))
    return json.dumps({**body, "serialNumber": f"urn:uuid:{serial}"}, indent=1, sort_keys=True) + "\n"


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _query(fields: dict[str, str]) -> str:
    return "&".join(f"{name}={_quoted(value)}" for name, value in sorted(fields.items()))
