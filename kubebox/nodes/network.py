"""The network of a box with real nodes: a switch in a network namespace of its own.

    machine ── kboxB ══ uplink ─┐
                                ├─ switch (namespace of a process that does nothing)
    node-0 ── eth0 ══ port-0 ───┤
    node-1 ── eth0 ══ port-1 ───┘

The machine gets one link and the routes through it. Both end with the namespace, which ends with the process
that holds it, which the kernel ends with the supervisor: whatever is killed, no link, bridge or rule is left.
The machine forwards nothing and no firewall rule is needed, because nobody has a route to the outside.

`ip` is the one of the nodes' root file system.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox import linux
from kubebox.errors import BoxError
from kubebox.nodes.addresses import Block, free_blocks
from kubebox.procs import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_IP_SECONDS = 30.0
_LINKS = Path("/sys/class/net")
_END_SECONDS = 10.0


class IpError(BoxError):
    """`ip` refused a command."""


def run_ip(rootfs: Path, lines: Sequence[str], namespace: Path | None = None) -> None:
    """Let `ip` carry out some commands, in the network namespace that a file of /proc names."""
    _run_ip(rootfs, ["-batch", "-"], "\n".join(lines) + "\n", namespace)


def _run_ip(rootfs: Path, arguments: Sequence[str], text: str, namespace: Path | None) -> str:
    try:
        result = subprocess.run(
            ["/usr/bin/ip", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=_IP_SECONDS,
            check=False,
            preexec_fn=_go_to(rootfs, namespace),
        )
    except subprocess.TimeoutExpired:
        raise IpError(f"ip: no end within {_IP_SECONDS:g} s") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise IpError(f"cannot start ip of {rootfs}: {error}") from error
    if result.returncode != 0:
        raise IpError(f"ip: {result.stderr.strip()}")
    return result.stdout


def _go_to(rootfs: Path, namespace: Path | None) -> Callable[[], None]:
    def in_child() -> None:
        if namespace is not None:
            linux.enter(namespace, linux.CLONE_NEWNET)
        # `ip` finds the namespace of a process by /proc, which only this child sees in the root file system.
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", Path("/"), None, linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("proc", rootfs / "proc", "proc")
        os.chroot(rootfs)
        os.chdir("/")

    return in_child


class Switch:
    """The switch of one box; `block` says who has which address."""

    def __init__(self, rootfs: Path, nodes: int) -> None:
        self._rootfs = rootfs
        self._holder = _hold_namespace(rootfs)
        try:
            self.block = self._plug_in()
            link = self.block.link
            run_ip(
                rootfs,
                [
                    f"addr add {self.block.gateway}/24 dev {link}",
                    f"link set {link} up",
                    *(f"route add {pods} via {node} dev {link}" for pods, node in self.block.routes(nodes)),
                ],
            )
            run_ip(
                rootfs,
                [
                    "link add switch type bridge",
                    "link set uplink master switch",
                    *(f"link set {name} up" for name in ("lo", "uplink", "switch")),
                ],
                self.namespace,
            )
        except BaseException:
            self.close()
            raise

    @property
    def namespace(self) -> Path:
        """The file that names the switch's network namespace."""
        return Path(f"/proc/{self._holder.pid}/ns/net")

    def _plug_in(self) -> Block:
        """Make the link between the machine and the switch in the first block that nobody uses."""
        routes = json.loads(_run_ip(self._rootfs, ["-json", "-4", "route", "show", "table", "all"], "", None))
        refused = "all blocks from 10.200.0.0/16 to 10.249.0.0/16 are in use"
        for block in free_blocks(str(route["dst"]) for route in routes):
            try:
                # The name is the lock: of two boxes that start at the same time, one is refused and goes on.
                peer = f"peer name uplink netns {self._holder.pid}"
                run_ip(self._rootfs, [f"link add {block.link} type veth {peer}"])
            except IpError as error:
                refused = str(error)
                if not (_LINKS / block.link).exists():
                    break
            else:
                return block
        raise BoxError(f"cannot make a network for the nodes: {refused}")

    def close(self) -> None:
        """Remove the switch and the machine's link to it."""
        self._holder.kill()
        self._holder.wait()
        if not hasattr(self, "block"):
            return
        # The kernel takes a namespace apart in its own time.
        deadline = time.monotonic() + _END_SECONDS
        while (_LINKS / self.block.link).exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def _hold_namespace(rootfs: Path) -> subprocess.Popen[bytes]:
    attach = die_with_parent()

    def in_child() -> None:
        attach()
        linux.unshare(linux.CLONE_NEWNET)
        os.chroot(rootfs)
        os.chdir("/")

    try:
        return subprocess.Popen(
            ["/usr/bin/sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=in_child,  # noqa: PLW1509 - the supervisor has one thread
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BoxError(f"cannot make a network namespace for the nodes: {error}") from error
