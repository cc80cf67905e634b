"""Jobs that run until they are told to end, so that a lost one is told from one that ended."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubebox.errors import BoxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripts.demo_cluster import Cluster

PATIENCE = 600.0
_FIELD = re.compile(r"(?:^|\s)(JobState|ExitCode|Restarts|NodeList)=(\S*)")
_SCRIPT = "until [ -e /run/end-$SLURM_JOB_ID ]; do sleep 0.5; done"
_SBATCH = ("sbatch", "--parsable", "--mem=16", "--chdir=/tmp", "--output=/dev/null", f"--wrap={_SCRIPT}")


class LostJobError(Exception):
    """A job does not run where and as it did."""


def until(wanted: Callable[[], bool], what: str) -> None:
    """Wait until something is so; an error while asking is no answer."""
    deadline, said = time.monotonic() + PATIENCE, ""
    while True:
        try:
            if wanted():
                return
        except BoxError as error:
            said = str(error)
        if time.monotonic() > deadline:
            raise BoxError(f"not so after {PATIENCE:g} s: {what}\n{said}")
        time.sleep(1)


@dataclass(frozen=True)
class LastingJob:
    """A job, and the Slurm node it runs on."""

    cluster: Cluster
    identity: str
    node: str
    pod: str

    @classmethod
    def start(cls, cluster: Cluster, pod: str, node: str) -> LastingJob:
        """Start a job on a worker and return when it runs."""
        identity = cluster.slurm(*_SBATCH, f"--nodelist={node}").strip().partition(";")[0]
        job = cls(cluster, identity, node, pod)
        until(lambda: job.told()["JobState"] == "RUNNING", f"job {identity} runs")
        return job

    def told(self) -> dict[str, str]:
        """Return what slurmctld says of the job."""
        told = dict(
            _FIELD.findall(self.cluster.slurm("scontrol", "--oneliner", "show", "job", self.identity))
        )
        if told.keys() != {"JobState", "ExitCode", "Restarts", "NodeList"}:
            raise BoxError(f"scontrol says of job {self.identity} only {told}")
        return told

    def check(self, state: str = "RUNNING") -> None:
        """Raise an error unless the job is in a state, on its node and for the first time."""
        told: dict[str, str] = {}

        def heard() -> bool:
            told.update(self.told())
            return True

        until(heard, f"slurmctld tells of job {self.identity}")
        wanted = {"JobState": state, "Restarts": "0", "NodeList": self.node, "ExitCode": "0:0"}
        if told != wanted:
            raise LostJobError(f"job {self.identity}: slurmctld says {told}, not {wanted}")

    def end(self) -> None:
        """Tell the job to end, and check that it ended well."""
        touch = ("touch", f"/run/end-{self.identity}")
        self.cluster.kubectl("exec", self.pod, "--container=slurmd", "--", *touch)
        until(lambda: self.told()["JobState"] not in {"RUNNING", "COMPLETING"}, f"job {self.identity} ended")
        self.check("COMPLETED")
