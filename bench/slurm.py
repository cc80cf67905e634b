"""What the Slurm side costs, measured against one real slurmctld in one run.

    drain       requests and seconds until 1,000 nodes are drained and the view shows it; beside it a POST and
                a GET for each node, which is what the reference does, on some of the nodes and scaled up. Its
                waiting between those two (up to two seconds) is left out, in its favour
    poll        CPU of one poll of nodes that have not changed, HTTP included, and the part answered with 304
    decode      CPU of decoding one full list into structs; beside it json.loads of the same bytes
    fold        CPU of folding 5,000 names into a hostlist; beside it ClusterShell
    memory      what a process grows by when it holds the view and lists come in; and for each node, the view
                alone; the same with 20,000 and with 65,536 nodes, of a stand-in, and the most while a list
                is read

Requests are all that were sent from the wish to the view that shows it: the write, the list that shows it,
and the jobs that must agree. The watch trusts its lists by then, and has just pinged, so that nothing else
falls due in that moment. `drain_requests` begins with a view of the same second; `…_at_rest` with one that is
older, so that the nodes are looked at once more before the write.

Nodes are CLOUD records: real for slurmctld and slurmrestd, with nothing behind them. slurmctld and slurmrestd
share the cores with what is measured; CPU times are of our process only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
from ClusterShell.NodeSet import NodeSet  # type: ignore[import-untyped]

from bench import report
from bench.tenants import crowd
from kubebox.slurm import SlurmBox, SlurmSpec
from slurm_operator.kube.process.log import LogOptions, configure
from slurm_operator.slurm.decide.node_changes import Done, Drain, Undrain
from slurm_operator.slurm.decide.node_list_trust import TrustRules
from slurm_operator.slurm.decode.refusals import Question, Reply
from slurm_operator.slurm.decode.replies import NodesReply, read
from slurm_operator.slurm.model.hostlist import fold
from slurm_operator.slurm.rest.client import RestClient
from slurm_operator.slurm.watch.watcher import SlurmWatch
from slurm_operator.slurm.writer.node_writer import NodeWriter, WriterTiming

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.slurm.decide.node_changes import NodeChange
    from slurm_operator.slurm.rest.client import CallInfo

GOALS = {
    "drain_requests": ("≤", 3.0),
    "poll_cpu_ms": ("≤", 1.0),
    "poll_unchanged_part": ("≥", 1.0),
    "decode_cpu_ms": ("≤", 25.0),
    "fold_cpu_ms": ("≤", 20.0),
}
PREFIX = "slurm-operator: "
DEADLINE = 60.0
VIEW_DEADLINE = 300.0
# The largest installation that the chart's default is for, and the most nodes that a list may have.
LARGE = (20_000, 65_536)
# What takes minutes in a real cluster takes seconds here: when a watch trusts its lists is no figure.
TRUST = TrustRules(seconds=1.0, grace=1.0)
FOLDED = 5000


class Cluster(NamedTuple):
    """A cluster with a watch and a writer on it, and what they have asked so far."""

    rest: RestClient
    watch: SlurmWatch
    writer: NodeWriter
    requests: list[CallInfo]


@asynccontextmanager
async def connected(box: SlurmBox) -> AsyncIterator[Cluster]:
    """Connect as the operator does, and wait for a first view of everything."""
    requests: list[CallInfo] = []
    async with RestClient(box.url, box.token, observe=requests.append) as rest:
        watch = SlurmWatch(rest, trust=TRUST)
        writer = NodeWriter(rest, watch, reason_prefix=PREFIX)
        running = asyncio.create_task(watch.run())
        try:
            await _until(lambda: watch.view.complete)
            yield Cluster(rest, watch, writer, requests)
        finally:
            await writer.close()
            running.cancel()
            await asyncio.wait({running})


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - a figure of milliseconds needs no event
            await asyncio.sleep(0.001)


async def measure_drain(cluster: Cluster) -> dict[str, float]:
    """Drain every node, with a new view and with an older one, and take it all back each time."""
    loop, watch = asyncio.get_running_loop(), cluster.watch
    await _pinged(watch)
    figures = await _drain(cluster)
    await _pinged(watch)
    await _until(lambda: watch.view.age(loop.time()) > WriterTiming().fresh)
    at_rest = await _drain(cluster)
    return figures | {"drain_requests_at_rest": at_rest["drain_requests"]}


async def _pinged(watch: SlurmWatch) -> None:
    """Wait for the next ping, which is the last request of a round."""
    before = watch.view.controllers_pinged_at
    await _until(lambda: watch.view.controllers_pinged_at != before)


async def _drain(cluster: Cluster) -> dict[str, float]:
    names = [*cluster.watch.view.nodes]
    cluster.requests.clear()
    started = time.perf_counter()
    await _write(cluster, names, Drain("benchmark"))
    written, moment = time.perf_counter(), asyncio.get_running_loop().time()
    await _until(lambda: _drained(cluster.watch, names, newer_than=moment))
    shown, asked = time.perf_counter(), [info.operation for info in cluster.requests]
    await _write(cluster, names, Undrain())
    return {
        "drain_requests": len(asked),
        "drain_seconds": written - started,
        "drain_shown_seconds": shown - started,
    }


async def _write(cluster: Cluster, names: list[str], change: NodeChange) -> None:
    outcomes = await cluster.writer.write(dict.fromkeys(names, change))
    if bad := {name: outcome for name, outcome in outcomes.items() if outcome != Done()}:
        name, outcome = next(iter(bad.items()))
        raise RuntimeError(f"{len(bad)} nodes were not changed, such as {name}: {outcome}")


def _drained(watch: SlurmWatch, names: list[str], newer_than: float) -> bool:
    view = watch.view
    if view.listed_at is None or view.listed_at <= newer_than:
        return False
    now = asyncio.get_running_loop().time()
    return all(view.drained(name, now, newer_than).drained for name in names)


async def measure_one_by_one(box: SlurmBox, names: list[str], total: int) -> dict[str, float]:
    """Drain nodes with a POST and a GET each, in rounds of 1, 2, 4, … at a time, and scale to the total."""
    root = f"{box.url}/slurm/v0.0.44"
    headers = {"X-SLURM-USER-TOKEN": box.token()}
    requests = 0

    async def drain(session: aiohttp.ClientSession, name: str) -> None:
        nonlocal requests
        body = {"state": ["DRAIN"], "reason": f"{PREFIX}benchmark"}
        async with session.post(f"{root}/node/{name}", json=body) as reply:
            reply.raise_for_status()
        async with session.get(f"{root}/node/{name}") as reply:
            await reply.json()
        requests += 2

    started = time.perf_counter()
    async with aiohttp.ClientSession(headers=headers) as session:
        left, size = names, 1
        while left:
            await asyncio.gather(*(drain(session, name) for name in left[:size]))
            left, size = left[size:], size * 2
    factor = total / len(names)
    return {
        "one_by_one_requests": requests * factor,
        "one_by_one_seconds": (time.perf_counter() - started) * factor,
    }


async def measure_poll(cluster: Cluster, rounds: int) -> dict[str, float]:
    """Poll for changes while there are none."""
    # The list must be older than the second in which the last change was made.
    await asyncio.sleep(2)
    listed = await cluster.rest.nodes()
    if listed is None:
        raise RuntimeError("a list that was asked for without a condition came back as unchanged")
    unchanged = 0
    started, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        unchanged += await cluster.rest.nodes(listed.last_update) is None
    return {
        "poll_cpu_ms": (time.process_time() - cpu) / rounds * 1e3,
        "poll_ms": (time.perf_counter() - started) / rounds * 1e3,
        "poll_unchanged_part": unchanged / rounds,
    }


async def measure_decode(box: SlurmBox, version: str, rounds: int) -> dict[str, float]:
    """Decode the same full list with either decoder, in turns."""
    url = f"{box.url}/slurm/{version}/nodes/"
    headers = {"X-SLURM-USER-TOKEN": box.token()}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        body = await answer.read()
    reply = Reply(200, "application/json", body)
    ours, plain = [], []
    for _ in range(rounds):
        ours.append(_cpu_ms(lambda: read(reply, NodesReply, Question("list nodes"))))
        plain.append(_cpu_ms(lambda: json.loads(body)))
    return {
        "decode_cpu_ms": statistics.median(ours),
        "decode_cpu_ms_json": statistics.median(plain),
        "list_kib": len(body) / 1024,
    }


def measure_fold(rounds: int) -> dict[str, float]:
    """Fold the same shuffled names with either implementation, in turns."""
    names = [f"worker-slinky-{number}" for number in range(FOLDED)]
    random.Random(1).shuffle(names)  # noqa: S311 - the same disorder every time
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_cpu_ms(lambda: fold(names)))
        theirs.append(_cpu_ms(lambda: str(NodeSet.fromlist(names))))
    return {"fold_cpu_ms": statistics.median(ours), "fold_cpu_ms_clustershell": statistics.median(theirs)}


def _cpu_ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1e3


async def measure_memory(box: SlurmBox, nodes: int) -> dict[str, float]:
    """Return what a process grows by that holds a view."""
    facts = await _view(box.url, box.token())
    return {
        "view_rss_mib": (facts["full_kib"] - facts["empty_kib"]) / 1024,
        "view_kib_per_node": (facts["view_kib"] - facts["empty_kib"]) / nodes,
    }


async def measure_large_memory(nodes: int) -> dict[str, float]:
    """Return the same for many nodes, which a stand-in for slurmrestd lists with all their fields."""
    async with crowd(1, f"--nodes={nodes}") as large:
        facts = await _view(large.addresses["urls"][0], "none")
    return {
        f"view_rss_mib_{nodes}": (facts["full_kib"] - facts["empty_kib"]) / 1024,
        f"view_peak_mib_{nodes}": (facts["peak_kib"] - facts["empty_kib"]) / 1024,
    }


async def _view(url: str, token: str) -> dict[str, float]:
    """Let a process of its own hold a view, and return what it says about its memory."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "bench.slurmview", url]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    output, _ = await asyncio.wait_for(process.communicate(token.encode()), VIEW_DEADLINE)
    if process.returncode != 0:
        raise RuntimeError(f"the process that holds a view ended with exit code {process.returncode}")
    facts: dict[str, float] = json.loads(output)
    return facts


