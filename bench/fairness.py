"""What 47 Slurm clusters notice of three hostile ones: one drips bytes, one answers 250 MB, one resets.

    fresh_p95_ms_alone     95th percentile of the time from the wish for a fresh list of nodes until a view
                           has it, over all clusters but three, while those three are well-behaved
    fresh_p95_ms_beside    the same while the three are hostile, and are asked as often as the others
    fresh_p95_ratio        the second by the first, the median of several turns of both
    peak_rss_mib           how much more memory the process had at its peak than before the hostile turns

The wish for a fresh list is what a deletion waits for, and the part of a NodeSet's reconcile that depends on
Slurm. The servers are a process of their own, and share the cores with what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bench.memory import resident_kib
from bench.report import baseline, keep, provenance, table
from slurm_operator.kube.log import LogOptions, configure
from slurm_operator.slurm.clients import ConnectionKey, Connections, Target
from slurm_operator.slurm.errors import Unavailable
from slurm_operator.slurm.token import FixedToken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.slurm.clients import Connection

GOALS = {"fresh_p95_ratio": ("≤", 2.0)}
HOSTILE = 3
DEADLINE = 60.0
# How often each cluster's list is wanted: a NodeSet that drains wants it every two seconds.
EVERY = 1.0


class Servers:
    """The process with the servers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ports(self) -> list[int]:
        """Return where they listen."""
        found: list[int] = json.loads(await self._line())
        return found

    async def order(self, what: str) -> None:
        """Make them `good` or `hostile`."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{what}\n".encode())
        await self._line()

    async def _line(self) -> bytes:
        if self._process.stdout is None:
            raise RuntimeError("the servers were started without a pipe")
        return await asyncio.wait_for(self._process.stdout.readline(), DEADLINE)


@asynccontextmanager
async def serving(clusters: int) -> AsyncIterator[Servers]:
    """Run the servers."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.crowd", str(clusters), stdin=pipe, stdout=pipe
    )
    try:
        yield Servers(process)
    finally:
        process.kill()
        await process.wait()


async def wish(connection: Connection, until: float, seconds: list[float]) -> None:
    """Want a fresh list again and again, and note how long each took."""
    loop = asyncio.get_running_loop()
    while (started := loop.time()) < until:
        with suppress(Unavailable):
            await connection.watch.refreshed(started, started + DEADLINE)
            seconds.append(loop.time() - started)
        await asyncio.sleep(max(0.0, started + EVERY - loop.time()))


async def turn(connections: list[Connection], seconds: float) -> float:
    """Return the 95th percentile, in milliseconds, of all clusters but the hostile ones."""
    until = asyncio.get_running_loop().time() + seconds
    took: list[float] = []
    disturbing = [asyncio.create_task(wish(one, until, [])) for one in connections[:HOSTILE]]
    spread = EVERY / len(connections)
    wishing = []
    for one in connections[HOSTILE:]:
        wishing.append(asyncio.create_task(wish(one, until, took)))
        await asyncio.sleep(spread)
    await asyncio.gather(*wishing)
    for task in disturbing:
        task.cancel()
    await asyncio.wait(disturbing)
    return statistics.quantiles(took, n=20)[-1] * 1e3


def peak_kib() -> int:
    """Return the most resident memory that this process ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


async def run(options: argparse.Namespace) -> dict[str, float]:
    """Take every figure."""
    connections = Connections(reason_prefix="slurm-operator: ")
    source = FixedToken("a-token")
    alone, beside = [], []
    async with serving(options.clusters) as servers:
        try:
            made = [
                connections.set(
                    ConnectionKey("Cluster", "tenants", str(port)),
                    Target(f"http://127.0.0.1:{port}", source.fingerprint, source),
                )
                for port in await servers.ports()
            ]
            await turn(made, options.seconds)
            before = resident_kib()
            for _ in range(options.turns):
                await servers.order("good")
                alone.append(await turn(made, options.seconds))
                await servers.order("hostile")
                beside.append(await turn(made, options.seconds))
        finally:
            await connections.close()
    return {
        "fresh_p95_ms_alone": statistics.median(alone),
        "fresh_p95_ms_beside": statistics.median(beside),
        "fresh_p95_ratio": statistics.median(b / a for a, b in zip(alone, beside, strict=True)),
        "peak_rss_mib": (peak_kib() - before) / 1024,
        "clusters": options.clusters,
    }


def main() -> None:
    """Run the measurement, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=5, help="of either kind, one after the other")
    parser.add_argument(
        "--save-baseline", action="store_true", help="replace the committed baseline by this run"
    )
    options = parser.parse_args()
    configure(LogOptions(level=logging.ERROR))
    figures = asyncio.run(run(options))
    print(table(figures, baseline("fairness"), GOALS))
    keep("fairness", figures, provenance(), as_baseline=options.save_baseline)


if __name__ == "__main__":
    main()
