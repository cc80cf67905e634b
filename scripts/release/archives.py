"""The images of a release: trees become compressed layers, layers become images, images become archives.

An archive is an OCI image layout in a tar file, with the list that `docker load` reads: containerd, Podman,
skopeo and Docker take it as it is. All Slurm images are in one archive, because they share their layers.
"""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kubebox.images.oci import Image, Layer, architecture, compressed, folder_layer, write_bundle
from kubebox.images.slurm import Origin, build_images, entry_layer, ssh_layer
from kubebox.slurm.rootfs import RELEASES
from scripts import images
from scripts.release import trees

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kubebox.slurm.packages import Package, Progress

OPERATOR = "slurm-operator"
# Where an image has no registry, container engines put this in front of its name.
_NO_REGISTRY = "docker.io/library"
_LABELS = {"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.title": OPERATOR}


@dataclass(frozen=True)
class Built:
    """An image of the release: its short name and tag, its digest, and what it is made of."""

    name: str
    tag: str
    image: Image
    packages: tuple[Package, ...]
    python: bool = False

    @property
    def digest(self) -> str:
        """Return the digest by which it is pulled."""
        return self.image.digest()

    @property
    def compressed_size(self) -> int:
        """Return how many bytes a node pulls that has no layer of it yet."""
        return sum(layer.size for layer in self.image.layers)


def image_name(registry: str, name: str, tag: str) -> str:
    """Return the full name of an image."""
    return f"{registry or _NO_REGISTRY}/{name}:{tag}"


def archive_name(name: str, version: str) -> str:
    """Return the name of an archive."""
    return f"{name}-{version}-linux-{architecture()}.oci.tar"


def build_operator(scratch: Path, registry: str, version: str, say: Progress) -> Built:
    """Make the operator's image; its layers stay in the scratch folder."""
    tree = trees.provide_operator_tree(say)
    say("making the operator's image")
    libraries = scratch / "libraries"
    images.install_libraries(libraries, tree.root, images.ROOT / "requirements" / "runtime.txt")
    product = images.product_tree(scratch, tree.root, images.operator_sources())
    notice = product / "usr" / "share" / "doc" / OPERATOR
    notice.mkdir(parents=True)
    shutil.copyfile(images.ROOT / "LICENSE", notice / "LICENSE")
    for path in (product / "usr" / "share").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    layers = [
        compressed(folder_layer(folder, scratch / f"operator-{part}.tar"))
        for part, folder in (("base", tree.root), ("libraries", libraries), ("product", product))
    ]
    image = Image(
        image_name(registry, OPERATOR, version),
        layers,
        entrypoint=[f"/{images.PROGRAM}"],
        user=images.USER,
        env=["PYTHONDONTWRITEBYTECODE=1"],
        labels={**_LABELS, "org.opencontainers.image.version": version},
        reference=f"{OPERATOR}:{version}",
    )
    return Built(OPERATOR, version, image, tree.packages, python=True)


def build_slurm(scratch: Path, registry: str, say: Progress) -> list[Built]:
    """Make the Slurm images; their layers stay in the scratch folder."""
    tree, release = trees.provide_slurm_tree(say), RELEASES[trees.SLURM_RELEASE]
    say(f"making the images of Slurm {release.name}")
    origin = Origin([], scratch / "ssh-record")
    base = compressed(folder_layer(tree.root, scratch / "slurm-base.tar"))
    ssh = compressed(ssh_layer(scratch, tree.root, release.suite, say, origin))
    added = _added(tree.packages, origin.found)
    trees.write_status(added, origin.notices)
    _only(origin.notices, {package.name for package in added})
    record = compressed(folder_layer(origin.notices, scratch / "ssh-record.tar"))
    entry = compressed(entry_layer(scratch))
    made = build_images(base, [ssh, record], entry, lambda name: image_name(registry, name, release.name))
    return [_slurm_image(image, ssh, release.name, tree.packages, added) for image in made]


def _slurm_image(
    image: Image, ssh: Layer, tag: str, below: tuple[Package, ...], added: tuple[Package, ...]
) -> Built:
    name = image.name.rpartition("/")[2].partition(":")[0]
    found = (*below, *added) if ssh in image.layers else below
    return Built(name, tag, replace(image, reference=f"{name}:{tag}"), found)


def _added(below: Sequence[Package], found: Sequence[Package]) -> tuple[Package, ...]:
    """Return the packages that a layer adds: one that is below, or that came first, has kept its files."""
    first: dict[str, Package] = {}
    for package in found:
        first.setdefault(package.name, package)
    known = {package.name for package in below}
    return tuple(package for name, package in sorted(first.items()) if name not in known)


def _only(notices: Path, names: set[str]) -> None:
    """Remove the copyright files of other packages than those named, and settle modes."""
    for folder in (notices / "usr" / "share" / "doc").iterdir():
        if folder.name not in names:
            shutil.rmtree(folder)
    for path in (notices, *notices.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def uncompressed_size(built: Built) -> int:
    """Return how many bytes the files of an image have."""
    total = 0
    for layer in built.image.layers:
        with tarfile.open(layer.path, "r:gz") as archive:
            total += sum(member.size for member in archive)
    return total


def write_archives(folder: Path, version: str, operator: Built, slurm: Sequence[Built]) -> None:
    """Write the two archives."""
    write_bundle(folder / archive_name(OPERATOR, version), [operator.image], docker=True)
    bundle = folder / archive_name("slurm", trees.SLURM_RELEASE)
    write_bundle(bundle, [built.image for built in slurm], docker=True)
