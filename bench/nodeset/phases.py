"""What is measured, one function each; each leaves the operator at rest.

"At rest" means that neither the API server nor Slurm has been written to for a few seconds. Times end with
what a user sees: the pod, its deletion, the NodeSet's status.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import processor
from bench.load import RawClient, in_parallel
from bench.nodeset.stage import DEADLINE, Pods, following
from bench.nodeset.standin import WRITES
from slurm_operator.kube.errors import AlreadyExists
from slurm_operator.kube.models.kinds import Namespace

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable

    from bench.nodeset.operator import Operator, Reading
    from bench.nodeset.stage import Stage
    from kubebox import Box

Figures = dict[str, float]


@dataclass(frozen=True)
class Run:
    """The operator, the namespace it works in, and the machine below."""

    box: Box
    stage: Stage
    operator: Operator
    quiet: float
    """For how long nothing must have been written to call it rest."""

    async def at_rest(self) -> Reading:
        """Wait until nothing has been written for a while, and return what was read off then."""
        # The more nodes there are, the less often they are listed, and the later what is left to write: a
        # list takes 0.3 ms a node, and polling a tenth of the time.
        await until_rest(self._written, lambda: self.quiet + len(self.stage.pods.staying) / 300)
        return await self.operator.reading()

    async def _written(self) -> tuple[int, int]:
        reading = await self.operator.reading()
        return reading.writes.total(), sum(self.stage.standin.counts[name] for name in WRITES)


async def until_rest(written: Callable[[], Awaitable[object]], quiet: Callable[[], float]) -> None:
    """Wait until what was written has stayed the same for so many seconds."""
    end = time.monotonic() + DEADLINE
    last, since = await written(), time.monotonic()
    while time.monotonic() - since < quiet():
        if time.monotonic() > end:
            raise RuntimeError(f"the operator still writes after {DEADLINE:g} s")
        # A scrape costs the operator a hundredth of a second.
        await asyncio.sleep(1.0)
        if (now := await written()) != last:
            last, since = now, time.monotonic()


class Span:
    """What the operator did between two moments."""

    def __init__(self, before: Reading, after: Reading, slurm: Counter[str]) -> None:
        self.writes = after.since(before)
        self.cpu = after.cpu - before.cpu
        self.slurm = slurm

    def figures(self, name: str) -> Figures:
        """Return its figures under a common name."""
        return {
            f"{name}_writes": self.writes.total(),
            f"{name}_slurm_requests": self.slurm.total(),
            f"{name}_cpu_seconds": self.cpu,
        }


class Stint:
    """What everything here has taken, on the clock and of the processors, since a moment ago."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._used = processor.used()

    @classmethod
    def begun(cls) -> Stint:
        """Begin now."""
        return cls(time.monotonic())

    def figures(self, name: str, moment: float) -> Figures:
        """Return what it took until a moment ago."""
        return {
            f"{name}_seconds": moment - self._started,
            f"{name}_work_seconds": processor.used() - self._used,
        }


async def raw_scale_out(run: Run, workers: int) -> Figures:
    """Create the same pods with a plain client, wait until all are ready, and take them away again.

    They are behind the same Service and the same budget: what Kubernetes itself does for these with each pod
    is done whoever creates the pods. And they exist when a watch of this process has shown all of them, as
    those of the operator do: an answer to the last request would come earlier.
    """
    namespace = "raw"
    manifest = await run.stage.manifest()
    raw, pods = RawClient(run.box), Pods(run.stage.client, namespace)
    path = f"/api/v1/namespaces/{namespace}/pods"
    names = [f"worker-{number}" for number in range(workers)]

    async def create(name: str) -> None:
        pod = {**manifest, "metadata": {**manifest["metadata"], "name": name}}
        await raw.send("POST", path, json.dumps(pod).encode())

    try:
        with suppress(AlreadyExists):
            await run.stage.client.create(Namespace, {"metadata": {"name": namespace}})
            for where, beside in await run.stage.surroundings(namespace):
                await raw.send("POST", where, json.dumps(beside).encode())
        await _service_account(run, namespace)
        async with following(pods.informer):
            stint = Stint(time.monotonic())
            await in_parallel(names, create)
            created = await run.stage.until(lambda: len(pods.staying) == workers, "raw pods exist", pods)
            figures = stint.figures("raw_created", created)
            ready = await run.stage.until(lambda: len(pods.ready) == workers, "raw pods are ready", pods)
            figures |= stint.figures("raw_ready", ready)
            # One request for all of them would outlast the minute that the API server gives a request.
            await in_parallel(names, lambda name: raw.send("DELETE", f"{path}/{name}", b""))
            await run.stage.until(lambda: not pods.informer.store.list(), "raw pods are gone", pods)
    finally:
        await raw.close()
    return figures


