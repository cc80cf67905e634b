"""What the controller runtime costs, measured against the same API server in one run.

    creates     pods created per second by our client ÷ by a plain aiohttp client, on 32 connections, in turns
    watch       CPU of a process with one informer, an index and a queue, per watch event, TLS included;
                beside it that of a process which opens the same watch and drops every byte
    burst       the same process with 10,000 events at once, from a stand-in: seconds, and CPU per event
    memory      resident memory per cached pod, and of a whole manager at rest
    sync        seconds until a fresh process has 5,000 pods in its cache

Ratios hold on any machine; the absolute figures belong to the machine named in the result. The API server,
etcd and the load share the cores with what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from bench import report
from bench.burst import Burst, serving
from bench.load import CONNECTIONS, RawClient, in_parallel, worker_pod
from bench.memory import resident_kib
from kubebox import Box, BoxSpec
from slurm_operator.api.schema import all_crds
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Pod

HERE = Path(__file__).resolve().parent
GOALS = {
    "creates_ratio": ("≥", 0.8),
    "watch_cpu_us_per_event": ("≤", 50.0),
    "watch_cpu_ratio": ("≤", 1.5),
    "burst_seconds": ("≤", 1.5),
    "burst_cpu_us_per_event": ("≤", 50.0),
    "rss_kib_per_pod": ("≤", 7.0),
    "manager_rss_mib": ("≤", 60.0),
}
SETTLE_SECONDS = 60.0
BURST_EVENTS = 10_000
Report = dict[str, float]


class Watcher:
    """A watcher process and the reports it gives."""

    def __init__(self, process: asyncio.subprocess.Process, base: Report, synced: Report) -> None:
        self._process = process
        self.base = base
        self.synced = synced

    @classmethod
    async def start(cls, kubeconfig: Path, namespace: str, how: str = "ours") -> Watcher:
        """Start a process and wait until its cache is in sync."""
        command = [sys.executable, "-m", "bench.watcher", str(kubeconfig), namespace, how]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        watcher = cls(process, {}, {})
        watcher.base = await watcher._read()
        watcher.synced = await watcher._read()
        return watcher

    async def _read(self) -> Report:
        if self._process.stdout is None:
            raise RuntimeError("the watcher has no standard output")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the watcher ended with exit code {await self._process.wait()}")
        facts: Report = json.loads(line)
        return facts

    async def report(self) -> Report:
        """Ask for the figures of this moment."""
        if self._process.stdin is None:
            raise RuntimeError("the watcher has no standard input")
        self._process.stdin.write(b"\n")
        return await self._read()

    async def report_after(self, changes: float) -> Report:
        """Ask until the watcher has seen that many changes."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while (facts := await self.report())["changes"] < changes:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the watcher saw {facts['changes']} of {changes} changes")
            await asyncio.sleep(0.2)
        return facts

    async def stop(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


async def create_pod(client: Client, namespace: str, name: str) -> None:
    """Create a worker pod with our client."""
    await client.create(Pod, worker_pod(name), namespace=namespace)


async def measure_creates(box: Box, raw: RawClient, count: int, rounds: int) -> dict[str, float]:
    """Create pods with either client in turns and compare the medians."""
    rates: dict[str, list[float]] = {"raw": [], "ours": []}
    async with Client(load_config(str(box.kubeconfig)), max_in_flight=CONNECTIONS) as client:
        for turn in range(-1, rounds):  # the first turn warms connections and the server's caches
            namespace = f"creates-{turn + 1}"
            await raw.make_namespace(namespace)
            for who in ("raw", "ours") if turn % 2 else ("ours", "raw"):
                names = [f"{who}-{number}" for number in range(count)]
                started = time.perf_counter()
                if who == "raw":
                    await raw.create_pods(namespace, names)
                else:
                    await in_parallel(names, partial(create_pod, client, namespace))
                if turn >= 0:
                    rates[who].append(count / (time.perf_counter() - started))
    ratios = [ours / plain for ours, plain in zip(rates["ours"], rates["raw"], strict=True)]
    return {
        "creates_ratio": statistics.median(ratios),
        "creates_per_second": statistics.median(rates["ours"]),
        "creates_per_second_raw": statistics.median(rates["raw"]),
    }


async def follow(box: Box, raw: RawClient, namespace: str, how: str, count: int) -> tuple[Report, Report]:
    """Let a process follow pods as they are made and start to run; return its reports before and after."""
    await raw.make_namespace(namespace)
    watcher = await Watcher.start(box.kubeconfig, namespace, how)
    names = [f"worker-{number:05d}" for number in range(count)]
    before = await watcher.report()
    await raw.create_pods(namespace, names)
    await raw.run_pods(namespace, names)
    after = await watcher.report_after(2 * count)
    await watcher.stop()
    return before, after


def cpu_per_change(before: Report, after: Report) -> float:
    """Return the CPU time between two reports for each change between them, in microseconds."""
    return (after["cpu"] - before["cpu"]) / (after["changes"] - before["changes"]) * 1e6


async def measure_cache(box: Box, raw: RawClient, count: int) -> dict[str, float]:
    """Let one process drop the events of pods coming up, one cache them, and a fresh one list them all."""
    plain = await follow(box, raw, "dropped", "raw", count)
    before, after = await follow(box, raw, "cached", "ours", count)
    fresh = await Watcher.start(box.kubeconfig, "cached")
    await fresh.stop()
    return {
        "watch_cpu_us_per_event": cpu_per_change(before, after),
        "watch_cpu_us_per_event_raw": cpu_per_change(*plain),
        "watch_cpu_ratio": cpu_per_change(before, after) / cpu_per_change(*plain),
        "watch_events": after["changes"] - before["changes"],
        "rss_kib_per_pod": (fresh.synced["rss_kib"] - fresh.base["rss_kib"]) / count,
        "rss_kib_per_pod_followed": (after["rss_kib"] - before["rss_kib"]) / count,
        "sync_seconds": fresh.synced["seconds"],
        "sync_cpu_seconds": fresh.synced["cpu"] - fresh.base["cpu"],
        "pods": count,
    }


async def measure_burst(count: int) -> dict[str, float]:
    """Let one process cache many events that come at once."""
    burst = Burst(count)
    with tempfile.TemporaryDirectory() as folder:
        async with serving(burst, Path(folder)) as kubeconfig:
            watcher = await Watcher.start(kubeconfig, "burst")
            before = await watcher.report()
            burst.begin()
            after = await watcher.report_after(count)
            await watcher.stop()
    return {
        "burst_seconds": after["changed_at"] - burst.began,
        "burst_cpu_us_per_event": cpu_per_change(before, after),
        "burst_event_bytes": burst.event_bytes,
        "burst_rss_mib": after["rss_kib"] / 1024,
    }


async def measure_manager(box: Box) -> dict[str, float]:
    """Start the real command and read its memory once it is ready."""
    box.kubectl(
        "apply",
        "--server-side",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": all_crds()}),
    )
    command = [sys.executable, "-m", "slurm_operator", "manager", "--kubeconfig", str(box.kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--metrics-addr=127.0.0.1:0",
        "--health-addr=127.0.0.1:0",
        "--status-addr=127.0.0.1:0",
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await asyncio.wait_for(_until_line(process, b"controllers started"), SETTLE_SECONDS)
        resident = resident_kib(process.pid)
    finally:
        process.terminate()
        await process.wait()
    return {"manager_rss_mib": resident / 1024}


async def _until_line(process: asyncio.subprocess.Process, text: bytes) -> None:
    while process.stderr is not None and (line := await process.stderr.readline()):
        if text in line:
            return
    raise RuntimeError("the manager ended before it was ready")


async def run(pods: int, rounds: int, per_round: int) -> tuple[dict[str, float], dict[str, str]]:
    """Take every figure on one API server."""
    with Box.up(BoxSpec(name="bench")) as box:
        raw = RawClient(box)
        try:
            figures = await measure_creates(box, raw, per_round, rounds)
            figures |= await measure_cache(box, raw, pods)
            figures |= await measure_burst(BURST_EVENTS)
            figures |= await measure_manager(box)
        finally:
            await raw.close()
        version = json.loads(box.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
        return figures, report.provenance(kubernetes=version)


async def run_burst() -> tuple[dict[str, float], dict[str, str]]:
    """Take the figures of a burst, which need no API server."""
    return await measure_burst(BURST_EVENTS), report.provenance()


def main() -> None:
    """Run the measurements, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5, help="turns of the create comparison")
    parser.add_argument("--per-round", type=int, default=600, help="pods per turn and client")
    parser.add_argument("--burst", action="store_true", help="take only the figures of a burst")
    report.add_options(parser)
    options = parser.parse_args()
    if options.burst:
        if options.save_baseline:
            parser.error("--burst is a part; the baseline has all figures")
        report.measure("burst", options, lambda: asyncio.run(run_burst()), GOALS)
        return
    take = partial(run, options.pods, options.rounds, options.per_round)
    report.measure("runtime", options, lambda: asyncio.run(take()), GOALS)


if __name__ == "__main__":
    main()
