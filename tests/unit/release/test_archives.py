"""Layers and archives of a release: the same content gives the same bytes."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from typing import TYPE_CHECKING

from kubebox.images.oci import Image, Layer, compressed, folder_layer, write_bundle
from scripts.release.archives import _added, image_name
from tests.unit.release.test_sbom import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path


def layer(scratch: Path, name: str, time: float) -> Layer:
    folder = scratch / name
    folder.mkdir()
    (folder / "file").write_text("content")
    (folder / "file").chmod(0o644)
    os.utime(folder / "file", (time, time))
    return compressed(folder_layer(folder, scratch / f"{name}.tar"))


def test_compressed_layers_are_equal_and_know_what_is_inside(tmp_path: Path) -> None:
    """Neither time nor name of a file is in a compressed layer; its diff ID is that of the tar file."""
    first, second = layer(tmp_path, "first", 1.0), layer(tmp_path, "second", 2.0)
    assert first.digest == second.digest
    assert first.path.read_bytes() == second.path.read_bytes()
    plain = tmp_path / "plain.tar"
    plain.write_bytes(gzip.decompress(first.path.read_bytes()))
    assert first.diff_id == Layer.of(plain).digest
    assert first.media_type == "application/vnd.oci.image.layer.v1.tar+gzip"


def test_archive_serves_containerd_skopeo_and_docker(tmp_path: Path) -> None:
    """The index names the image for containerd and skopeo, and manifest.json for Docker."""
    image = Image(image_name("", "slurmd", "26.05"), [layer(tmp_path, "one", 1.0)], reference="slurmd:26.05")
    write_bundle(tmp_path / "images.tar", [image], docker=True)
    with tarfile.open(tmp_path / "images.tar") as archive:
        index, docker = (
            json.loads(archive.extractfile(name).read())  # type: ignore[union-attr]
            for name in ("index.json", "manifest.json")
        )
    (entry,) = index["manifests"]
    assert entry["digest"] == image.digest()
    assert entry["annotations"] == {
        "io.containerd.image.name": "docker.io/library/slurmd:26.05",
        "org.opencontainers.image.ref.name": "slurmd:26.05",
    }
    assert docker[0]["RepoTags"] == ["slurmd:26.05"]
    assert docker[0]["Layers"] == [f"blobs/{image.layers[0].digest.replace(':', '/')}"]


def test_layer_lists_only_packages_whose_files_it_has() -> None:
    """A package that is below already, or came first, has kept its files."""
    newer = type(PACKAGE)("libc6", "2.42", "amd64", "glibc", "forky", "b" * 64, "")
    sshd = type(PACKAGE)("openssh-server", "1", "amd64", "openssh", "forky", "c" * 64, "")
    later = type(PACKAGE)("openssh-server", "0.9", "amd64", "openssh", "trixie", "d" * 64, "")
    assert _added([newer], [PACKAGE, sshd, later]) == (sshd,)
