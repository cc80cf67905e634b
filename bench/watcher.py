"""One process that does what every controller does: an informer with an index, feeding a work queue.

It is a process of its own so that its CPU time and memory are its own. It prints a JSON line when it starts,
one when its cache is in sync, and one for every line it reads from standard input; it ends when that does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

from bench.memory import resident_kib
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import load_config
from slurm_operator.kube.informer import Informer
from slurm_operator.kube.log import LogOptions, configure
from slurm_operator.kube.models import Pod
from slurm_operator.kube.queue import WorkQueue

if TYPE_CHECKING:
    from slurm_operator.kube.meta import Key
    from slurm_operator.kube.store import Change


async def main(kubeconfig: str, namespace: str) -> None:
    """Watch the pods of a namespace and report."""
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    async with Client(load_config(kubeconfig)) as client:
        queue: WorkQueue[Key] = WorkQueue("bench")
        changes = 0

        def on_change(change: Change[Pod]) -> None:
            nonlocal changes
            changes += 1
            queue.add(change.key)

        informer = Informer(client, Pod, namespaces=[namespace])
        informer.add_index("node", lambda pod: [pod.spec.node_name or ""])
        informer.add_handler(on_change)

        def report(**more: float) -> None:
            facts = {"changes": changes, "objects": len(informer.store), "cpu": time.process_time()}
            print(json.dumps({**facts, "rss_kib": resident_kib(), **more}), flush=True)

        report()
        started = time.perf_counter()
        running = asyncio.create_task(informer.run())
        await informer.wait_synced()
        report(seconds=time.perf_counter() - started)
        while await stdin.readline():
            report()
        running.cancel()


if __name__ == "__main__":
    configure(LogOptions())
    asyncio.run(main(*sys.argv[1:]))
