"""Jobs that are accounted for: each must run once, from its start to its own end, and nothing may touch it.

A job writes down that it began and how often it was restarted, waits at a gate until the test lets it pass,
writes down when, and ends with 0. The gate is a pipe between the job's process and this one, so it is known
at any moment whether that process lives. A job that was killed, requeued or cancelled is seen there, in its
own account, which survives whatever happens to slurmctld, and in slurmctld's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tests.support.job_killed import JobKilled
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kubebox.slurm import SlurmBox

_SECONDS = 180.0
_SCRIPT = """\
#!/bin/sh
mkfifo "gate-$SLURM_JOB_ID" 2>/dev/null
echo "began ${SLURM_RESTART_COUNT:-0}" >>"life-$SLURM_JOB_ID"
cat "gate-$SLURM_JOB_ID" >/dev/null || exit 3
echo "ended $(date +%s.%N)" >>"life-$SLURM_JOB_ID"
"""


class Ledger:
    """The jobs of one test on one Slurm box; use it as a context manager."""

    def __init__(self, box: SlurmBox) -> None:
        self._box = box
        self._folder: Path = box.home / "alice"
        self._gates: dict[int, int] = {}
        self.jobs: dict[int, str] = {}
        """The node of each job."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self._gates.values():
            os.close(gate)

    async def start(self, nodes: Iterable[str], *options: str) -> dict[str, int]:
        """Start a job on each node, wait until all run, and return them by node."""
        begun = {}
        for node in nodes:
            begun[node] = await asyncio.to_thread(self._box.submit, _SCRIPT, nodes=[node], options=options)
            self.jobs[begun[node]] = node
        await eventually(
            lambda: all(map(self._gate, begun.values())), f"jobs run on {', '.join(begun)}", _SECONDS
        )
        return begun

    async def end(self, *jobs: int) -> None:
        """Let jobs pass their gates, and wait until they have written down their end."""
        self.check()
        for job in jobs:
            os.close(self._gates.pop(job))
        await eventually(lambda: all(map(self.ended, jobs)), f"jobs {jobs} end", _SECONDS)

    def waiting(self) -> list[int]:
        """Return the jobs that wait at their gates."""
        return [*self._gates]

    def ended(self, job: int) -> float | None:
        """Return when a job came to its own end."""
        ends = [line.split()[1] for line in self._account(job) if line.startswith("ended")]
        return float(ends[0]) if ends else None

    def check(self) -> None:
        """Check that each job has begun once, and has ended by itself or waits at its gate."""
        for job, node in self.jobs.items():
            account = self._account(job)
            if [line for line in account if line.startswith("began")] != ["began 0"]:
                raise JobKilled(f"job {job} on {node} did not begin once: {account}")
            if job in self._gates:
                waits = select.poll()
                waits.register(self._gates[job], 0)
                if waits.poll(0):
                    raise JobKilled(f"job {job} on {node} was killed: {account}")

    async def settle(self) -> None:
        """Let every job end, and check that slurmctld, too, has each as completed at the first attempt."""
        await self.end(*self.waiting())
        await eventually(
            lambda: asyncio.to_thread(self._all_completed), "slurmctld has every job completed", _SECONDS
        )
        self.check()

    def _gate(self, job: int) -> bool:
        """Open the gate of a job from this side; return whether the job stands at it."""
        if job not in self._gates:
            with suppress(FileNotFoundError):
                try:
                    self._gates[job] = os.open(self._folder / f"gate-{job}", os.O_WRONLY | os.O_NONBLOCK)
                except OSError as error:
                    if error.errno != errno.ENXIO:
                        raise
        return job in self._gates

    def _account(self, job: int) -> list[str]:
        try:
            return (self._folder / f"life-{job}").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def _all_completed(self) -> bool:
        told = self._box.run("scontrol", "--oneliner", "show", "jobs").stdout
        records = (
            dict(word.partition("=")[::2] for word in line.split())
            for line in told.splitlines()
            if line.startswith("JobId=")
        )
        shown = {int(record["JobId"]): record for record in records}
        for job, node in self.jobs.items():
            state, restarts = shown[job]["JobState"], shown[job]["Restarts"]
            if state not in ("RUNNING", "COMPLETING", "COMPLETED") or restarts != "0":
                raise JobKilled(f"job {job} on {node} is {state} after {restarts} restarts")
        return all(
            (shown[job]["JobState"], shown[job]["ExitCode"]) == ("COMPLETED", "0:0") for job in self.jobs
        )
