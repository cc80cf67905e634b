"""Folders become layers, layers become images, images become one file that containerd imports.

A layer is written once, and an image of several layers shares those below its own. Layers for the nodes of
this machine are not compressed; `compressed` makes those of a release.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import stat
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_EPOCH = 0
_CREATED = "1970-01-01T00:00:00Z"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_CHUNK = 1 << 20
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Wanted = Callable[[str], bool]


@dataclass(frozen=True)
class Layer:
    """A layer: its file, the digest of that and, for a compressed one, the digest of what is inside."""

    path: Path
    digest: str
    size: int
    inner: str = ""

    @property
    def diff_id(self) -> str:
        """Return the digest of the tar file, compressed or not."""
        return self.inner or self.digest

    @property
    def media_type(self) -> str:
        """Return how registries name this kind of layer."""
        return f"{_LAYER}+gzip" if self.inner else _LAYER

    @classmethod
    def of(cls, path: Path) -> Layer:
        """Return the layer that a tar file is."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path, f"sha256:{digest}", path.stat().st_size)


@dataclass(frozen=True)
class Image:
    """An image: its name with tag, its layers from the ground up, and how its program is started."""

    name: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    user: str = ""
    env: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    # The name of the image in the archive, for programs that want one: its tag, if empty.
    reference: str = ""

    def config(self) -> dict[str, Any]:
        """Return the image configuration."""
        settings: dict[str, Any] = {"Env": [PATH, *self.env], "WorkingDir": "/"}
        if self.entrypoint:
            settings["Entrypoint"] = list(self.entrypoint)
        if self.user:
            settings["User"] = self.user
        if self.labels:
            settings["Labels"] = dict(self.labels)
        return {
            "architecture": architecture(),
            "os": "linux",
            "created": _CREATED,
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in self.layers]},
        }

    def manifest(self) -> bytes:
        """Return the manifest, whose digest is that of the image."""
        return _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _described(_CONFIG, _json(self.config())),
                "layers": [
                    {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}
                    for layer in self.layers
                ],
            }
        )

    def digest(self) -> str:
        """Return the digest by which registries know the image."""
        return _digest(self.manifest())


def architecture() -> str:
    """Return the machine's kind of processor, as images spell it."""
    machine = platform.machine()
    return _MACHINES.get(machine, machine)


def folder_layer(folder: Path, target: Path, wanted: Wanted = lambda _name: True) -> Layer:
    """Write the files of a folder as a layer, with their owners and modes, as far as they are wanted."""
    links: dict[tuple[int, int], str] = {}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in _names(folder):
            if wanted(name):
                _add(archive, folder / name, name, links)
    return Layer.of(target)


def compressed(layer: Layer) -> Layer:
    """Compress a layer in place of its file; equal layers give equal files."""
    target = layer.path.with_suffix(".tar.gz")
    with (
        layer.path.open("rb") as source,
        target.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=_EPOCH) as sink,
    ):
        shutil.copyfileobj(source, sink, _CHUNK)
    layer.path.unlink()
    made = Layer.of(target)
    return Layer(made.path, made.digest, made.size, inner=layer.digest)


def _names(folder: Path) -> Iterator[str]:
    """Yield every path below a folder, sorted, a folder before what it holds."""
    for base, folders, files in os.walk(folder):
        # A link to a folder is listed among the folders and is not followed.
        folders.sort()
        relative = os.path.relpath(base, folder)
        prefix = "" if relative == "." else f"{relative}/"
        yield from (f"{prefix}{name}" for name in sorted([*folders, *files]))


def _add(archive: tarfile.TarFile, path: Path, name: str, links: dict[tuple[int, int], str]) -> None:
    status = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uid, entry.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
    entry.mtime = _EPOCH
    if stat.S_ISLNK(status.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif stat.S_ISDIR(status.st_mode):
        entry.type = tarfile.DIRTYPE
    elif not stat.S_ISREG(status.st_mode):
        # Devices, sockets and pipes are made where they are needed.
        return
    elif status.st_nlink > 1 and (status.st_dev, status.st_ino) in links:
        entry.type, entry.linkname = tarfile.LNKTYPE, links[status.st_dev, status.st_ino]
    else:
        links[status.st_dev, status.st_ino] = name
        entry.size = status.st_size
        with path.open("rb") as content:
            archive.addfile(entry, content)
        return
    archive.addfile(entry)


def write_bundle(target: Path, images: Iterable[Image], *, docker: bool = False) -> None:
    """Write images as one OCI layout file, each blob once; `docker` adds what `docker load` reads."""
    blobs: set[str] = set()
    manifests, listed = [], []
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        _add_bytes(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for image in images:
            config, document = _json(image.config()), image.manifest()
            for content in (config, document):
                if (digest := _digest(content)) not in blobs:
                    blobs.add(digest)
                    _add_bytes(archive, _blob(digest), content)
            for layer in image.layers:
                if layer.digest not in blobs:
                    blobs.add(layer.digest)
                    _add_file(archive, _blob(layer.digest), layer.path)
            manifests.append(
                {
                    **_described(_MANIFEST, document),
                    "platform": {"architecture": architecture(), "os": "linux"},
                    "annotations": {
                        "io.containerd.image.name": image.name,
                        "org.opencontainers.image.ref.name": image.reference or image.name.rpartition(":")[2],
                    },
                }
            )
            listed.append(
                {
                    "Config": _blob(_digest(config)),
                    "RepoTags": [image.name.removeprefix("docker.io/library/")],
                    "Layers": [_blob(layer.digest) for layer in image.layers],
                }
            )
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
        _add_bytes(archive, "index.json", _json(index))
        if docker:
            _add_bytes(archive, "manifest.json", _json(listed))


def _json(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _described(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size, entry.mtime = 0o644, size, _EPOCH
    return entry


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_entry(name, len(content)), io.BytesIO(content))


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> None:
    with path.open("rb") as content:
        archive.addfile(_entry(name, path.stat().st_size), content)
