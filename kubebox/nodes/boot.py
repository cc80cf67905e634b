"""One node: `python -m kubebox.nodes.boot FILE`, run by the supervisor as a component of the box.

    this process ──▶ first process of the node (pid, mount, network, UTS and IPC namespaces)
                       ├─ containerd ─▶ containers
                       ├─ kubelet
                       └─ kube-proxy

Killing it is pulling the plug: the kernel kills the first process of the node with it, and with that every
other one, containers among them. Starting it again is switching the machine on: files, images and volumes are
there, processes and /run are not. A daemon that ends is started again, as an init system would.

The node sees a root file system of its own, with what it writes in the box's folder; of the machine it sees
the kernel and the control groups.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox import cgroups, linux
from kubebox.nodes.machine import Machine
from kubebox.nodes.network import IpError, run_ip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kmsg")
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
# Settings of the whole machine. kubelet would change them to these values; in a node it finds them so, and
# the machine's stay as they are.
_MACHINE_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
_SOCKET = Path("/run/containerd/containerd.sock")
_SOCKET_SECONDS = 60.0
_PLUG_SECONDS = 10.0
_RESTART_SECONDS = 1.0
_LAST_WORDS = 2000


def main() -> None:
    """Be the node that a file describes."""
    machine = Machine.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    cgroups.clear(machine.cgroup)
    linux.unshare(linux.CLONE_NEWNET | linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
    plug_in(machine)
    logs = {
        name: os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        for name, path in machine.logs.items()
    }
    reader, writer = os.pipe()
    linux.unshare(linux.CLONE_NEWPID)
    if os.fork() == 0:
        os.close(writer)
        linux.die_with_parent()
        _check_parent(reader)
        _first_process(machine, logs)
    os.close(reader)
    _, status = os.wait()
    sys.exit(os.waitstatus_to_exitcode(status) or 1)


def _check_parent(reader: int) -> None:
    """End at once if the parent did before the kernel was told to watch it: its pipe is closed then."""
    os.set_blocking(reader, False)
    with contextlib.suppress(BlockingIOError):
        if os.read(reader, 1) == b"":
            os._exit(1)


def plug_in(machine: Machine) -> None:
    """Connect the node's network namespace to the switch of its box."""
    rootfs, switch = Path(machine.rootfs), Path(machine.switch)
    deadline = time.monotonic() + _PLUG_SECONDS
    while True:
        try:
            peer = f"peer name eth0 netns {os.getpid()}"
            run_ip(rootfs, [f"link add {machine.port} type veth {peer}"], switch)
            break
        except IpError:
            # After a reboot, the link of the previous life may still be on its way out.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    run_ip(rootfs, [f"link set {machine.port} master switch", f"link set {machine.port} up"], switch)
    run_ip(
        rootfs,
        [
            "link set lo up",
            f"addr add {machine.address}/24 dev eth0",
            "link set eth0 up",
            *(f"route add {target} via {via}" for target, via in machine.routes),
        ],
    )


def _first_process(machine: Machine, logs: Mapping[str, int]) -> None:
    """Furnish the node and keep its daemons running; never returns."""
    try:
        _furnish(machine)
        socket.sethostname(machine.name)
        # Bytes: in the node, Python finds no more modules of its own, not even one for an encoding.
        Path("/proc/sys/net/ipv4/ip_forward").write_bytes(b"1")
        _keep(machine, logs)
    except BaseException as error:  # noqa: BLE001 - the end of the node, whatever it was
        os.write(2, f"{machine.name}: {type(error).__name__}: {error}\n".encode())
    os._exit(1)


def _furnish(machine: Machine) -> None:
    folder, root = Path(machine.folder), Path(machine.folder) / "root"
    linux.mount("none", Path("/"), None, linux.MS_REC | linux.MS_PRIVATE)
    for name in ("root", "written", "work"):
        (folder / name).mkdir(exist_ok=True)
    layers = f"lowerdir={machine.rootfs},upperdir={folder / 'written'},workdir={folder / 'work'}"
    linux.mount("node", root, "overlay", 0, layers)
    linux.mount("proc", root / "proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    linux.mount("sysfs", root / "sys", "sysfs", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    linux.bind(Path("/sys/fs/cgroup"), root / "sys" / "fs" / "cgroup", recursive=True)
    linux.mount("run", root / "run", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755")
    _pretend(root)
    linux.mount("dev", root / "dev", "tmpfs", linux.MS_NOSUID, "mode=755")
    for name in _DEVICES:
        if (Path("/dev") / name).exists():
            (root / "dev" / name).touch()
            linux.bind(Path("/dev") / name, root / "dev" / name)
    (root / "dev" / "shm").mkdir(mode=0o1777)
    for program, source in machine.programs.items():
        _show(Path(source), root / "usr" / "local" / "bin" / program, read_only=True)
    for place, source in machine.shows.items():
        _show(Path(source), root / place, read_only=False)
    for place, source in machine.shows_read_only.items():
        _show(Path(source), root / place, read_only=True)
    linux.change_root(root)
    # Mounts of volumes reach containers that asked to see them, as kubelet expects of a machine.
    linux.mount("none", Path("/"), None, linux.MS_REC | linux.MS_SHARED)


def _pretend(root: Path) -> None:
    # Not in the folder of the node: kubelet would take such a mount for the file system of its images.
    for name, value in _MACHINE_SETTINGS.items():
        pretended = root / "run" / "settings" / name
        pretended.parent.mkdir(parents=True, exist_ok=True)
        pretended.write_bytes(b"%d\n" % value)
        linux.bind(pretended, root / "proc" / "sys" / name)


def _show(source: Path, place: Path, *, read_only: bool) -> None:
    if source.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    linux.bind(source, place, read_only=read_only)


def _keep(machine: Machine, logs: Mapping[str, int]) -> None:
    """Start the daemons, and start again whichever ends, for ever."""
    running: dict[int, str] = {}
    for name in machine.daemons:
        running[_spawn(machine.daemons[name], logs[name])] = name
        if name == "containerd":
            _await_socket()
    while True:
        # Orphans of containers come to the first process of a machine: they are waited for and forgotten.
        pid, status = os.wait()
        if (ended := running.pop(pid, None)) is not None:
            code = os.waitstatus_to_exitcode(status)
            os.write(2, f"{machine.name}: {ended} ended with {code}; its last words:\n".encode())
            os.write(2, _last_words(logs[ended]))
            time.sleep(_RESTART_SECONDS)
            running[_spawn(machine.daemons[ended], logs[ended])] = ended


def _last_words(log: int) -> bytes:
    size = os.fstat(log).st_size
    text = os.pread(log, _LAST_WORDS, max(0, size - _LAST_WORDS))
    return b"".join(text.splitlines(keepends=True)[-3:])


def _await_socket() -> None:
    deadline = time.monotonic() + _SOCKET_SECONDS
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                probe.connect(str(_SOCKET))
                return
            time.sleep(0.05)
    raise TimeoutError(f"containerd does not listen after {_SOCKET_SECONDS:g} s")


def _spawn(argv: Sequence[str], log: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execve(argv[0], list(argv), _ENVIRONMENT)  # noqa: S606 - no shell wanted
    except OSError as error:
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    main()