def compared(figures: Figures, plain: list[Figures]) -> Figures:
    """Return what a scale-out took as a multiple of what a plain client took, before and after it.

    The plain client only sees pods that are ready; that the status says so, too, is part of ours.
    """
    raw = {name: statistics.mean(one[name] for one in plain) for name in plain[0]}

    def ratio(name: str) -> float:
        return figures[f"scale_out_{name}"] / raw[f"raw_{name}"]

    return raw | {
        "scale_out_created_ratio": ratio("created_seconds"),
        "scale_out_ready_ratio": ratio("ready_seconds"),
        "scale_out_created_work_ratio": ratio("created_work_seconds"),
        "scale_out_ready_work_ratio": ratio("ready_work_seconds"),
    }


async def _service_account(run: Run, namespace: str) -> None:
    """Wait for the controller manager to make the account without which no pod is accepted."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"

    async def made() -> bool:
        return bool(json.loads(await run.stage.client.raw("GET", path))["items"])

    await _eventually(made)


async def scale_out(run: Run, workers: int, name: str = "scale_out") -> Figures:
    """Ask for that many workers and wait until the status says that all are ready."""
    stage = run.stage
    before, asked = await run.at_rest(), stage.standin.counts.copy()
    stint = Stint(await stage.change(replicas=workers))
    created = await stage.until(lambda: len(stage.pods.staying) == workers, "all workers exist")
    figures = stint.figures(f"{name}_created", created)
    ready = await stage.until(lambda: stage.nodeset.status.ready_replicas == workers, "all are ready")
    figures |= stint.figures(f"{name}_ready", ready)
    after = await run.at_rest()
    return figures | Span(before, after, stage.standin.counts - asked).figures(name)


async def idle(run: Run, seconds: float) -> Figures:
    """Do nothing for a while; figures are those of one minute."""
    before, asked = await run.at_rest(), run.stage.standin.counts.copy()
    await asyncio.sleep(seconds)
    after = await run.operator.reading()
    found = Span(before, after, run.stage.standin.counts - asked).figures("idle")
    return {name: value * 60.0 / seconds for name, value in found.items()}


async def scale_in(run: Run, workers: int) -> Figures:
    """Take idle workers away until that many are left."""
    stage = run.stage
    before, asked = await run.at_rest(), stage.standin.counts.copy()
    present = len(stage.pods.staying)
    drains = len(stage.standin.before_drains)
    started = await stage.change(replicas=workers)
    began = await stage.until(lambda: len(stage.pods.staying) < present, "the first was told to go")
    confirmed = stage.standin.counts.copy()
    ended = await stage.until(lambda: len(stage.pods.staying) == workers, "the others were told to go")
    slurm = stage.standin.counts - asked
    after = await run.at_rest()
    span = Span(before, after, stage.standin.counts - asked)
    lists = _lists(slurm, "nodes") - _lists(confirmed - asked, "nodes")
    # While thousands of pods are cordoned before the drain, nodes are listed by the clock.
    wave = confirmed - stage.standin.before_drains[drains]
    return {
        "scale_in_seconds": ended - started,
        "scale_in_slurm_requests_until_confirmed": wave.total() - _aside(wave),
        "scale_in_slurm_lists_per_two_seconds": lists / max(1, math.ceil((ended - began) / 2.0)),
        "scale_in_waves": len(stage.standin.before_drains) - drains,
        "scale_in_writes_per_pod": (span.writes.total() - span.writes["DELETE"]) / (present - workers),
        **span.figures("scale_in"),
        "scale_in_slurm_nodes": _lists(slurm, "nodes"),
        "scale_in_slurm_jobs": _lists(slurm, "jobs"),
        "scale_in_slurm_aside": _aside(slurm),
    }


def _lists(asked: Counter[str], what: str) -> int:
    """Return how many lists of something were asked for, whether anything was new in them or not."""
    return asked[what] + asked[f"{what} unchanged"]


def _aside(asked: Counter[str]) -> int:
    """Return how many requests are sent by the clock, whatever goes on: they belong to no wave."""
    clocked = ("ping", "diag", "reservations", "reservations unchanged")
    return sum(asked[what] for what in clocked)


async def rolling_update(run: Run) -> Figures:
    """Change the template and wait until all workers are new and ready."""
    stage = run.stage
    before, asked = await run.at_rest(), stage.standin.counts.copy()
    workers, old = len(stage.pods.staying), stage.nodeset.status.node_set_hash
    started = await stage.change(slurmd={"image": "example.org/slurmd:2"})

    def done() -> bool:
        status = stage.nodeset.status
        return status.node_set_hash != old and status.updated_replicas == status.ready_replicas == workers

    ended = await stage.until(done, "all workers are new and ready")
    after = await run.at_rest()
    span = Span(before, after, stage.standin.counts - asked)
    return {"update_workers": workers, "update_seconds": ended - started, **span.figures("update")}


async def job_end(run: Run, count: int, nodes_per_job: int = 1) -> Figures:
    """Give every worker a job, scale in by some, end the jobs one by one, and see how soon each pod goes."""
    stage, slurmctld = run.stage, run.stage.slurmctld
    await run.at_rest()
    jobs = _busy(stage, nodes_per_job)
    left = len(stage.pods.staying) - count
    await stage.change(replicas=left)

    def draining() -> list[str]:
        return [name for name in jobs if "DRAIN" in slurmctld.nodes[name]["state"]]

    async def all_drain() -> bool:
        return len(draining()) == count

    await _eventually(all_drain)
    asked, begun = stage.standin.counts.copy(), time.monotonic()
    ended: dict[str, float] = {}
    going = draining()
    for job in dict.fromkeys(jobs[name] for name in going):
        ended |= dict.fromkeys((name for name in jobs if jobs[name] == job), time.monotonic())
        slurmctld.end_job(job)
        await asyncio.sleep(random.uniform(0.0, 0.2))  # noqa: S311 - not in step with any poll
    over = await stage.until(lambda: len(stage.pods.staying) == left, "the pods of ended jobs were deleted")
    slurm = stage.standin.counts - asked
    # Of a job of several nodes, the operator may delete another worker than it drained first.
    gone = {name: stage.pods.left.get(name, 0.0) for name in ended}
    waited = sorted(gone[name] - moment for name, moment in ended.items() if gone[name] > moment)
    for job in {*jobs.values()} - {jobs[name] for name in ended}:
        slurmctld.end_job(job)
    await run.at_rest()
    return {
        "job_end_p50_seconds": _percentile(waited, 0.5),
        "job_end_p95_seconds": _percentile(waited, 0.95),
        "job_end_jobs": len({*jobs.values()}),
        "job_end_seconds": over - begun,
        **{f"job_end_slurm_{what}": _lists(slurm, what) for what in ("nodes", "jobs", "job_states")},
    }


def _busy(stage: Stage, nodes_per_job: int) -> dict[str, str]:
    """Start jobs of so many nodes until every node in service has one; return the job of each node."""
    names, jobs = _in_service(stage), dict[str, str]()
    for start in range(0, len(names), nodes_per_job):
        together = names[start : start + nodes_per_job]
        jobs |= dict.fromkeys(together, stage.slurmctld.run_job(",".join(together)))
    return jobs


async def _eventually(question: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not await question():  # noqa: ASYNC110 - nobody could set an event
            await asyncio.sleep(0.1)


def _in_service(stage: Stage) -> list[str]:
    return [name for name in stage.slurmctld.nodes if stage.slurmctld.nodes[name]["state"][0] == "IDLE"]


def _percentile(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


async def memory(run: Run, name: str) -> Figures:
    """Return the memory that the operator holds now."""
    return {f"rss_mib_{name}": (await run.operator.reading()).resident_mib}


async def grown(run: Run, workers: int) -> Figures:
    """Scale out, and return the memory that the operator holds when all are ready, and the most it had."""
    stage = run.stage
    await stage.change(replicas=workers)
    await stage.until(lambda: stage.nodeset.status.ready_replicas == workers, "all are ready")
    found = await memory(run, str(workers))
    return found | {f"peak_mib_{workers}": run.operator.peak_mib}


async def stalls(run: Run, workers: int) -> Figures:
    """Return the longest stall so far, with so many workers."""
    reading = await run.operator.reading()
    return {
        f"stall_ms_{workers}": reading.longest_stall * 1e3,
        f"stall_cpu_ms_{workers}": reading.busiest_stall * 1e3,
        f"stall_own_ms_{workers}": reading.own_stall * 1e3,
    }
