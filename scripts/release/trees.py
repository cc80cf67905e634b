"""The root file systems of released images: Debian packages, with the record of what they are.

They differ from those of tests in three ways: the operator's has only what Python needs at run time,
compiled; none has users of tests; and each holds what a scanner reads (`var/lib/dpkg/status.d`, one file per
package) and the copyright files of its packages.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubebox.cache import cache_root, content_key, obtain, prune
from kubebox.errors import ToolError
from kubebox.slurm import packages, rootfs
from scripts import images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from kubebox.slurm.packages import Package, Progress

# Raise it when this module makes something else of the same packages.
_LAYOUT = 1
SLURM_RELEASE = "26.05"
# They serve the scripts of packages, which never run here, or a person at a terminal.
_NOT_NEEDED = ("debconf", "dpkg", "libacl1", "libdebconfclient0", "libmd0", "libpcre2-8-0", "libselinux1",
               "mawk", "tar")  # fmt: skip
_DOCUMENTS = ("usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/bug",
              "usr/share/zoneinfo", "usr/share/bash-completion", "usr/share/perl5", "usr/share/polkit-1",
              "usr/share/pixmaps", "usr/share/applications", "var/cache", "var/lib/dpkg")  # fmt: skip
_RECORD = "packages.json"


@dataclass(frozen=True)
class Tree:
    """A root file system and the packages it is made of."""

    root: Path
    packages: tuple[Package, ...]

    @classmethod
    def load(cls, place: Path) -> Tree:
        """Read a tree from the cache."""
        listed = json.loads((place / _RECORD).read_text(encoding="utf-8"))
        return cls(place / "rootfs", tuple(packages.Package(**fields) for fields in listed))


def provide_operator_tree(say: Progress) -> Tree:
    """Return the base of the operator's image: Python and what it needs, without a shell."""

    def make(scratch: Path) -> None:
        say("making the base of the operator's image: once, about a minute")
        security = packages.security_mirror()
        if security is None:
            say(f"apt knows no mirror of security updates: the image has {images.SUITE} without them")
        root = _unpack(scratch, images.SUITE, images.PACKAGES, _NOT_NEEDED, say, security)
        _strip(root)
        images.furnish_base(root)
        _compile(root)

    parts = [_LAYOUT, images.SUITE, packages.architecture(), images.PACKAGES, _NOT_NEEDED, _DOCUMENTS]
    return _provide("release-operator", parts, make)


def provide_slurm_tree(say: Progress) -> Tree:
    """Return the base of the Slurm images, without users of tests."""
    release = rootfs.RELEASES[SLURM_RELEASE]

    def make(scratch: Path) -> None:
        say(f"making the base of the images of Slurm {release.name}: once, about a minute")
        root = _unpack(scratch, release.suite, rootfs.PACKAGES, (), say)
        documents = scratch / "doc"
        (root / "usr" / "share" / "doc").rename(documents)
        rootfs.furnish(root, test_users=())
        documents.rename(root / "usr" / "share" / "doc")
        _strip(root)
        (root / "var" / "cache").mkdir()

    parts = [_LAYOUT, release.key(packages.architecture()), _DOCUMENTS]
    return _provide("release-slurm", parts, make)


def _provide(name: str, parts: Sequence[object], make: Callable[[Path], None]) -> Tree:
    if os.geteuid() != 0:
        raise ToolError("a release is built by root: files in images belong to several users")

    def made(scratch: Path) -> None:
        make(scratch)
        tree = Tree.load(scratch)
        write_status(tree.packages, tree.root)

    place = obtain(cache_root(), name, content_key([json.dumps(parts).encode()]), made)
    prune(cache_root(), name)
    return Tree.load(place)


def _unpack(
    scratch: Path,
    suite: str,
    names: Iterable[str],
    not_needed: Sequence[str],
    say: Progress,
    security: str | None = None,
) -> Path:
    """Unpack packages into a new root file system, and record them beside it."""
    apt, root = scratch / "apt", scratch / "rootfs"
    files = packages.download(packages.mirror(), suite, names, apt, say, security=security)
    found = {file: packages.describe(file, suite) for file in files}
    kept = {file: package for file, package in found.items() if package.name not in not_needed}
    root.mkdir(mode=0o755)
    packages.unpack(list(kept), root)
    shutil.rmtree(apt)
    record = [dataclasses.asdict(package) for package in kept.values()]
    (scratch / _RECORD).write_text(json.dumps(record), encoding="utf-8")
    return root


def _strip(root: Path) -> None:
    """Remove documents, except for copyright files."""
    notices = root.parent / "notices"
    packages.keep_copyrights(root, notices)
    for name in ("usr/share/doc", *_DOCUMENTS):
        shutil.rmtree(root / name, ignore_errors=True)
    (notices / "usr" / "share" / "doc").rename(root / "usr" / "share" / "doc")
    shutil.rmtree(notices)


def write_status(found: Iterable[Package], root: Path) -> None:
    """Write for each package the file by which scanners know that it is installed."""
    folder = root / "var" / "lib" / "dpkg" / "status.d"
    folder.mkdir(parents=True, exist_ok=True)
    for package in found:
        (folder / package.name).write_text(package.control, encoding="utf-8")


def _compile(root: Path) -> None:
    """Compile Python's own modules: a pod with a read-only file system would do it at every start."""

    def in_image() -> None:
        os.chroot(root)
        os.chdir("/")

    command = ["/usr/bin/python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    result = subprocess.run(
        [*command, "-x", "/(test|idle_test)s?/", "/usr/lib/python3.13"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=in_image,
    )
    if result.returncode != 0:
        raise ToolError(f"compiling Python's modules failed:\n{result.stdout}{result.stderr}")
