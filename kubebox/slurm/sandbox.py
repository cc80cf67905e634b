"""Compartments: where the daemons of a Slurm box run, and with which they end.

A compartment is what a pod is elsewhere: pid, mount and UTS namespaces of its own around a read-only root
file system with the box's folders mounted into it. Its first process does nothing but hold it: it reads a
pipe whose other end the supervisor keeps. When the supervisor lets go or is killed, the pipe ends, that
process ends, and the kernel kills whatever else runs in the compartment, jobs and all. The mounts belong to
the namespace and go with it; the machine's own tree never sees them.

The network is the machine's: all daemons of a box meet on 127.0.0.1.

Only a process with a single thread may use this module: it moves the calling process between namespaces for
the moment of a fork.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kubebox import linux
from kubebox.errors import BoxError
from kubebox.procs import tail
from kubebox.slurm.rootfs import USERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_DEVICES = ("null", "zero", "full", "random", "urandom")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class View:
    """What a compartment shows: a root file system, folders mounted into it, and a host name."""

    rootfs: Path
    # An empty folder; the file system is mounted there in the compartment's own mount namespace.
    root: Path
    hostname: str
    binds: Mapping[str, Path] = field(default_factory=dict)

    def enter(self) -> None:
        """Make the mounts and the host name in the namespaces of the calling process, and go inside."""
        linux.mount("none", Path("/"), None, linux.MS_REC | linux.MS_PRIVATE)
        linux.mount(self.rootfs, self.root, None, linux.MS_BIND)
        linux.mount("none", self.root, None, linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY)
        linux.mount("proc", self.root / "proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        linux.mount("dev", self.root / "dev", "tmpfs", linux.MS_NOSUID, "mode=755,size=64k")
        for name in _DEVICES:
            (self.root / "dev" / name).touch()
            linux.mount(Path("/dev") / name, self.root / "dev" / name, None, linux.MS_BIND)
        (self.root / "dev" / "shm").mkdir(mode=0o1777)
        for place, source in self.binds.items():
            linux.mount(source, self.root / place, None, linux.MS_BIND)
        socket.sethostname(self.hostname)
        os.chroot(self.root)
        os.chdir("/")


class Compartment:
    """A pod without Kubernetes: what is started in it ends with it."""

    def __init__(self, view: View, log: Path) -> None:
        self._root = view.root
        reader, writer = os.pipe()
        try:
            with _children_in(None), log.open("ab") as output:
                self._init = subprocess.Popen(
                    ["/usr/bin/cat"],
                    stdin=reader,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=ENVIRONMENT,
                    preexec_fn=lambda: _aloud(lambda: _become_init(view)),  # noqa: PLW1509 - one thread, see above
                )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(writer)
            raise BoxError(
                "cannot make the namespaces of a Slurm box, for which it takes root with CAP_SYS_ADMIN: "
                f"{error} {tail(log)}"
            ) from error
        finally:
            os.close(reader)
        self._writer = writer
        self._namespaces = [
            (os.open(f"/proc/{self.pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), flag)
            for name, flag in (("mnt", linux.CLONE_NEWNS), ("uts", linux.CLONE_NEWUTS))
        ]

    @property
    def pid(self) -> int:
        """The pid of the process that holds the compartment."""
        return self._init.pid

    def spawn(
        self, argv: Sequence[str], *, user: str, log: Path, env: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a program inside, as one of the users of the root file system."""

        def go_inside() -> None:
            for fd, flag in self._namespaces:
                linux.call("setns", fd, flag)
            os.chroot(self._root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(USERS[user])
            os.setuid(USERS[user])
            # A session of its own, as under an init system: daemons signal their whole process group.
            os.setsid()

        try:
            with _children_in(self.pid), log.open("ab") as output:
                return subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**ENVIRONMENT, **env},
                    preexec_fn=lambda: _aloud(go_inside),  # noqa: PLW1509 - one thread, see above
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise BoxError(f"cannot start {argv[0]} in its compartment: {error} {tail(log)}") from error

    def close(self) -> None:
        """End everything inside; its daemons must have been waited for, or the kernel holds up the end."""
        for fd, _ in self._namespaces:
            os.close(fd)
        os.close(self._writer)
        self._init.kill()
        self._init.wait()


@contextlib.contextmanager
def _children_in(pid: int | None) -> Iterator[None]:
    """Let the next children be born into the pid namespace of `pid`, or into a new one."""
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if pid is None:
            linux.call("unshare", linux.CLONE_NEWPID)
        else:
            away = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            try:
                linux.call("setns", away, linux.CLONE_NEWPID)
            finally:
                os.close(away)
        yield
    finally:
        linux.call("setns", home, linux.CLONE_NEWPID)
        os.close(home)


def _become_init(view: View) -> None:
    # Orphans come to the first process, which never waits for anybody: ignored children are not kept.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    linux.call("unshare", linux.CLONE_NEWNS | linux.CLONE_NEWUTS)
    view.enter()


def _aloud(work: Callable[[], None]) -> None:
    """Do the child's part after a fork; what goes wrong is told in the child's log, where it can be read."""
    try:
        work()
    except OSError as error:
        os.write(2, f"kubebox: {error}\n".encode())
        raise
