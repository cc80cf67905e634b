"""A process that holds the view of one Slurm cluster, and tells what it grew by.

It is a process of its own so that its memory is its own. It reads a token from standard input and prints one
JSON line: its resident memory before the first list; when the view has been refreshed several times, which
counts what the allocator keeps of the lists before; when it has given that back, which is the view alone; and
the most that it had while it read them.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys

from bench.memory import peak_kib, resident_kib
from slurm_operator.kube.process import memory
from slurm_operator.kube.process.log import LogOptions, configure
from slurm_operator.slurm.rest.client import RestClient
from slurm_operator.slurm.watch.watcher import SlurmWatch, WatchTiming

DEADLINE = 60.0
# A first list alone would not show what is left over from decoding the ones before.
REFRESHES = 5


async def main(url: str, token: str) -> None:
    """Hold a view of everything and report."""
    loop = asyncio.get_running_loop()
    async with RestClient(url, lambda: token) as rest:
        await rest.ping()
        watch = SlurmWatch(rest, timing=WatchTiming(gap=0.0))
        empty = resident_kib()
        running = asyncio.create_task(watch.run())
        for _ in range(REFRESHES):
            await watch.refreshed(loop.time(), loop.time() + DEADLINE)
        memory.settle()
        full = resident_kib()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        facts = {"empty_kib": empty, "full_kib": full, "view_kib": resident_kib(), "peak_kib": peak_kib()}
        print(json.dumps(facts), flush=True)
        running.cancel()
        await asyncio.wait({running})


if __name__ == "__main__":
    configure(LogOptions())
    memory.relax()
    asyncio.run(main(sys.argv[1], sys.stdin.read().strip()))
