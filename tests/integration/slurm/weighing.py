"""A process that watches one slurmrestd for two rounds, and tells what that took.

It is a process of its own so that its memory is its own. It prints one JSON line: what the view says, by how
much the most memory was more than before the first request, the CPU time, and that of the longest turn of the
event loop.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from slurm_operator.slurm.decide.node_list_trust import TrustRules
from slurm_operator.slurm.rest.client import RestClient, RestTiming
from slurm_operator.slurm.watch.watcher import SlurmWatch, WatchTiming

ROUNDS = 2
_TICK = 0.001


def memory_kib(what: str) -> int:
    """Return the resident memory of this process, now (`VmRSS`) or at its peak (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


def forget_peak() -> None:
    """Let the peak count from now on."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


async def _longest_turn(turns: list[float]) -> None:
    # Of this thread alone: what else the machine does, and other threads, count elsewhere.
    while True:
        before = time.thread_time()
        await asyncio.sleep(_TICK)
        turns.append(time.thread_time() - before)


async def weigh(url: str) -> dict[str, Any]:
    """Watch a server, and return what it took."""
    turns: list[float] = [0.0]
    async with RestClient(url, lambda: "a-token", timing=RestTiming(request=60.0)) as rest:
        watch = SlurmWatch(rest, timing=WatchTiming(failure_base=0.01, stale_after=60.0), trust=TrustRules())
        forget_peak()
        before, cpu = memory_kib("VmRSS"), time.process_time()
        ticking = asyncio.create_task(_longest_turn(turns))
        for _ in range(ROUNDS):
            await watch._round()
        ticking.cancel()
        view, now = watch.view, asyncio.get_running_loop().time()
        answer = view.node("n1", now)
        return {
            "failure": None if view.failure is None else [view.failure.kind, str(view.failure)],
            "jobs_failure": None if view.jobs_failure is None else view.jobs_failure.kind,
            "unplaced": [text[:300] for text in view.jobs.unplaced],
            "nodes": len(view.nodes),
            "answer": type(answer).__name__,
            "reason": getattr(answer, "reason", None),
            "drained": view.drained("free", now).drained,
            "drained_reason": view.drained("free", now).reason,
            "peak_mib": (memory_kib("VmHWM") - before) / 1024,
            "cpu_seconds": time.process_time() - cpu,
            "longest_turn_cpu_seconds": max(turns),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(weigh(sys.argv[1]))))  # noqa: T201 - the report
