"""System calls that Python's library does not have: namespaces, mounts, a new root.

Only a process with a single thread may move itself between namespaces; every caller in this package is one,
or a child between fork and exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 0x1000, 0x4000, 0x40000, 0x100000
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the C library; OSError when it fails."""
    if getattr(_LIBC, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    """Put the calling process (its next child, for CLONE_NEWPID) into new namespaces."""
    call("unshare", flags)


def enter(namespace: Path, flag: int) -> None:
    """Put the calling process into the namespace that a file of /proc names."""
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("setns", fd, flag)
    finally:
        os.close(fd)


def mount(
    source: Path | str, target: Path, kind: str | None, flags: int = 0, data: str | None = None
) -> None:
    """Mount something in the mount namespace of the calling process."""
    words = (str(source), str(target), kind, data)
    encoded = [None if word is None else word.encode() for word in words]
    try:
        call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {source} on {target}") from None


def bind(source: Path, target: Path, *, recursive: bool = False, read_only: bool = False) -> None:
    """Show a folder or file in another place as well."""
    mount(source, target, None, MS_BIND | (MS_REC if recursive else 0))
    if read_only:
        mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def change_root(root: Path) -> None:
    """Make a mount point the root of the calling process, and let go of the old root."""
    os.chdir(root)
    # The new root is stacked on the old one in the same place, so that no folder has to be made for the old.
    call("pivot_root", b".", b".")
    call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def die_with_parent() -> None:
    """Let the kernel kill the calling process when its parent dies, which it must not have done yet."""
    call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
