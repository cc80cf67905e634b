"""How much memory a process holds, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def resident_kib(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"no VmRSS in /proc/{pid}/status")
