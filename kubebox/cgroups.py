"""The control groups of a box: one for each node, all below one of the box.

The kernel keeps them when the processes are gone, so they are the one thing of a node that has to be cleared
away. The box writes down the name of its group before it makes it: whoever finds the folder of a dead box can
remove the group, too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOUNT = Path("/sys/fs/cgroup")
_NOTE = "cgroup"
_END_SECONDS = 20.0
# With version 1, a group takes no process before these two are filled in.
_CPUSET = ("cpuset.cpus", "cpuset.mems")
_CONTROLLERS = "cgroup.subtree_control"


def hierarchies(mount: Path = MOUNT) -> list[Path]:
    """Return the folders in which groups are made: one with version 2, one for each controller before."""
    if (mount / "cgroup.controllers").exists():
        return [mount]
    if not mount.is_dir():
        return []
    return [path for path in sorted(mount.iterdir()) if (path / "cgroup.procs").exists()]


def make(folder: Path, nodes: Sequence[str], mount: Path = MOUNT) -> str:
    """Make the groups of a box whose files are in `folder`, and return the name of its group."""
    name = f"kubebox-{folder.name}-{secrets.token_hex(3)}"
    (folder / _NOTE).write_text(name, encoding="utf-8")
    for hierarchy in hierarchies(mount):
        _prepare(hierarchy, hierarchy / name)
        for node in nodes:
            _prepare(hierarchy / name, hierarchy / name / node)
            _delegate(hierarchy / name / node)
    return name


def _prepare(parent: Path, group: Path) -> None:
    _delegate(parent)
    group.mkdir(exist_ok=True)
    for name in _CPUSET:
        if (group / name).exists() and not (group / "cgroup.controllers").exists():
            (group / name).write_text((parent / name).read_text(encoding="ascii"), encoding="ascii")


def _delegate(group: Path) -> None:
    """Let groups below have every controller that this one has; version 2 only."""
    if not (group / _CONTROLLERS).exists() or not (group / "cgroup.controllers").exists():
        return
    for controller in (group / "cgroup.controllers").read_text(encoding="ascii").split():
        with contextlib.suppress(OSError):
            (group / _CONTROLLERS).write_text(f"+{controller}", encoding="ascii")


def remove(folder: Path, mount: Path = MOUNT) -> None:
    """Remove the groups of the box in `folder`, as soon as their processes have ended."""
    try:
        name = (folder / _NOTE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    # All of them each time: one that is busy does not keep the others.
    _until_gone(lambda: sum(not _removed(hierarchy / name) for hierarchy in hierarchies(mount)))


def clear(group: str, mount: Path = MOUNT) -> None:
    """Remove the groups below one, such as a node's that is switched on again: its processes are no more.

    kubelet takes what it finds there for containers, and looks at each for seconds.
    """
    tops = [hierarchy / group for hierarchy in hierarchies(mount)]
    _until_gone(lambda: sum(not _emptied(top) for top in tops))


def _until_gone(left: Callable[[], int]) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while left() and time.monotonic() < deadline:
        time.sleep(0.02)


def _removed(top: Path) -> bool:
    _emptied(top)
    with contextlib.suppress(OSError):
        top.rmdir()
    return not top.exists()


def _emptied(top: Path) -> bool:
    """Remove what can be removed below a group, deepest first, and return whether nothing is left there."""
    below = [Path(path) for path, _, _ in os.walk(top, topdown=False)][:-1]
    for group in below:
        with contextlib.suppress(OSError):
            group.rmdir()
    return not any(group.exists() for group in below)
