"""The images that every node needs: pause, which holds a pod's namespaces, and CoreDNS."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from kubebox.cache import cache_root, content_key, obtain
from kubebox.images.names import COREDNS_IMAGE, PAUSE_IMAGE
from kubebox.images.oci import Image, Layer, folder_layer, write_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Raise it when this module makes something else of the same programs.
_LAYOUT = b"1"


def provide_node_images(tools: Mapping[str, Path]) -> Path:
    """Return the file with the images of every node, made from the two programs when it is not there yet."""
    # Both programs stand in folders that are named by their content.
    names = sorted(str(tools[name].parent.name) for name in ("pause", "coredns"))

    def make(scratch: Path) -> None:
        images = [
            Image(
                image,
                [_one_program(scratch, tools[program], program)],
                entrypoint=[f"/{program}"],
                user="65532:65532",
            )
            for image, program in ((PAUSE_IMAGE, "pause"), (COREDNS_IMAGE, "coredns"))
        ]
        write_bundle(scratch / "images.tar", images)
        for image in images:
            image.layers[0].path.unlink()

    key = content_key([_LAYOUT, *(name.encode() for name in names)])
    return obtain(cache_root(), "node-images", key, make) / "images.tar"


def _one_program(scratch: Path, program: Path, name: str) -> Layer:
    folder = scratch / name
    folder.mkdir()
    shutil.copyfile(program, folder / name)
    (folder / name).chmod(0o755)
    layer = folder_layer(folder, scratch / f"{name}.tar")
    shutil.rmtree(folder)
    return layer
