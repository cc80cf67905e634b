"""Measure many Slurm clusters under one operator, in one run against one API server.

    create        all Controllers, RestApis and NodeSets at once: seconds until all workers exist, and until
                  every cluster is ready; writes, requests to Slurm and CPU time until rest
    idle          one minute at rest, all well-behaved
    idle_hostile  the same with one cluster whose replies take three seconds each, and one whose lists have
                  250 MB and are reset in turns; both stay so until the others have rolled
    change        `replicas` of a quiet cluster until the pod exists: while no other cluster changes, and
                  while all others roll
    roll          a rolling update of all but the quiet one: when it is over in each of the well-behaved,
                  which are of the same size; how far the slow one gets meanwhile; and how long it and the
                  hostile one take after they have become well-behaved
    rss, stall    memory, and the longest turn of the event loop since the start

The API server, etcd, the scheduler and what plays nodes and Slurm share the cores with what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import report
from bench.clusters.figures import QUIET, Sizes, goals, words
from bench.clusters.phases import Run
from bench.clusters.stage import staged
from bench.nodeset.machines import running_machines
from bench.nodeset.measurements import run, told
from bench.nodeset.operator import running
from bench.tenants import crowd
from slurm_operator.kube.process.log import LogOptions, configure

if TYPE_CHECKING:
    from bench.report import Figures
    from kubebox import Box

_PER_NODE: Final = 100
# Beside the workers each Slurm has a node that the operator did not make: an empty list of nodes is trusted
# only after minutes, which is not what is measured here.
_OTHER_NODES: Final = 1


async def measure(box: Box, sizes: Sizes, log: Path) -> Figures:
    """Take every figure."""
    if sizes.clusters <= QUIET + 1:
        raise ValueError(f"{sizes.clusters} clusters: a slow, a hostile, a quiet and another one are needed")
    # A slurmctld and a slurmrestd for each cluster, and the workers that the quiet one gets.
    pods = sizes.total + 2 * sizes.clusters + 2 * sizes.changes
    async with (
        running_machines(box, max(3, math.ceil(pods / _PER_NODE))),
        crowd(sizes.clusters, "--shared", f"--nodes={_OTHER_NODES}", f"--slow={sizes.slow_seconds}") as slurm,
        staged(box, slurm, sizes.clusters) as stage,
        running(box, "", log, f"--slurm-api-override={slurm.addresses['urls'][0]}") as operator,
    ):
        bench = Run(stage, operator, sizes)
        figures = await told("all clusters at once", bench.create())
        figures |= await told("idle", bench.idle())
        figures |= await told("idle, one slow and one hostile", bench.idle_hostile())
        figures |= await told("changes in the quiet cluster", bench.alone())
        figures |= await told("rolling updates of all others", bench.roll())
        return figures | await told("memory and turns", bench.totals())


def main() -> None:
    """Run the measurements, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clusters", type=int, default=Sizes.clusters)
    parser.add_argument("--workers", type=int, default=Sizes.workers, help="of each cluster")
    parser.add_argument("--changes", type=int, default=Sizes.changes, help="in the quiet cluster, twice")
    parser.add_argument("--pause", type=float, default=Sizes.pause, help="seconds between two changes")
    parser.add_argument("--idle-seconds", type=float, default=Sizes.idle_seconds)
    parser.add_argument("--log", type=Path, help="keep the operator's log in this file")
    report.add_options(parser)
    options = parser.parse_args()
    sizes = Sizes(options.clusters, options.workers, options.changes, options.pause, options.idle_seconds)
    configure(LogOptions(level=logging.ERROR))
    # Ends as after Ctrl-C: what it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "operator.log"
        report.measure(
            "clusters",
            options,
            lambda: asyncio.run(run(lambda box: measure(box, sizes, log))),
            goals(sizes),
            words(sizes),
        )


if __name__ == "__main__":
    main()
