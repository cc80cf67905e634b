"""The root file systems in which Slurm runs, one for each release, made once and kept in the cache.

A root file system is a plain folder: a minimal Debian with Slurm and MariaDB, the users that the daemons run
as, and the folders they expect. Boxes mount it read-only, so that one serves all of them; whoever wants
container images can pack the same folder.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubebox.cache import cache_root, content_key, obtain
from kubebox.errors import SpecError, ToolError
from kubebox.slurm import packages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kubebox.slurm.packages import Progress

# Raise it when this module makes something else of the same packages.
_LAYOUT = 1
_BASE = (
    "base-files", "base-passwd", "bash", "coreutils", "dash", "debianutils", "findutils",
    "gawk", "grep", "gzip", "hostname", "iproute2", "libc-bin", "netbase", "procps", "sed", "tar", "tini",
    "util-linux",
)  # fmt: skip
# slurm-wlm-emulator is left out on purpose: it takes the place of slurmctld and slurmd.
_SLURM = (
    "sackd", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-jwt-plugin", "slurm-wlm-mysql-plugin",
    "slurmctld", "slurmd", "slurmdbd", "slurmrestd",
)  # fmt: skip
_DATABASE = ("mariadb-client-core", "mariadb-server-core")
# The uid is part of the operator's contract with its images; Debian's own would be 64030.
USERS: Mapping[str, int] = {
    "root": 0,
    "slurm": 401,
    "alice": 1000,
    "bob": 1001,
    "nobody": 65534,
    "mysql": 999,
}
_UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian",
           "usr/share/bash-completion", "usr/share/zoneinfo", "var/lib/dpkg", "var/cache")  # fmt: skip
_FILES = {
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
    "etc/resolv.conf": "",
    "etc/hostname": "slurm\n",
}


@dataclass(frozen=True)
class Release:
    """A Slurm release and the Debian suite that has it."""

    name: str
    suite: str

    def key(self, architecture: str) -> str:
        """Return the name of the content that this release gives on an architecture."""
        parts = [_LAYOUT, self.suite, architecture, _BASE, _SLURM, _DATABASE, dict(USERS), _UNUSED, _FILES]
        return content_key([json.dumps(parts).encode()])


PACKAGES = (*_BASE, *_SLURM, *_DATABASE)
# Users of tests, who are in no image that is released.
_TEST_USERS = ("alice", "bob")
RELEASES = {"26.05": Release("26.05", "forky"), "24.11": Release("24.11", "trixie")}


def provide_root(name: str, progress: Progress) -> Path:
    """Return the root file system of a Slurm release, made first when it is not there yet."""
    if name not in RELEASES:
        raise SpecError(
            f"release: {name!r} is no Slurm release kubebox has: use one of {', '.join(RELEASES)}"
        )
    release = RELEASES[name]
    key = release.key(packages.architecture())
    if os.geteuid() != 0:
        raise ToolError(
            "Slurm boxes need root: their daemons run as several users in mount and process namespaces; "
            "run this as root, or in a container with CAP_SYS_ADMIN"
        )

    def make(scratch: Path) -> None:
        progress(f"making the root file system of Slurm {name}: once, about half a minute")
        _make(release, scratch, progress)

    place = obtain(
        cache_root(),
        f"slurm-{name}",
        key,
        make,
        lambda: progress(f"waiting for another process that makes the root file system of Slurm {name}"),
    )
    return place / "rootfs"


def _make(release: Release, scratch: Path, progress: Progress) -> None:
    apt = scratch / "apt"
    found = packages.download(packages.mirror(), release.suite, PACKAGES, apt, progress)
    version = next(
        (packages.version_of(file) for file in found if file.name.startswith("slurmctld_")), "none"
    )
    if not version.startswith(f"{release.name}."):
        raise ToolError(
            f"Debian {release.suite} has Slurm {version} and no longer {release.name}: "
            "name another suite in kubebox/slurm/rootfs.py"
        )
    progress(f"unpacking {len(found)} packages")
    root = scratch / "rootfs"
    root.mkdir(mode=0o755)
    packages.unpack(found, root)
    furnish(root)
    shutil.rmtree(apt)
    progress(f"Slurm {version} is ready")


def furnish(root: Path, *, test_users: Sequence[str] = _TEST_USERS) -> None:
    """Add what package scripts would have made, and drop what is not read."""
    for name in _UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name, text in _FILES.items():
        (root / name).write_text(text, encoding="utf-8")
    _add_users(root, test_users)
    for program in ("slurmctld", "slurmd", "slurmstepd"):
        link = root / "usr" / "sbin" / program
        # Debian's alternatives system would choose between these and the emulator's.
        if not link.exists() and (root / "usr" / "sbin" / f"{program}-wlm").exists():
            link.symlink_to(f"{program}-wlm")
    for name, user, mode in (
        ("etc/slurm", "slurm", 0o755),
        ("var/spool/slurmctld", "slurm", 0o755),
        ("var/spool/slurmd", "root", 0o755),
        ("var/log/slurm", "slurm", 0o755),
        ("var/lib/mysql", "mysql", 0o755),
        ("var/cache", "root", 0o755),
        ("var/tmp", "root", 0o1777),
        ("tmp", "root", 0o1777),
        *((f"home/{user}", user, 0o755) for user in test_users),
        ("run", "root", 0o755),
    ):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, USERS[user], USERS[user])
        folder.chmod(mode)


def _add_users(root: Path, test_users: Sequence[str]) -> None:
    masters, etc = root / "usr" / "share" / "base-passwd", root / "etc"
    passwd = (masters / "passwd.master").read_text(encoding="utf-8").replace(":*:", ":x:")
    group = (masters / "group.master").read_text(encoding="utf-8").replace(":*:", ":x:")
    for name, home, shell in (
        ("slurm", "/var/lib/slurm", "/usr/sbin/nologin"),
        ("mysql", "/var/lib/mysql", "/usr/sbin/nologin"),
        *((user, f"/home/{user}", "/bin/bash") for user in test_users),
    ):
        passwd += f"{name}:x:{USERS[name]}:{USERS[name]}::{home}:{shell}\n"
        group += f"{name}:x:{USERS[name]}:\n"
    (etc / "passwd").write_text(passwd, encoding="utf-8")
    (etc / "group").write_text(group, encoding="utf-8")