async def run(options: argparse.Namespace) -> tuple[dict[str, float], dict[str, str]]:
    """Take every figure on one cluster."""
    spec = SlurmSpec(nodes=0, cloud_nodes=options.nodes)
    with await asyncio.to_thread(SlurmBox.up, spec) as box:
        async with connected(box) as cluster:
            figures = await measure_drain(cluster)
            names = sorted(cluster.watch.view.nodes)
            version = cluster.rest.version or ""
            figures |= await measure_poll(cluster, options.polls)
        figures |= await measure_one_by_one(box, names[: options.one_by_one], options.nodes)
        figures |= await measure_decode(box, version, options.rounds)
        figures |= measure_fold(options.rounds)
        figures |= await measure_memory(box, options.nodes)
        for nodes in LARGE:
            figures |= await measure_large_memory(nodes)
        return figures | {"nodes": options.nodes}, report.provenance(slurm=box.version)


def main() -> None:
    """Run the measurements, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--one-by-one", type=int, default=100, help="nodes that are drained one by one")
    parser.add_argument("--polls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=11, help="turns of each comparison of CPU time")
    report.add_options(parser)
    options = parser.parse_args()
    configure(LogOptions())
    report.measure("slurm", options, lambda: asyncio.run(run(options)), GOALS)


if __name__ == "__main__":
    main()
