"""Who uses the processors: this benchmark with all that it has started, other processes, the hypervisor.

On a machine that others use, seconds on the clock say little. What a client costs shows in the processor time
of all processes that work for it, and that is the same on any day. How much the others use tells whether the
seconds can be trusted as well.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

_TICKS: Final = os.sysconf("SC_CLK_TCK")
# In /proc/PID/stat behind the name: the parent, the time in user and in kernel mode, and that of children
# that have ended.
_PARENT, _OWN, _ALL = 1, slice(11, 13), slice(11, 15)
# In the first line of /proc/stat.
_STEAL: Final = 8
_KTHREADD: Final = 2
# Of one core, over one window: less is the noise of any machine, more shows in the figures.
BUSY_CORES: Final = 0.25
WINDOW_SECONDS: Final = 10.0
_SHOWN: Final = 3


class Process(NamedTuple):
    """A process: its parent, its name, and its processor time with that of its children that have ended."""

    parent: int
    name: str
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """All processes, and the time that the hypervisor withheld, at one moment."""

    at: float
    stolen: float
    processes: Mapping[int, Process]


@dataclass(frozen=True)
class OtherLoad:
    """What others used between two moments, in cores: processes by name, and the hypervisor."""

    processes: Mapping[str, float] = field(default_factory=dict)
    stolen: float = 0.0

    @property
    def cores(self) -> float:
        """Return the sum of both."""
        return sum(self.processes.values()) + self.stolen

    @property
    def busy(self) -> bool:
        """Return whether seconds measured under this load are not to be trusted."""
        return self.cores > BUSY_CORES

    def __str__(self) -> str:
        """Return the load with the processes that use most of it."""
        top = Counter(self.processes).most_common(_SHOWN)
        shown = ", ".join(f"{name} {cores:.2f}" for name, cores in top if round(cores, 2) > 0)
        used = f"other processes use {sum(self.processes.values()):.2f} cores"
        return f"{used}{f' ({shown})' if shown else ''}, the hypervisor withholds {self.stolen:.2f}"


def other_load(before: Snapshot, after: Snapshot, root: int) -> OtherLoad:
    """Return what was used between two moments by all but the root process and its descendants.

    A process counts with its children that have ended, so that short ones are not missed. What had been
    counted of these while they ran is subtracted.
    """
    spent = {pid: process.seconds - _known(before, pid, process) for pid, process in after.processes.items()}
    for pid, process in before.processes.items():
        if _known(after, pid, process):
            continue
        heir = process.parent
        while heir not in after.processes and heir in before.processes:
            heir = before.processes[heir].parent
        if heir in spent:
            spent[heir] -= process.seconds
    parents = {pid: process.parent for pid, process in after.processes.items()}
    elapsed = max(after.at - before.at, 1e-9)
    found: dict[str, float] = {}
    for pid, seconds in spent.items():
        kernel = _KTHREADD in (pid, parents[pid])
        if not kernel and seconds > 0 and not _descends(pid, parents, root):
            name = after.processes[pid].name
            found[name] = found.get(name, 0.0) + seconds / elapsed
    return OtherLoad(found, max(0.0, after.stolen - before.stolen) / elapsed)


def _known(snapshot: Snapshot, pid: int, process: Process) -> float:
    """Return the time of the same process in a snapshot; another one may have got its ID meanwhile."""
    found = snapshot.processes.get(pid)
    return found.seconds if found is not None and found.name == process.name else 0.0


def take_snapshot() -> Snapshot:
    """Return what the kernel has counted until now."""
    stolen = int(Path("/proc/stat").read_text().split(maxsplit=_STEAL + 1)[_STEAL]) / _TICKS
    return Snapshot(time.monotonic(), stolen, _processes(_ALL))


def used() -> float:
    """Return the processor time of this process and of all that it has started and that still run."""
    found = _processes(_OWN)
    parents = {pid: process.parent for pid, process in found.items()}
    return sum(process.seconds for pid, process in found.items() if _descends(pid, parents, os.getpid()))


def _processes(counted: slice) -> dict[int, Process]:
    found: dict[int, Process] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            head, _, tail = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue  # it has just ended
        fields = tail.split()
        seconds = sum(map(int, fields[counted])) / _TICKS
        found[int(folder.name)] = Process(int(fields[_PARENT]), head.partition("(")[2], seconds)
    return found


def _descends(pid: int, parents: Mapping[int, int], root: int) -> bool:
    while pid and pid != root:
        pid = parents.get(pid, 0)
    return pid != 0


def load_now(seconds: float) -> OtherLoad:
    """Return what others use in the seconds from now on."""
    before = take_snapshot()
    time.sleep(seconds)
    return other_load(before, take_snapshot(), os.getpid())


class LoadWatch:
    """Keeps, while its block runs, the window in which others used most."""

    def __init__(self, window: float = WINDOW_SECONDS) -> None:
        self.worst = OtherLoad()
        self._window = window
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; the last window, which is shorter, does not count."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        before = take_snapshot()
        while not self._over.wait(self._window):
            after = take_snapshot()
            self.worst = max(self.worst, other_load(before, after, os.getpid()), key=lambda load: load.cores)
            before = after
