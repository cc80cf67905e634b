"""A Slurm on loopback, its jobs, and which of them were lost.

The server is the one of the benchmarks: it answers in the shape of a real slurmrestd. A job is lost when the
slurmd of one of its nodes ends, or when the operator sets such a node down, while the job runs.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from ClusterShell.NodeSet import NodeSet  # type: ignore[import-untyped]

from bench.nodeset.slurmctld import Slurmctld
from bench.nodeset.standin import StandIn, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

RUNNING: Final = "RUNNING"
_DEADLY: Final = frozenset({"DOWN", "FAIL", "POWER_DOWN", "POWER_DOWN_FORCE", "POWER_DOWN_ASAP"})


class Cluster(Slurmctld):
    """A Slurm whose jobs are watched over."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[str] = []
        """What happened to jobs that were disturbed, in words."""
        self.named: dict[str, str] = {}
        """The ids of jobs by the name that the scenario gives them."""

    def start(self, job: str, node: str) -> None:
        """Run a job of that name on a node."""
        self.named[job] = self.run_job(node)

    def finish(self, job: str) -> None:
        """Let a job complete."""
        self.end_job(self.named[job])

    def running_on(self, node: str) -> list[str]:
        """Return the names of the jobs that run on a node."""
        return [
            name
            for name, number in self.named.items()
            if self.jobs[number]["nodes"] == node and self.jobs[number]["job_state"] == [RUNNING]
        ]

    def terminate(self, name: str) -> None:
        """End the slurmd of a node, and with it the jobs that run there."""
        self._lose(name, "its pod ended")
        super().terminate(name)

    def update(self, hostlist: Iterable[str], body: dict[str, Any]) -> list[str]:
        """Change nodes as the operator asks for."""
        words = [*hostlist]
        if _DEADLY & {*body.get("state", ())}:
            for name in NodeSet(",".join(words)):
                self._lose(name, f"its node was set {','.join(body['state'])}")
        return super().update(words, body)

    def _lose(self, node: str, why: str) -> None:
        if node in self.nodes:
            for job in self.running_on(node):
                self.lost.append(f"job {job} on {node}: {why}")
                self.jobs.change(self.named[job], job_state=["NODE_FAIL"])

    def snapshot(self) -> dict[str, Any]:
        """Return nodes and jobs as they are compared: states, reasons and what an operator writes."""
        nodes = {
            name: {
                "state": sorted(self.nodes[name]["state"]),
                **{key: self.nodes[name][key] for key in ("reason", "comment", "features", "topology")},
            }
            for name in self.nodes
        }
        jobs = {name: self.jobs[number]["job_state"] for name, number in self.named.items()}
        reservations = {
            name: {key: self.reservations[name].get(key) for key in ("node_list", "flags", "partition")}
            for name in self.reservations
        }
        return {"nodes": nodes, "jobs": jobs, "reservations": reservations}


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Cluster, str]]:
    """Serve a Slurm while the block runs, and hand out its address."""
    cluster = Cluster()
    async with serving(StandIn(cluster, pace=0.0)) as url:
        yield cluster, url
