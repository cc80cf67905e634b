"""What the benchmark of NodeSets does on one API server, from the first pod to the last figure."""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

from bench import report
from bench.nodeset import phases
from bench.nodeset.figures import Sizes
from bench.nodeset.machines import running_machines
from bench.nodeset.operator import running
from bench.nodeset.stage import NAMESPACE, staged
from kubebox import Box, BoxSpec
from slurm_operator.api.schema import all_crds
from slurm_operator.kube.process.log import LogOptions, configure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

SPEC = BoxSpec(controller_manager=True, scheduler=True)
# Pods per node; it has room for 250.
_PER_NODE = 100


async def measure(box: Box, sizes: Sizes, log: Path) -> phases.Figures:
    """Take every figure."""
    workers, most = sizes.workers, sizes.most
    async with (
        running_machines(box, machines(sizes)),
        staged(box, 1) as stage,
        running(box, NAMESPACE, log, core=sizes.core) as operator,
    ):
        run = phases.Run(box, stage, operator, sizes.quiet_seconds)
        figures = await _scale_out(run, sizes)
        figures |= await told("scale-in", phases.scale_in(run, workers // 2))
        figures |= await told("rolling update", phases.rolling_update(run))
        if sizes.jobs:
            figures |= await told("ends of jobs", phases.job_end(run, min(sizes.jobs, workers // 4)))
        figures |= await phases.memory(run, "after_all")
        figures |= await phases.stalls(run, workers)
        if most > workers:
            figures |= await told("scale-out to the most", phases.scale_out(run, most, "most"))
            figures |= await phases.memory(run, str(most))
            figures |= await phases.stalls(run, most)
    return figures


async def measure_scale_out(box: Box, sizes: Sizes, log: Path) -> phases.Figures:
    """Take the figures of a scale-out, the minute after it, the plain client and turns, and nothing else."""
    async with (
        running_machines(box, machines(sizes)),
        staged(box, 1) as stage,
        running(box, NAMESPACE, log, core=sizes.core) as operator,
    ):
        run = phases.Run(box, stage, operator, sizes.quiet_seconds)
        return await _scale_out(run, sizes) | await phases.stalls(run, sizes.workers)


async def _scale_out(run: phases.Run, sizes: Sizes) -> phases.Figures:
    """Scale out and do nothing for a minute, between the turns of the plain client."""
    stage, workers = run.stage, sizes.workers
    await stage.until(lambda: stage.nodeset.status.ready_replicas == 1, "the first worker is ready")
    await run.at_rest()
    plain = [await told("plain client", phases.raw_scale_out(run, workers))] if sizes.plain_runs else []
    figures = await told("scale-out", phases.scale_out(run, workers))
    figures |= await told("idle", phases.idle(run, sizes.idle_seconds))
    figures |= await phases.memory(run, str(workers))
    if sizes.plain_runs > 1:
        plain.append(await told("plain client", phases.raw_scale_out(run, workers)))
    return figures | phases.compared(figures, plain) if plain else figures


async def measure_ended_jobs(
    box: Box, workers: int, jobs: int, nodes_per_job: int, log: Path
) -> phases.Figures:
    """Take how soon pods are deleted after the end of their jobs with so many workers, and nothing else."""
    async with (
        running_machines(box, max(3, math.ceil(workers / _PER_NODE))),
        staged(box, 1) as stage,
        running(box, NAMESPACE, log) as operator,
    ):
        run = phases.Run(box, stage, operator, Sizes.quiet_seconds)
        await told("scale-out", phases.grown(run, workers))
        figures = await told("ends of jobs", phases.job_end(run, min(jobs, workers // 4), nodes_per_job))
        return figures | {"workers": workers}


async def measure_memory(box: Box, counts: list[int], log: Path) -> phases.Figures:
    """Take the operator's memory with so many workers, one after the other, and nothing else."""
    figures: phases.Figures = {}
    async with (
        running_machines(box, max(3, math.ceil(max(counts) / _PER_NODE))),
        staged(box, 1) as stage,
        running(box, NAMESPACE, log) as operator,
    ):
        run = phases.Run(box, stage, operator, quiet=0.0)
        for count in counts:
            figures |= await told(f"memory with {count}", phases.grown(run, count))
    return figures


async def told(what: str, phase: Awaitable[phases.Figures]) -> phases.Figures:
    """Say what is being measured: it takes minutes."""
    print(f"  {what} …", file=sys.stderr, flush=True)
    figures = await phase
    for name, value in figures.items():
        print(f"    {name:28} {value:12.2f}", file=sys.stderr, flush=True)
    return figures


def machines(sizes: Sizes) -> int:
    """Return how many nodes have room for all workers, and for those of the plain client beside the first."""
    return max(3, math.ceil(max(2 * sizes.workers, sizes.most) / _PER_NODE))


async def run(taking: Callable[[Box], Awaitable[phases.Figures]]) -> tuple[phases.Figures, dict[str, str]]:
    """Take figures on one API server."""
    with await asyncio.to_thread(Box.up, SPEC) as box:
        crds = json.dumps({"apiVersion": "v1", "kind": "List", "items": all_crds()})
        await asyncio.to_thread(box.kubectl, "apply", "--server-side", "-f", "-", stdin=crds)
        await asyncio.to_thread(box.kubectl, "wait", "--for=condition=Established", "crd", "--all")
        figures = await taking(box)
        shown = await asyncio.to_thread(box.kubectl, "version", "-o", "json")
        version = json.loads(shown)["serverVersion"]["gitVersion"]
        return figures, report.provenance(kubernetes=version)


def take_alone(
    part: Callable[..., Awaitable[phases.Figures]], sizes: Sizes
) -> tuple[phases.Figures, dict[str, str]]:
    """Take figures in a process of its own, so that nothing is slower for what earlier runs have left."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_figures, args=(sender, part, sizes))
    process.start()
    sender.close()
    try:
        found: tuple[phases.Figures, dict[str, str]] = receiver.recv()
    except EOFError:
        raise SystemExit("bench.nodeset: the process that takes the figures failed") from None
    finally:
        if sys.exc_info()[0] is not None:
            process.terminate()
        process.join()
    return found


def _send_figures(sender: Connection, part: Callable[..., Awaitable[phases.Figures]], sizes: Sizes) -> None:
    configure(LogOptions())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    sender.send(asyncio.run(run(partial(part, sizes=sizes))))


def _interrupt_once(_number: int, _frame: object) -> None:
    """End as after Ctrl-C, and what was started with it; a terminal and the parent may both send a signal."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
