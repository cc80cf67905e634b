"""A Slurm on real nodes and what is done to it: jobs that end when they are told to, and waiting for a state.

A job of ours runs until a file appears in the pod of its worker. So a test says when it ends, however slow
the machine is, and a job that was killed is told from one that ended: only the latter is COMPLETED, with code
0 and without a restart, says slurmctld, and only once, says accounting.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.errors import BoxError
from scripts.demo_cluster import NODESET, Cluster, has_workers, is_ready, troubles
from tests.support.job_killed import JobKilled

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox import Box

DEADLINE = 300.0
# Without a limit a job would have all memory of its worker, and others had to wait for it.
SBATCH = ("sbatch", "--parsable", "--mem=16", "--chdir=/tmp", "--output=/dev/null")
_PAUSE = 0.5
_MARK = "/run/mark"
_UNFINISHED = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED"}
_FIELD = re.compile(r"(?:^|\s)(JobState|ExitCode|Restarts|NodeList)=(\S*)")


@dataclass(frozen=True)
class Site:
    """A box with real nodes, and the cluster that is installed on it."""

    box: Box
    cluster: Cluster
    ssh_key: str
    accounting: bool = True
    figures: list[str] = field(default_factory=list)

    def until(self, wanted: Callable[[], Any], what: str) -> float:
        """Wait until something is so, and return for how many seconds; an error while asking is no answer."""
        began = time.monotonic()
        said = ""
        while True:
            try:
                if wanted():
                    return time.monotonic() - began
            except BoxError as error:
                said = str(error)
            if time.monotonic() > began + DEADLINE:
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

    def make_nodeset(self, name: str, spec: dict[str, Any]) -> None:
        """Make a NodeSet like the first one, but for some fields of its spec."""
        other = self.nodeset()
        made = {
            "apiVersion": other["apiVersion"],
            "kind": "NodeSet",
            "metadata": {"name": name},
            "spec": {**other["spec"], **spec},
        }
        self.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(made))

    def uids(self) -> dict[str, str]:
        """Return which pods the workers are just now, by name."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def uid(self, pod: str) -> str:
        return str(self.cluster.get("pod", pod)["metadata"]["uid"])

    def ready_again(self, pod: str, old: str) -> None:
        """Wait until another pod has taken the place of one."""

        def so() -> bool:
            found = self.cluster.get("pod", pod)
            return found["metadata"]["uid"] != old and is_ready(found)

        self.until(so, f"a new {pod} is ready")

    def kill(self, pod: dict[str, Any], program: str, how: signal.Signals = signal.SIGKILL) -> int:
        """Send a program of a pod a signal that it cannot handle; return how many processes got it."""
        uid, name = pod["metadata"]["uid"], program.encode()
        killed = 0
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and _is_of(process, uid, name):
                os.kill(int(process.name), how)
                killed += 1
        return killed

    def clear(self, replicas: int) -> None:
        """Remove what a test that failed left behind: jobs that never end, cordons, NodeSets of its own."""
        jobs = self.cluster.slurm("squeue", "--noheader", "--all", "--format=%i").split()
        if jobs:
            self.cluster.slurm("scancel", *jobs)
        self.cluster.kubectl(
            "uncordon", *(node["metadata"]["name"] for node in self.cluster.get("nodes")["items"])
        )
        for nodeset in self.cluster.get("nodesets")["items"]:
            if (name := nodeset["metadata"]["name"]) != NODESET:
                self.cluster.kubectl("delete", "nodeset", name, "--wait=false")
        self.scale(replicas)

    def start_job(self, worker: str | None = None) -> Job:
        """Start a job, on a worker if one is named, and return when it runs."""
        where = () if worker is None else (f"--nodelist={worker}",)
        script = "until [ -e /run/end-$SLURM_JOB_ID ]; do sleep 0.2; done"
        line = self.cluster.slurm(*SBATCH, *where, f"--wrap={script}")
        identity = line.strip().partition(";")[0]
        self.until(lambda: self._ask(identity, "%T") == "RUNNING", f"job {identity} runs")
        node = self._ask(identity, "%N")
        return Job(self, identity, node, self._pod_of(node))

    def _pod_of(self, node: str) -> str:
        """Return the pod that is a node in Slurm: its host name says so, or that of its Kubernetes node."""
        return next(name for name, pod in self.pods().items() if _slurm_name(name, pod["spec"]) == node)

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
    pod: str

    def runs(self) -> bool:
        """Return whether slurmctld says that the job runs."""
        return self.site._ask(self.identity, "%T") == "RUNNING"

    def written_down(self, controller: str) -> None:
        """Wait until slurmctld has saved that the job runs: a crash loses what it did in the last seconds."""
        inside = ("exec", controller, "--container=slurmctld", "--")
        self.site.cluster.kubectl(*inside, "touch", _MARK)
        self.site.cluster.slurm("scontrol", "update", f"JobId={self.identity}", "Comment=kept")
        find = ("find", "/var/spool/slurmctld", "-name", "job_state", "-newer", _MARK)
        self.site.until(
            lambda: self.site.cluster.kubectl(*inside, *find).strip(), "slurmctld saved its state"
        )

    def drained(self) -> bool:
        """Return whether its worker takes no other jobs."""
        command = ("sinfo", "--noheader", "--Node", f"--nodes={self.node}", "--format=%T")
        return self.site.cluster.slurm(*command).strip().startswith("drain")

    def assert_unharmed(self) -> None:
        """Check that the job runs, on the same worker as before and for the first time."""
        self._expect({"JobState": "RUNNING"})

    def until(self, wanted: Callable[[], Any], what: str) -> float:
        """Wait like `Site.until`, and fail at once if the job is disturbed meanwhile."""

        def so() -> bool:
            self.assert_unharmed()
            return bool(wanted())

        return self.site.until(so, what)

    def end(self) -> None:
        """Tell the job to end, and wait until Slurm says that it ended well and ran only once."""
        self.tell_to_end()
        self.assert_ended()

    def tell_to_end(self) -> None:
        """Tell the job to end, which it does within a fraction of a second."""
        touch = ("touch", f"/run/end-{self.identity}")
        self.site.cluster.kubectl("exec", self.pod, "--container=slurmd", "--", *touch)

    def assert_ended(self) -> None:
        """Wait until Slurm says that the job ended well and ran only once."""
        self.site.until(lambda: self._told()["JobState"] not in _UNFINISHED, f"job {self.identity} ended")
        self._expect({"JobState": "COMPLETED", "ExitCode": "0:0"})
        if self.site.accounting:
            self.site.until(lambda: self._recorded() and "RUNNING" not in self._recorded(), "it is recorded")
            if (record := self._recorded()) != f"COMPLETED|0:0|{self.node}":
                raise JobKilled(f"of job {self.identity} accounting says {record}")

    def _expect(self, wanted: dict[str, str]) -> None:
        told: dict[str, str] = {}

        def heard() -> bool:
            # The login pod that is asked may be on its way to another node.
            told.update(self._told())
            return True

        self.site.until(heard, f"slurmctld tells of job {self.identity}")
        wanted = {**wanted, "Restarts": "0", "NodeList": self.node}
        if {name: told[name] for name in wanted} != wanted:
            raise JobKilled(f"of job {self.identity} slurmctld says {told}, and not {wanted}")

    def _told(self) -> dict[str, str]:
        """Return what slurmctld says of the job; it remembers one that has ended for five minutes."""
        command = ("scontrol", "--oneliner", "show", "job", self.identity)
        told = dict(_FIELD.findall(self.site.cluster.slurm(*command)))
        if told.keys() != {"JobState", "ExitCode", "Restarts", "NodeList"}:
            raise BoxError(f"scontrol says of job {self.identity} only {told}")
        return told

    def _recorded(self) -> str:
        command = ("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates")
        what = (f"--jobs={self.identity}", "--format=State,ExitCode,NodeList")
        return self.site.cluster.slurm(*command, *what).strip()


def _slurm_name(pod: str, spec: dict[str, Any]) -> str:
    """Return the name that a worker has in Slurm."""
    return str(spec["nodeName"] if spec.get("hostNetwork") else spec.get("hostname", pod))


def _is_of(process: Path, uid: str, program: bytes) -> bool:
    """Return whether a process of this machine runs a program in a container of the pod with this UID."""
    try:
        inside = uid in (process / "cgroup").read_text()
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    # A script is called by its interpreter.
    return inside and program in {word.rpartition(b"/")[2] for word in words[:3]}


def rolled(site: Site, job: Job, before: dict[str, str]) -> None:
    """Wait until the idle worker is replaced, then the busy one, whose job nobody disturbed."""
    idle = next(name for name in before if name != job.pod)
    site.ready_again(idle, before[idle])
    site.until(job.drained, "the busy worker takes no more jobs")
    job.assert_unharmed()
    assert site.uid(job.pod) == before[job.pod]
    job.end()
    site.ready_again(job.pod, before[job.pod])
    site.settled(2)
