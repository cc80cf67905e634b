"""A process that watches pods, and tells what that costs.

`ours` does what every controller does: an informer with an index, feeding a work queue. `raw` opens the same
watch with plain aiohttp, counts the lines and throws them away: what HTTP and TLS alone cost here.

It is a process of its own so that its CPU time and memory are its own. It prints a JSON line when it starts,
one when it is in sync, and one for every line it reads from standard input; it ends when that does.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from bench.memory import resident_kib
from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.process import memory
from slurm_operator.kube.process.log import LogOptions, configure
from slurm_operator.kube.process.loop_turns import timed_loop
from slurm_operator.kube.runtime.work_queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.kube.client.config import ClientConfig
    from slurm_operator.kube.models.meta import Key
    from slurm_operator.kube.models.store import Change


# Chunks that hold one whole event at least: it tells where to resume.
_TAIL = 16


class Seen(NamedTuple):
    """How far a watcher is: changes so far, objects held, and when the last change came."""

    changes: int
    objects: int
    changed_at: float = 0.0


@asynccontextmanager
async def watch_ours(config: ClientConfig, namespace: str) -> AsyncIterator[Callable[[], Seen]]:
    """Watch with the runtime; the block runs once the cache is filled."""
    changes, changed_at = 0, 0.0

    def on_change(change: Change[Pod]) -> None:
        nonlocal changes, changed_at
        changes, changed_at = changes + 1, time.monotonic()
        queue.add(change.key)

    async with Client(config) as client:
        queue: WorkQueue[Key] = WorkQueue("bench")
        informer = Informer(client, Pod, namespaces=[namespace])
        informer.add_index("node", lambda pod: [pod.spec.node_name or ""])
        informer.add_handler(on_change)
        running = asyncio.create_task(informer.run())
        await informer.wait_synced()
        memory.settle()
        yield lambda: Seen(changes, len(informer.store), changed_at)
        running.cancel()
        await asyncio.wait({running})


@asynccontextmanager
async def watch_raw(config: ClientConfig, namespace: str) -> AsyncIterator[Callable[[], Seen]]:
    """Watch with plain aiohttp and drop every event; resume where the server cuts a watcher it finds slow."""
    lines = 0
    url = f"{config.server}/api/v1/namespaces/{namespace}/pods"

    async def drain(session: aiohttp.ClientSession, version: str) -> None:
        nonlocal lines
        while True:
            query = {"watch": "true", "resourceVersion": version}
            tail: deque[bytes] = deque(maxlen=_TAIL)
            async with session.get(url, params=query, timeout=aiohttp.ClientTimeout()) as response:
                async for chunk in response.content.iter_any():
                    lines += chunk.count(b"\n")
                    tail.append(chunk)
            version = re.findall(rb'"resourceVersion":"(\d+)"', b"".join(tail).rpartition(b"\n")[0])[
                -1
            ].decode()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=config.ssl or False)) as session:
        async with session.get(url, params={"limit": "1"}) as listed:
            version = (await listed.json())["metadata"]["resourceVersion"]
        running = asyncio.create_task(drain(session, version))
        yield lambda: Seen(lines, 0)
        running.cancel()
        await asyncio.wait({running})


async def main(kubeconfig: str, namespace: str, how: str) -> None:
    """Watch the pods of a namespace and report."""
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)

    def report(seen: Seen, seconds: float = 0.0) -> None:
        usage = {"cpu": time.process_time(), "rss_kib": resident_kib(), "seconds": seconds}
        print(json.dumps({**seen._asdict(), **usage}), flush=True)

    config = load_config(kubeconfig)
    report(Seen(0, 0))
    started = time.perf_counter()
    async with (watch_ours if how == "ours" else watch_raw)(config, namespace) as look:
        report(look(), time.perf_counter() - started)
        while await stdin.readline():
            report(look())


if __name__ == "__main__":
    configure(LogOptions())
    # As the operator does.
    memory.relax()
    memory.tame()
    with asyncio.Runner(loop_factory=timed_loop) as runner:
        runner.run(main(*sys.argv[1:]))
