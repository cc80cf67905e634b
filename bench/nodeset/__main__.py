"""Measure the NodeSet controller at scale, in one run against one API server.

    scale_out   seconds until all workers exist, and until the status says that all are ready, divided by what
                a plain client needs for the same pods, before and after; the same with the processor time of
                all processes; writes, requests to Slurm and CPU time until rest
    idle        one minute at rest
    scale_in    half of the workers, all idle: requests to Slurm from the drain to the first deletion, then
                lists of nodes for each two seconds of deleting; writes for each pod beside its deletion
    update      a rolling update of the rest with a quarter unavailable
    job_end     from the end of a job to the deletion of its pod, which was held for it
    rss, stall  memory, and the longest turn of the event loop since the start: in CPU time, by the clock
                without the wait for a core, and with it, which is as long as others keep the cores from it

Ratios hold on any machine; the absolute figures belong to the machine named in the result. The API server,
etcd, the scheduler and what plays nodes and Slurm share the cores with what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import report
from bench.nodeset.figures import Sizes, goals, per_worker, per_worker_goals, per_worker_words, words
from bench.nodeset.measurements import (
    measure,
    measure_ended_jobs,
    measure_memory,
    measure_scale_out,
    run,
    take_alone,
)
from slurm_operator.kube.process.log import LogOptions, configure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.nodeset.phases import Figures


def main() -> None:
    """Run the measurements, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=Sizes.workers)
    parser.add_argument("--most", type=int, default=Sizes.most, help="workers of the last figures of memory")
    parser.add_argument(
        "--jobs", type=int, default=Sizes.jobs, help="workers whose jobs are ended; 0 leaves that out"
    )
    parser.add_argument(
        "--plain-runs",
        type=int,
        choices=(0, 1, 2),
        default=Sizes.plain_runs,
        help="how often the plain client creates the same pods",
    )
    parser.add_argument("--idle-seconds", type=float, default=Sizes.idle_seconds)
    parser.add_argument(
        "--scale-out",
        action="store_true",
        help="take only the scale-out, the minute at rest after it, and the plain client",
    )
    parser.add_argument(
        "--compare",
        type=int,
        metavar="WORKERS",
        help="take all figures with so many workers first, and compare the cost of each worker; no --most",
    )
    parser.add_argument(
        "--memory",
        type=int,
        nargs="+",
        metavar="WORKERS",
        help="take only the memory with so many workers, such as 5000 10000 20000",
    )
    parser.add_argument(
        "--ended-jobs",
        type=int,
        metavar="WORKERS",
        help="take only the time from the end of a job to the deletion of its pod, with so many workers",
    )
    parser.add_argument(
        "--nodes-per-job", type=int, default=1, help="with --ended-jobs: how many workers each job has"
    )
    parser.add_argument(
        "--own-core",
        action="store_true",
        help="keep one core for the operator alone, and everything else off it: no turn waits for a core",
    )
    parser.add_argument("--log", type=Path, help="keep the operator's log in this file")
    report.add_options(parser)
    parser.add_argument("--page", action="store_true", help="only write that table, from the baseline")
    options = parser.parse_args()
    if (options.scale_out or options.ended_jobs or options.own_core) and options.save_baseline:
        parser.error("--scale-out, --ended-jobs and --own-core have no baseline to save")
    sizes = Sizes(
        options.workers,
        0 if options.compare else options.most,
        options.jobs,
        options.idle_seconds,
        plain_runs=options.plain_runs,
        core=reserved_core() if options.own_core else None,
    )
    if options.page:
        page = report.markdown(report.baseline("nodeset"), goals(sizes), words(sizes))
        report.into_page(report.PAGE, "nodeset", page)
        return
    configure(LogOptions())
    # Ends as after Ctrl-C: what it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "operator.log"
        if options.memory:
            memory = partial(measure_memory, counts=options.memory, log=log)
            report.measure("memory", options, lambda: asyncio.run(run(memory)), {})
        elif options.ended_jobs:
            count, size = options.jobs, options.nodes_per_job
            ended = partial(
                measure_ended_jobs, workers=options.ended_jobs, jobs=count, nodes_per_job=size, log=log
            )
            wanted = {name: goal for name, goal in goals(sizes).items() if name.startswith("job_end")}
            report.measure("ended_jobs", options, lambda: asyncio.run(run(ended)), wanted)
        else:
            part = partial(measure_scale_out if options.scale_out else measure, log=log)
            name, aims, named = "scale_out" if options.scale_out else "nodeset", goals(sizes), words(sizes)
            if options.compare:
                name = "per_worker"
                aims |= per_worker_goals()
                named |= per_worker_words(sizes.workers, options.compare)
            report.measure(name, options, lambda: take(part, sizes, options.compare), aims, named)


def reserved_core() -> int:
    """Keep this process, and all that it starts, off one core; return that core."""
    *others, core = sorted(os.sched_getaffinity(0))
    if not others:
        raise SystemExit("bench.nodeset: --own-core needs two cores at least")
    os.sched_setaffinity(0, others)
    return core


def take(
    part: Callable[..., Awaitable[Figures]], sizes: Sizes, compare: int | None
) -> tuple[Figures, dict[str, str]]:
    """Take figures on one API server, and before that on another one with fewer workers, if asked."""
    smaller: Figures = {}
    if compare:
        print(f"  with {compare} workers:", file=sys.stderr, flush=True)
        smaller, _ = take_alone(part, replace(sizes, workers=compare))
        print(f"  with {sizes.workers} workers:", file=sys.stderr, flush=True)
    figures, origin = take_alone(part, sizes)
    return figures | per_worker(figures, smaller, sizes.workers / (compare or sizes.workers)), origin


if __name__ == "__main__":
    main()
