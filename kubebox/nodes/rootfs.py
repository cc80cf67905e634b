"""The root file system of a node: containerd, runc, CNI plugins and network tools of Debian, made once.

Nodes have their own C library and tools, so the machine needs none of them: what runs in a node is the same
on every machine. kubelet and kube-proxy are programs of kubebox and come in when a node starts.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from kubebox.cache import cache_root, content_key, obtain
from kubebox.slurm import packages

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox.slurm.packages import Progress

# Raise it when this module makes something else of the same packages.
_LAYOUT = 1
SUITE = "forky"
_PACKAGES = (
    "base-files", "base-passwd", "containerd", "containernetworking-plugins", "coreutils", "dash",
    "findutils", "iproute2", "libc-bin", "mount", "nftables", "procps", "runc", "util-linux",
)  # fmt: skip
_UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian",
           "usr/share/bash-completion", "usr/share/perl5", "var/cache")  # fmt: skip
_FOLDERS = ("etc/cni/net.d", "dev", "proc", "sys", "run", "tmp", "var/log", "var/lib/kubelet",
            "var/lib/containerd", "var/lib/kubebox/volumes", "usr/local/bin", "mnt")  # fmt: skip


def node_root_key(architecture: str) -> str:
    """Return the name of the content of a node's root file system."""
    return content_key([json.dumps([_LAYOUT, SUITE, architecture, _PACKAGES, _UNUSED, _FOLDERS]).encode()])


def provide_node_root(progress: Progress) -> Path:
    """Return the root file system of nodes, made first when it is not there yet."""

    def make(scratch: Path) -> None:
        progress("making the root file system of nodes: once, about half a minute")
        apt, root = scratch / "apt", scratch / "rootfs"
        found = packages.download(packages.mirror(), SUITE, _PACKAGES, apt, progress)
        progress(f"unpacking {len(found)} packages")
        root.mkdir(mode=0o755)
        packages.unpack(found, root)
        _furnish(root)
        shutil.rmtree(apt)

    return (
        obtain(
            cache_root(),
            "node",
            node_root_key(packages.architecture()),
            make,
            lambda: progress("waiting for another process that makes the root file system of nodes"),
        )
        / "rootfs"
    )


def _furnish(root: Path) -> None:
    for name in _UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    # A package brings it as a folder; the script of another would have made it a link.
    shutil.rmtree(root / "var" / "run", ignore_errors=True)
    (root / "var" / "run").symlink_to("/run")
    masters, etc = root / "usr" / "share" / "base-passwd", root / "etc"
    for name in ("passwd", "group"):
        text = (masters / f"{name}.master").read_text(encoding="utf-8")
        (etc / name).write_text(text.replace(":*:", ":x:"), encoding="utf-8")
    (etc / "hosts").write_text("127.0.0.1 localhost\n", encoding="utf-8")
    # Pods that ask for the DNS of their node get no server: there is no world outside.
    (etc / "resolv.conf").write_text("options ndots:5\n", encoding="utf-8")
