"""Measure what an open status page costs the operator: `python -m bench.status_page [--workers 1000]`.

    rest, life     processor time of the operator in percent of one core, without a page: at rest, and while
                   jobs start and end on nodes
    page_*         the same with one page open: its stream, and its list of jobs every ten seconds
    cost_*         the difference
    overview_ms, workers_ms, snapshot_ms
                   how long a request takes, and the first event of a stream
    rss            memory of the operator with the page open

One page after the other is opened and closed, so that a trend of the machine is in both figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import math
import random
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from bench import report
from bench.nodeset import phases
from bench.nodeset.machines import running_machines
from bench.nodeset.measurements import run as run_on_box
from bench.nodeset.operator import running
from bench.nodeset.stage import NAMESPACE, staged
from slurm_operator.kube.process.log import LogOptions, configure
from slurm_operator.status_rows import AUDIENCE, TOKEN_HEADER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.nodeset.operator import Operator
    from bench.nodeset.phases import Figures
    from bench.nodeset.stage import Stage
    from kubebox import Box

_PER_NODE: Final = 100
_JOBS_EVERY: Final = 10.0
_ROUNDS: Final = 3
_WORDS: Final = {
    "rest_percent": "at rest: percent of one core",
    "page_rest_percent": "… with one page open",
    "cost_rest_percent": "… cost of the page",
    "life_percent": "two nodes a second change: percent of one core",
    "page_life_percent": "… with one page open",
    "cost_life_percent": "… cost of the page",
    "overview_ms": "milliseconds of a request for the overview",
    "workers_ms": "… for all workers",
    "snapshot_ms": "… for the first event of a stream",
    "rss_mib": "resident memory with a page open, MiB",
    "stall_cpu_ms": "longest turn of the event loop, scale-out included, ms of CPU time",
}
_GOALS: Final[report.Goals] = {"cost_rest_percent": ("≤", 2.0), "cost_life_percent": ("≤", 2.0)}


class PageReader:
    """Reads what a page reads."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def get(self, path: str) -> float:
        """Return how many milliseconds a request takes."""
        began = time.monotonic()
        async with self._session.get(f"{self._url}/{path}") as reply:
            await reply.read()
            reply.raise_for_status()
        return 1000 * (time.monotonic() - began)

    async def snapshot(self) -> float:
        """Return how many milliseconds pass until the first event of a stream is complete."""
        began = time.monotonic()
        async with self._session.get(f"{self._url}/stream") as reply:
            reply.raise_for_status()
            seen = b""
            async for part in reply.content.iter_any():
                seen = seen[-1:] + part
                if seen.endswith(b"\n\n"):
                    break
        return 1000 * (time.monotonic() - began)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep a page open until the block ends."""
        tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._list_jobs())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _follow(self) -> None:
        async with self._session.get(f"{self._url}/stream") as reply:
            reply.raise_for_status()
            async for _ in reply.content.iter_any():
                pass

    async def _list_jobs(self) -> None:
        while True:
            await self.get("jobs")
            await asyncio.sleep(_JOBS_EVERY)


async def viewer_token(box: Box) -> str:
    """Return a token that may see everything."""
    rule = ("--verb=list", "--resource=nodesets.slinky.slurm.net")
    await asyncio.to_thread(box.kubectl, "create", "clusterrole", "viewer", *rule)
    who = f"--serviceaccount={NAMESPACE}:default"
    await asyncio.to_thread(
        box.kubectl, "create", "clusterrolebinding", "viewer", "--clusterrole=viewer", who
    )
    create = ("create", "token", "default", "--namespace", NAMESPACE, "--audience", AUDIENCE)
    return (await asyncio.to_thread(box.kubectl, *create, "--duration=12h")).strip()


async def live(stage: Stage, every: float) -> None:
    """Start a job on some node, or end one, again and again."""
    names = [*stage.slurmctld.nodes]
    chance = random.Random(7)  # noqa: S311 - the same on every run
    jobs: list[str] = []
    for turn in itertools.count():
        if len(jobs) < len(names) // 3 or turn % 2:
            name = chance.choice(names)
            if not stage.slurmctld.busy(name):
                jobs.append(stage.slurmctld.run_job(name))
        else:
            stage.slurmctld.end_job(jobs.pop(0))
        await asyncio.sleep(every)


async def percent(operator: Operator, seconds: float) -> float:
    """Return how much of one core the operator takes."""
    before, began = (await operator.reading()).cpu, time.monotonic()
    await asyncio.sleep(seconds)
    return 100.0 * ((await operator.reading()).cpu - before) / (time.monotonic() - began)


async def compared(operator: Operator, page: PageReader, name: str, seconds: float) -> Figures:
    """Measure without and with a page, in turns."""
    without, opened = [], []
    for _ in range(_ROUNDS):
        without.append(await percent(operator, seconds))
        async with page.open():
            await asyncio.sleep(2.0)
            opened.append(await percent(operator, seconds))
    alone, beside = sum(without) / _ROUNDS, sum(opened) / _ROUNDS
    return {
        f"{name}_percent": alone,
        f"page_{name}_percent": beside,
        f"cost_{name}_percent": beside - alone,
    }


async def measure(box: Box, workers: int, seconds: float, every: float, log: Path) -> Figures:
    """Take every figure."""
    machines = max(3, math.ceil(workers / _PER_NODE))
    async with (
        running_machines(box, machines),
        staged(box, 1) as stage,
        running(box, NAMESPACE, log) as operator,
    ):
        run = phases.Run(box, stage, operator, 3.0)
        await stage.until(lambda: stage.nodeset.status.ready_replicas == 1, "the first worker is ready")
        print(f"  {workers} workers …", file=sys.stderr, flush=True)
        await phases.scale_out(run, workers)
        token = await viewer_token(box)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(headers={TOKEN_HEADER: token}, timeout=timeout) as session:
            page = PageReader(session, f"{operator.status}/api/v1")
            figures = await compared(operator, page, "rest", seconds)
            living = asyncio.create_task(live(stage, every))
            await asyncio.sleep(5.0)
            figures |= await compared(operator, page, "life", seconds)
            living.cancel()
            figures["overview_ms"] = await page.get("overview")
            figures["workers_ms"] = await page.get("workers")
            figures["snapshot_ms"] = await page.snapshot()
            reading = await operator.reading()
            figures["rss_mib"] = reading.resident_mib
            figures["stall_cpu_ms"] = 1000 * reading.busiest_stall
    return figures


def main() -> None:
    """Run the measurements, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the twelve measurements")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two changes of a node")
    report.add_options(parser)
    options = parser.parse_args()
    configure(LogOptions())
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "operator.log"
        take = partial(
            measure, workers=options.workers, seconds=options.seconds, every=options.every, log=log
        )
        report.measure("status_page", options, lambda: asyncio.run(run_on_box(take)), _GOALS, _WORDS)


if __name__ == "__main__":
    main()
