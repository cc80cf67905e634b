"""Slurm as container images, made of the same packages as Slurm boxes.

    base      the root file system of a Slurm release: Debian, Slurm, MariaDB, the users of the contract
    ssh       sshd, sssd and what they need, without the files that the base has already
    entry     how each image starts its program (the scripts in images/slurm)

Every image is the base with the entry points on top; login and slurmd have the ssh layer in between, because
users log in there. All layers are shared, so a node keeps one copy of each.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox.cache import cache_root, content_key, obtain, prune
from kubebox.images.oci import Image, Layer, folder_layer, write_bundle
from kubebox.slurm import packages
from kubebox.slurm.rootfs import RELEASES, provide_root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kubebox.slurm.packages import Progress

_SCRIPTS = Path(__file__).resolve().parents[2] / "images" / "slurm"
# Raise it when this module makes something else of the same inputs.
_LAYOUT = 1
_SSH = ("libpam-modules", "login", "openssh-client", "openssh-server", "passwd")
# Not every suite has sssd at all times. A stable one's runs with newer libraries, which keep what it needs.
_SSSD, _SSSD_SUITE = ("libnss-sss", "libpam-sss", "sssd-common", "sssd-proxy"), "trixie"
_UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian",
           "usr/share/bash-completion", "usr/share/zoneinfo", "usr/share/perl5", "usr/share/polkit-1",
           "var/cache", "var/lib/dpkg", "etc/init.d", "etc/default")  # fmt: skip
_SLURM, _REST, _DATABASE = "401:401", "65534:65534", "999:999"
# What each image runs as when nobody says otherwise, and whether users log in there.
_IMAGES = {
    "slurmctld": (_SLURM, False),
    "slurmdbd": (_SLURM, False),
    "slurmrestd": (_REST, False),
    "slurmd": ("", True),
    "login": ("", True),
    "mariadb": (_DATABASE, False),
}
_PAM = """\
auth required pam_env.so
auth sufficient pam_unix.so nullok
auth sufficient pam_sss.so forward_pass
auth required pam_deny.so
account sufficient pam_unix.so
account sufficient pam_sss.so
account required pam_permit.so
session required pam_limits.so
session required pam_unix.so
session optional pam_sss.so
password sufficient pam_unix.so yescrypt
password required pam_deny.so
"""
_SSH_FILES = {
    "etc/pam.d/sshd": _PAM,
    "etc/pam.d/other": _PAM,
    "etc/nsswitch.conf": "passwd: files sss\ngroup: files sss\nshadow: files sss\nhosts: files dns\n",
    "etc/sssd/sssd.conf": "",
    # Mounted by the operator where users may log in; an empty one means that they may not.
    "etc/ssh/sshd_config": "",
}


@dataclass(frozen=True)
class Origin:
    """Where the files of a layer come from: packages, and a folder that gets their copyright files."""

    found: list[packages.Package]
    notices: Path


def slurm_image(name: str, release: str = "26.05") -> str:
    """Return the name of one of our images."""
    return f"kubebox.local/{name}:{release}"


def provide_slurm_images(progress: Progress, release: str = "26.05") -> Path:
    """Return one file with all images of a Slurm release, made first when it is not there yet."""
    rootfs = provide_root(release, progress)
    scripts = _scripts()
    parts = json.dumps(
        [_LAYOUT, rootfs.parent.name, _SSH, _SSSD, _SSSD_SUITE, _UNUSED, _IMAGES, _SSH_FILES]
    ).encode()

    def make(scratch: Path) -> None:
        progress(f"making the images of Slurm {release}: once, about a minute")
        base = folder_layer(rootfs, scratch / "base.tar")
        ssh = ssh_layer(scratch, rootfs, RELEASES[release].suite, progress)
        entry = entry_layer(scratch)
        images = build_images(base, [ssh], entry, lambda name: slurm_image(name, release))
        write_bundle(scratch / "images.tar", images)
        shutil.rmtree(scratch / "notices")
        for layer in (base, ssh, entry):
            layer.path.unlink()

    key = content_key([parts, *(script.read_bytes() for script in scripts)])
    name = f"slurm-images-{release}"
    place = obtain(cache_root(), name, key, make)
    prune(cache_root(), name)
    return place / "images.tar"


def build_images(base: Layer, ssh: Sequence[Layer], entry: Layer, named: Callable[[str], str]) -> list[Image]:
    """Return the images of Slurm, made of the same layers, under the names that `named` gives them."""
    images = [
        Image(
            named(name),
            [base, *ssh, entry] if logins else [base, entry],
            entrypoint=[f"/usr/local/libexec/{name}"],
            user=user,
        )
        for name, (user, logins) in _IMAGES.items()
    ]
    # Sidecars and small tasks need a shell and the usual tools.
    return [*images, Image(named("tools"), [base], entrypoint=["/bin/sh"])]


def _scripts() -> list[Path]:
    return [_SCRIPTS / name for name in sorted(path.name for path in _SCRIPTS.iterdir())]


def entry_layer(scratch: Path) -> Layer:
    """Write the layer with the programs that the images start."""
    folder = scratch / "entry"
    (folder / "usr" / "local" / "libexec").mkdir(parents=True)
    for script in _scripts():
        target = folder / "usr" / "local" / "libexec" / script.name
        shutil.copyfile(script, target)
        target.chmod(0o755)
    _tidy_modes(folder)
    layer = folder_layer(folder, scratch / "entry.tar")
    shutil.rmtree(folder)
    return layer


def ssh_layer(
    scratch: Path, rootfs: Path, suite: str, progress: Progress, origin: Origin | None = None
) -> Layer:
    """Write the layer with sshd and sssd, and note where its files come from."""
    origin = origin or Origin([], scratch / "notices")
    folder = _unpacked(scratch / "ssh", suite, _SSH, progress, origin)
    sssd = _unpacked(scratch / "sssd", _SSSD_SUITE, _SSSD, progress, origin)
    _fill_in(sssd, folder, rootfs)
    for name, text in _SSH_FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "etc" / "sssd" / "sssd.conf").chmod(0o600)
    _with_user(folder, rootfs, "sshd", 100)
    _with_user(folder, rootfs, "sssd", 101)
    layer = folder_layer(folder, scratch / "ssh.tar", lambda name: _is_new(folder / name, rootfs / name))
    shutil.rmtree(folder)
    shutil.rmtree(sssd)
    return layer


def _unpacked(folder: Path, suite: str, names: Sequence[str], progress: Progress, origin: Origin) -> Path:
    apt = folder.with_suffix(".apt")
    files = packages.download(packages.mirror(), suite, ("base-files", *names), apt, progress)
    origin.found.extend(packages.describe(file, suite) for file in files)
    folder.mkdir()
    packages.unpack(files, folder)
    packages.keep_copyrights(folder, origin.notices)
    for name in _UNUSED:
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.rmtree(apt)
    return folder


def _fill_in(source: Path, target: Path, below: Path) -> None:
    """Move to `target` what neither it nor what is below it has."""
    for base, folders, files in os.walk(source):
        relative = Path(base).relative_to(source)
        for name in [*folders, *files]:
            place = relative / name
            if os.path.lexists(target / place) or os.path.lexists(below / place):
                continue
            (target / relative).mkdir(parents=True, exist_ok=True)
            if name in folders and not (source / place).is_symlink():
                shutil.copytree(source / place, target / place, symlinks=True)
                shutil.rmtree(source / place)
            else:
                (source / place).rename(target / place)


def _with_user(folder: Path, rootfs: Path, user: str, number: int) -> None:
    """Add a user to those of the base; package scripts would have done it."""
    for name, line in (
        ("passwd", f"{user}:x:{number}:{number}::/run/{user}:/usr/sbin/nologin\n"),
        ("group", f"{user}:x:{number}:\n"),
    ):
        target = folder / "etc" / name
        known = target if target.exists() else rootfs / "etc" / name
        target.write_text(known.read_text(encoding="utf-8") + line, encoding="utf-8")


def _is_new(path: Path, below: Path) -> bool:
    """Say whether the base lacks a file, or has another one in its place."""
    mine, theirs = path.lstat(), below.lstat() if os.path.lexists(below) else None
    if theirs is None:
        return True
    if stat.S_ISDIR(mine.st_mode):
        # An entry for a folder that the base has as a link would hide what the link leads to.
        return False
    if stat.S_IFMT(mine.st_mode) != stat.S_IFMT(theirs.st_mode):
        return not stat.S_ISLNK(theirs.st_mode)
    if stat.S_ISLNK(mine.st_mode):
        return path.readlink() != below.readlink()
    return not filecmp.cmp(path, below, shallow=False)


def _tidy_modes(folder: Path) -> None:
    """Set the modes of folders, which would otherwise depend on the umask."""
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
