"""A Slurm on real nodes and what is done to it: jobs that end when they are told to, and waiting for a state.

A job of ours runs until a file appears in the pod of its worker. So a test says when it ends, however slow
the machine is, and a job that was killed is told from one that ended: only the latter is COMPLETED, code 0.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.errors import BoxError
from scripts.demo_cluster import NODESET, Cluster, has_workers, is_ready, troubles

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox import Box

DEADLINE = 300.0
_PAUSE = 0.5


@dataclass(frozen=True)
class Site:
    """A box with real nodes, and the cluster that is installed on it."""

    box: Box
    cluster: Cluster
    ssh_key: str

    def until(self, wanted: Callable[[], Any], what: str) -> None:
        """Wait until something is so; an error while asking is no answer."""
        deadline = time.monotonic() + DEADLINE
        said = ""
        while True:
            try:
                if wanted():
                    return
            except BoxError as error:
                said = str(error)
            if time.monotonic() > deadline:
                pytest.fail(
                    f"not so after {DEADLINE:g} s: {what}\n{said}\n{troubles(self.cluster)}", pytrace=False
                )
            time.sleep(_PAUSE)

    def nodeset(self, name: str = NODESET) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("nodeset", name)
        return found

    def patch(self, spec: dict[str, Any], name: str = NODESET) -> None:
        self.cluster.patch("nodeset", name, {"spec": spec})

    def scale(self, replicas: int) -> None:
        self.cluster.kubectl("scale", f"nodeset/{NODESET}", f"--replicas={replicas}")

    def settled(self, replicas: int, name: str = NODESET) -> None:
        """Wait until a NodeSet has its workers, all of them ready, new, and offered by Slurm."""

        def so() -> bool:
            nodeset = self.nodeset(name)
            status = nodeset.get("status", {})
            seen = status.get("observedGeneration") == nodeset["metadata"]["generation"]
            new = status.get("updatedReplicas", 0) == replicas
            idle = status.get("slurmIdle", 0) + status.get("slurmAllocated", 0) == replicas
            return bool(seen and new and idle and not status.get("slurmDrain")) and has_workers(
                nodeset, replicas
            )

        self.until(so, f"{name} has {replicas} workers that Slurm can use")

    def pods(self, selector: str = "app.kubernetes.io/name=slurmd") -> dict[str, dict[str, Any]]:
        """Return pods by name, those that are going among them."""
        items = self.cluster.get("pods", f"--selector={selector}")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def uid(self, pod: str) -> str:
        return str(self.cluster.get("pod", pod)["metadata"]["uid"])

    def ready_again(self, pod: str, old: str) -> None:
        """Wait until another pod has taken the place of one."""

        def so() -> bool:
            found = self.cluster.get("pod", pod)
            return found["metadata"]["uid"] != old and is_ready(found)

        self.until(so, f"a new {pod} is ready")

    def start_job(self, worker: str | None = None) -> Job:
        """Start a job, on a worker if one is named, and return when it runs."""
        where = () if worker is None else (f"--nodelist={worker}",)
        script = "until [ -e /run/end-$SLURM_JOB_ID ]; do sleep 0.2; done"
        line = self.cluster.slurm(
            "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *where, f"--wrap={script}"
        )
        identity = line.strip().partition(";")[0]
        self.until(lambda: self._ask(identity, "%T") == "RUNNING", f"job {identity} runs")
        return Job(self, identity, self._ask(identity, "%N"))

    def _ask(self, identity: str, what: str) -> str:
        return self.cluster.slurm("squeue", "--noheader", f"--jobs={identity}", f"--format={what}").strip()

    def run_everywhere(self, workers: int) -> None:
        """Wait until a job runs on that many workers at once and each of them answers."""

        def so() -> bool:
            command = (
                "timeout",
                "60",
                "srun",
                "--immediate=20",
                f"--nodes={workers}",
                "--chdir=/tmp",
                "hostname",
            )
            return len(set(self.cluster.slurm(*command).split())) == workers

        self.until(so, f"a job runs on {workers} workers")


@dataclass(frozen=True)
class Job:
    """A job that runs until it is told to end."""

    site: Site
    identity: str
    node: str

    @property
    def pod(self) -> str:
        """The pod of its worker, whose host name is the name of the node in Slurm."""
        return f"slurm-worker-{self.node}"

    def runs(self) -> bool:
        """Tell whether slurmctld says that the job runs."""
        return self.site._ask(self.identity, "%T") == "RUNNING"

    def assert_unharmed(self) -> None:
        """Check that the job runs, on the same worker as before and for the first time."""
        assert self.site._ask(self.identity, "%T %N") == f"RUNNING {self.node}"

    def end(self) -> None:
        """Tell the job to end, and wait until accounting says that it ended well and ran only once."""
        touch = ("touch", f"/run/end-{self.identity}")
        self.site.cluster.kubectl("exec", self.pod, "--container=slurmd", "--", *touch)
        ask = (
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            "--duplicates",
            f"--jobs={self.identity}",
        )

        def record() -> str:
            return self.site.cluster.slurm(*ask, "--format=State,ExitCode,NodeList").strip()

        self.site.until(lambda: record() and "RUNNING" not in record(), f"job {self.identity} ended")
        assert record() == f"COMPLETED|0:0|{self.node}"
