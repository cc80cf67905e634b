from __future__ import annotations

import hashlib
import json
import os
import tarfile
from typing import TYPE_CHECKING

from kubebox.images.oci import Image, Layer, folder_layer, write_bundle

if TYPE_CHECKING:
    from pathlib import Path


def tree(folder: Path) -> Path:
    """Make a folder with one of everything that a layer may hold."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "tool").write_text("#!/bin/sh\n")
    (folder / "bin" / "tool").chmod(0o755)
    (folder / "bin" / "alias").symlink_to("tool")
    os.link(folder / "bin" / "tool", folder / "twin")
    (folder / "etc").mkdir(mode=0o700)
    (folder / "etc" / "empty").touch()
    return folder


def names(layer: Layer) -> list[str]:
    with tarfile.open(layer.path) as archive:
        return archive.getnames()


def test_the_same_files_give_the_same_layer(tmp_path: Path) -> None:
    """Neither the time of a file nor the order of its making shows in a layer's digest."""
    first = folder_layer(tree(tmp_path / "a"), tmp_path / "a.tar")
    second = tree(tmp_path / "b")
    os.utime(second / "etc" / "empty", (1, 1))
    assert folder_layer(second, tmp_path / "b.tar").digest == first.digest
    (second / "etc" / "empty").write_text("x")
    assert folder_layer(second, tmp_path / "c.tar").digest != first.digest


def test_a_layer_keeps_what_files_are(tmp_path: Path) -> None:
    """Modes, links of both kinds and empty folders come out as they went in."""
    layer = folder_layer(tree(tmp_path / "a"), tmp_path / "a.tar")
    with tarfile.open(layer.path) as archive:
        found = {entry.name: entry for entry in archive}
    assert found["bin/tool"].mode == 0o755
    assert found["bin/alias"].linkname == "tool"
    assert not found["twin"].islnk()
    assert found["bin/tool"].islnk()
    assert found["bin/tool"].linkname == "twin"
    assert found["etc"].isdir()
    assert found["etc"].mode == 0o700


def test_a_layer_leaves_out_what_nobody_wants(tmp_path: Path) -> None:
    """The filter is asked for every path."""
    layer = folder_layer(tree(tmp_path / "a"), tmp_path / "a.tar", lambda name: name.startswith("etc"))
    assert names(layer) == ["etc", "etc/empty"]


def test_a_bundle_is_an_oci_layout_with_each_blob_once(tmp_path: Path) -> None:
    """Every digest of a bundle is that of its blob, and images that share a layer hold it once."""
    base = folder_layer(tree(tmp_path / "a"), tmp_path / "a.tar")
    images = [
        Image("example.org/one:1", [base], entrypoint=["/bin/tool"], user="401:401"),
        Image("example.org/two:1", [base], env=["A=b"]),
    ]
    write_bundle(tmp_path / "bundle.tar", images)
    with tarfile.open(tmp_path / "bundle.tar") as archive:
        blobs = {entry.name: archive.extractfile(entry) for entry in archive}
        contents = {name: file.read() for name, file in blobs.items() if file is not None}
    index = json.loads(contents["index.json"])
    assert [item["annotations"]["io.containerd.image.name"] for item in index["manifests"]] == [
        "example.org/one:1",
        "example.org/two:1",
    ]
    kept = {name: data for name, data in contents.items() if name.startswith("blobs/")}
    assert len(kept) == 5  # two manifests, two configurations, one layer
    for name, data in kept.items():
        assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    first = json.loads(contents[f"blobs/{index['manifests'][0]['digest'].replace(':', '/')}"])
    config = json.loads(contents[f"blobs/{first['config']['digest'].replace(':', '/')}"])
    assert config["config"]["User"] == "401:401"
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in first["layers"]] == [base.digest]
