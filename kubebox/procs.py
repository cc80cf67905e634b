"""Processes named so that a reused pid is never mistaken for the one we started.

A pid alone says little: the kernel hands it out again. A pid together with the process's start time (field
22 of /proc/<pid>/stat, in clock ticks since boot) is unique until the machine reboots, and a pidfd pins the
process while we compare, so the signal cannot go to a newcomer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1


def parse_stat(stat: str) -> tuple[str, int]:
    """Return state and start time in one line of /proc/<pid>/stat."""
    # The command name stands in brackets and may itself hold brackets and spaces: the last one ends it.
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def start_time(pid: int) -> int | None:
    """Return when the living process `pid` started, None when there is none."""
    try:
        state, started = parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A zombie has ended; it only waits for its parent to notice.
    return None if state in {"Z", "X"} else started


def frozen(pid: int) -> bool:
    """Say whether every thread of a process is stopped."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while we look.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.append(parse_stat((thread / "stat").read_text(encoding="utf-8", errors="replace"))[0])
    return all(state == "T" for state in states)


def children(pid: int) -> list[int]:
    """Return the processes that `pid` is the parent of just now."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def program_name(pid: int) -> str:
    """Return the name of the program that a process was started as; empty when there is no process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return words[0].rpartition(b"/")[2].decode(errors="replace")


@dataclass(frozen=True)
class ProcessId:
    """A process for good: its pid and when it started."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Name the living process `pid`, None when there is none."""
        started = start_time(pid)
        return None if started is None else cls(pid, started)

    def alive(self) -> bool:
        """Say whether this very process still runs."""
        return start_time(self.pid) == self.started

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; False when it is gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True


def die_with_parent() -> Callable[[], None]:
    """Return a function for the child side of a fork: the kernel kills the child when its parent dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def in_child() -> None:
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            os._exit(126)
        # The parent may have died between fork and prctl: then nobody would ever signal us.
        if os.getppid() != parent:
            os._exit(126)

    return in_child


def spawn(argv: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    """Start a program that writes to `log` and cannot outlive the calling process."""
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            # Only the supervisor calls this, and it has one thread, which lives as long as itself.
            preexec_fn=die_with_parent(),  # noqa: PLW1509
        )


def tail(log: Path, lines: int = 12) -> str:
    """Return the last lines of a log file, empty when there is none."""
    with contextlib.suppress(FileNotFoundError):
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    return ""


def python_module(module: str) -> list[str]:
    """Return the command line that runs one of our modules with this interpreter."""
    # -P keeps the working directory off sys.path: a stray file there must not shadow a module.
    return [sys.executable, "-P", "-m", module]
