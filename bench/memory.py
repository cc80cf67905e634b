"""How much memory a process holds, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def resident_kib(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    return _status_kib(pid, "VmRSS")


def peak_kib(pid: int | str = "self") -> int:
    """Return the most resident memory that a process ever had."""
    return _status_kib(pid, "VmHWM")


def _status_kib(pid: int | str, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/{pid}/status")
