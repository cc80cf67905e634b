"""Measure autoscaling by Slurm at scale: records that are powered down, half of them resumed, and back.

    records     requests to Slurm that create all records, and seconds until they are listed
    idle        one minute at rest while all nodes are powered down
    resume      a job needs half of the nodes: seconds until their pods exist, and until all are up and the
                status says that they are ready; writes, requests to Slurm and CPU time until rest
    suspend     Slurm powers these nodes down: seconds until all pods are told to go; the same figures

Kubernetes, the operator and the stand-in for Slurm are those of `bench.nodeset`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import report
from bench.nodeset import phases
from bench.nodeset.machines import running_machines
from bench.nodeset.measurements import run, told
from bench.nodeset.operator import running
from bench.nodeset.slurmctld import Slurmctld
from bench.nodeset.stage import DEADLINE, NAME, NAMESPACE, Stage, create_operated_cluster, following
from bench.nodeset.standin import WRITES, StandIn, serving
from slurm_operator.api import NodeSet
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Namespace
from slurm_operator.kube.process.log import LogOptions, configure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.report import Goals
    from kubebox import Box

_PER_NODE: Final = 100


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    records: int = 1000
    resumed: int = 500
    idle_seconds: float = 60.0
    quiet_seconds: float = 4.0


GOALS: Final[Goals] = {"idle_writes": ("≤", 0.0), "idle_slurm_writes": ("≤", 0.0)}


def words(sizes: Sizes) -> dict[str, str]:
    """Return what to call each figure that people should see, in the order in which they should."""
    return {
        "records_requests": f"{sizes.records} records: requests that create them",
        "idle_writes": f"one idle minute, {sizes.records} nodes powered down: writes to the API server",
        "idle_slurm_writes": "… writes to Slurm",
        "idle_slurm_requests": "… requests to Slurm",
        "idle_cpu_seconds": "… CPU-seconds of the operator",
        "resume_created_seconds": f"a job needs {sizes.resumed} nodes: seconds until their pods exist",
        "resume_ready_seconds": "… seconds until all are up, and the status says that they are ready",
        "resume_writes": "… writes to the API server, until rest",
        "resume_slurm_requests": "… requests to Slurm, until rest",
        "resume_cpu_seconds": "… CPU-seconds of the operator, until rest",
        "suspend_seconds": f"Slurm powers {sizes.resumed} nodes down: seconds until all pods are told to go",
        "suspend_writes": "… writes to the API server, until rest",
        "suspend_slurm_requests": "… requests to Slurm, until rest",
        "suspend_cpu_seconds": "… CPU-seconds of the operator, until rest",
        "rss_mib_after_all": "resident memory after all, MiB",
        "stall_cpu_ms": "longest turn of the event loop: ms of CPU time",
    }


async def measure(box: Box, sizes: Sizes, log: Path) -> phases.Figures:
    """Take every figure."""
    async with (
        running_machines(box, max(3, sizes.resumed // _PER_NODE + 1)),
        _staged(box, sizes) as (stage, url),
        running(box, NAMESPACE, log, f"--slurm-api-override={url}") as operator,
    ):
        bench = phases.Run(box, stage, operator, sizes.quiet_seconds)
        figures = await told("records", _records(bench, sizes))
        figures |= await told("idle", _idle(bench, sizes))
        hostlist = f"{NAME}-[0-{sizes.resumed - 1}]"
        figures |= await told("resume", _resume(bench, hostlist, sizes.resumed))
        figures |= await told("suspend", _suspend(bench, hostlist))
        figures |= await phases.memory(bench, "after_all")
        reading = await operator.reading()
        return figures | {
            "stall_cpu_ms": reading.busiest_stall * 1e3,
            "stall_ms": reading.longest_stall * 1e3,
        }


async def _records(bench: phases.Run, sizes: Sizes) -> phases.Figures:
    """Wait until Slurm has a record of each worker."""
    nodes, counts = bench.stage.slurmctld.nodes, bench.stage.standin.counts
    try:
        async with asyncio.timeout(DEADLINE):
            while len(nodes) <= sizes.records:  # noqa: ASYNC110 - the stand-in sets no event
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise RuntimeError(f"{len(nodes)} records: {counts}, {bench.stage.nodeset.status}") from None
    await bench.at_rest()
    return {"records_requests": counts["create_nodes"]}


async def _idle(bench: phases.Run, sizes: Sizes) -> phases.Figures:
    """Do nothing for a while."""
    asked = bench.stage.standin.counts.copy()
    found = await phases.idle(bench, sizes.idle_seconds)
    since = bench.stage.standin.counts - asked
    return found | {"idle_slurm_writes": float(sum(since[name] for name in WRITES))}


async def _resume(bench: phases.Run, hostlist: str, workers: int) -> phases.Figures:
    """Start a job on powered-down nodes, and wait until all of them are up."""
    stage = bench.stage
    before, asked = await bench.at_rest(), stage.standin.counts.copy()
    stint = phases.Stint.begun()
    stage.slurmctld.run_job(hostlist)
    created = await stage.until(lambda: len(stage.pods.staying) == workers, "all pods exist")
    figures = stint.figures("resume_created", created)
    ready = await stage.until(lambda: stage.nodeset.status.ready_replicas == workers, "all are ready")
    figures |= stint.figures("resume_ready", ready)
    after = await bench.at_rest()
    return figures | phases.Span(before, after, stage.standin.counts - asked).figures("resume")


async def _suspend(bench: phases.Run, hostlist: str) -> phases.Figures:
    """End the job, power its nodes down, and wait until their pods are told to go."""
    stage = bench.stage
    stage.slurmctld.end_job("1")
    before, asked = await bench.at_rest(), stage.standin.counts.copy()
    stint = phases.Stint.begun()
    stage.slurmctld.suspend(hostlist)
    ended = await stage.until(lambda: not stage.pods.staying, "all pods were told to go")
    figures = stint.figures("suspend", ended)
    after = await bench.at_rest()
    return figures | phases.Span(before, after, stage.standin.counts - asked).figures("suspend")


@asynccontextmanager
async def _staged(box: Box, sizes: Sizes) -> AsyncIterator[tuple[Stage, str]]:
    """Set up a cluster whose slurmctld the operator runs, and an autoscaled NodeSet of it."""
    slurmctld = Slurmctld()
    # An empty list of nodes is trusted only after minutes, which is not what is measured here.
    slurmctld.register("other")
    standin = StandIn(slurmctld)
    async with Client(load_config(str(box.kubeconfig))) as client, serving(standin) as url:
        await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        stage = Stage(client, standin)
        await create_operated_cluster(client, NAMESPACE, b"j" * 32)
        await client.create(NodeSet, _nodeset(sizes))
        async with following(stage.pods.informer), following(stage.nodesets):
            yield stage, url


def _nodeset(sizes: Sizes) -> dict[str, Any]:
    spec = {
        "controllerRef": {"name": "slurm"},
        "autoscaling": {"maxReplicas": sizes.records},
        "extraConf": "CPUs=4 RealMemory=4000",
        "slurmd": {"image": "example.org/slurmd:1"},
        "logfile": {"image": "example.org/alpine:1"},
        # Else each worker would need a node of its own, and the scheduler would be what is measured.
        "oversubscribeNode": True,
    }
    return {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec}


def main() -> None:
    """Run the measurements, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=Sizes.records)
    parser.add_argument("--resumed", type=int, default=Sizes.resumed)
    parser.add_argument("--idle-seconds", type=float, default=Sizes.idle_seconds)
    parser.add_argument("--log", type=Path, help="keep the operator's log in this file")
    report.add_options(parser)
    options = parser.parse_args()
    sizes = Sizes(options.records, options.resumed, options.idle_seconds)
    configure(LogOptions())
    # Ends as after Ctrl-C: what it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "operator.log"
        report.measure(
            "autoscaling",
            options,
            lambda: asyncio.run(run(lambda box: measure(box, sizes, log))),
            GOALS,
            words(sizes),
        )


if __name__ == "__main__":
    main()
