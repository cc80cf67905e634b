"""How much processor time everything here has used: the API server, etcd, the operator, and this process.

On a machine that others use, seconds on the clock say little. What a client costs shows in the work that it
makes for all, and that is the same work on any day.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
# In /proc/PID/stat behind the name: the parent, and the time in user and in kernel mode.
_PARENT, _USER, _SYSTEM = 1, 11, 12


def used() -> float:
    """Return the processor time of this process and of all that it has started and that still run."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(folder.name)] = int(fields[_PARENT])
        seconds[int(folder.name)] = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
    return sum(seconds[pid] for pid in seconds if _descends(pid, parents))


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid and pid != os.getpid():
        pid = parents.get(pid, 0)
    return pid != 0
