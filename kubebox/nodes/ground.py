"""What must be there before a box with real nodes can start: rights, kernel, root file system, images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox import cgroups, linux
from kubebox.errors import ToolError
from kubebox.images.nodes import provide_node_images
from kubebox.images.template import provide_template
from kubebox.nodes.inotify import make_room
from kubebox.nodes.real import NODE_IMAGES, NODE_ROOT
from kubebox.nodes.rootfs import provide_node_root

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubebox.slurm.packages import Progress
    from kubebox.spec import BoxSpec

_NAMESPACES = (
    linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWPID | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC
)


def provide_ground(spec: BoxSpec, tools: Mapping[str, Path], progress: Progress) -> dict[str, Path]:
    """Return the root file system of nodes and the images they start with; ToolError says what is lacking."""
    if (reason := what_is_lacking()) is not None:
        raise ToolError(f"real nodes are impossible here: {reason}")
    if spec.nodes:
        make_room(progress)
    rootfs = provide_node_root(progress)
    bundles = [provide_node_images(tools), *map(Path, spec.images)]
    return {NODE_ROOT: rootfs, NODE_IMAGES: provide_template(bundles, rootfs, progress)}


def what_is_lacking() -> str | None:
    """Say why this machine cannot have real nodes, None when nothing speaks against it."""
    if os.geteuid() != 0:
        return "they need root, for namespaces, mounts and control groups"
    if "overlay" not in Path("/proc/filesystems").read_text(encoding="ascii").split():
        return "the kernel has no overlay file system (try `modprobe overlay`)"
    if not cgroups.hierarchies():
        return "no control groups are mounted on /sys/fs/cgroup"
    return _try_in_child()


def _try_in_child() -> str | None:
    """Make the namespaces for a moment; rights are not what /proc tells but what the kernel allows."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            linux.unshare(_NAMESPACES)
            linux.mount("none", Path("/"), None, linux.MS_REC | linux.MS_PRIVATE)
        except OSError as error:
            os.write(writer, f"the kernel refuses namespaces and mounts ({error})".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        reason = stream.read()
    os.waitpid(child, 0)
    return reason or None
