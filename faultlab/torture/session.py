"""One run: install, submit jobs and act for some minutes, repair, wait for rest, and say what is wrong."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faultlab.torture.assess import Facts, inventory, problems, writes_of
from faultlab.torture.perform import REPLICAS, Performer
from faultlab.torture.schedule import schedule
from faultlab.torture.stage import OPERATOR, Stage
from faultlab.torture.submissions import Window, submissions, tally
from faultlab.torture.timeline import Event, Sample, Story
from kubebox.console import Stopwatch
from kubebox.errors import BoxError
from scripts.demo_cluster import (
    KUBEBOX_VALUES,
    OPERATOR_NAMESPACE,
    ROOT,
    Cluster,
    await_slurm,
    images,
    install_operator,
    install_slurm,
    real_box,
    troubles,
)

if TYPE_CHECKING:
    from faultlab.torture.schedule import Action
    from faultlab.torture.submissions import Record

_SBATCH: Final = ("sbatch", "--parsable", "--mem=16", "--chdir=/tmp", "--output=/dev/null")
_SETTINGS: Final = (
    f"nodesets.demo.replicas={REPLICAS},nodesets.demo.updateStrategy.rollingUpdate.maxUnavailable=100%"
)
# What kube-apiserver keeps of its audit log: enough for the rest at the end.
_AUDIT: Final = ("--audit-log-maxsize=20", "--audit-log-maxbackup=1")
_USER: Final = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR}"
_PENDING_MOST: Final = 12
_SAMPLE_SECONDS: Final = 6.0
_REPAIR_SECONDS: Final = 900.0
_REST_SECONDS, _REST_TRIES = 30.0, 6
# While these last, and a while after some, steps cannot be started; slurmctld restarts for new keys.
_NO_STEPS: Final = {
    "freeze-slurmd": 0.0,
    "freeze-slurmctld": 0.0,
    "delete-slurmctld": 60.0,
    "evacuate": 60.0,
    "jwt-key": 60.0,
    "key-step": 60.0,
}


@dataclass
class _Log:
    """What is written down during a run; lists only grow, each written by one thread or by appending."""

    events: list[Event] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    refused: int = 0
    pending: int = 0


class Session:
    """A run on a cluster that is installed already."""

    def __init__(self, stage: Stage, seed: int, minutes: float, say: Stopwatch) -> None:
        self._stage = stage
        self._seed = seed
        self._minutes = minutes
        self._say = say
        self._performer = Performer(stage)
        self._log = _Log()
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._wall = time.time()

    def _at(self) -> float:
        return time.monotonic() - self._began

    def go(self) -> Story:
        """Run, and return what happened."""
        before = inventory(self._stage.names())
        self._began, self._wall = time.monotonic(), time.time()
        helpers = [threading.Thread(target=self._submit), threading.Thread(target=self._sample)]
        for helper in helpers:
            helper.start()
        try:
            self._act()
        finally:
            self._stop.set()
            self._performer.hurry()
            for helper in helpers:
                helper.join()
        unsettled = self._repair()
        writes = [] if unsettled else self._rest()
        facts = Facts(
            tally(self._records(), self._log.accepted, self._windows()),
            writes,
            before,
            inventory(self._stage.names()),
            self._log.memory,
            unsettled,
        )
        return Story(
            self._seed,
            self._minutes,
            _commit(),
            f"{platform.machine()}, {os.cpu_count()} cores",
            facts,
            problems(facts),
            self._at(),
            len(self._log.accepted),
            self._log.refused,
            self._log.events,
            self._log.samples,
        )

    # --- the disturbed time

    def _act(self) -> None:
        with ThreadPoolExecutor(16) as threads:
            for action in schedule(self._seed, self._minutes):
                self._stop.wait(max(0.0, action.at - self._at()))
                threads.submit(self._one, action)
            self._stop.wait(max(0.0, self._minutes * 60 - self._at()))
            self._performer.hurry()

    def _one(self, action: Action) -> None:
        event = Event(self._at(), action.do, action.seconds)
        self._log.events.append(event)
        try:
            event.result = self._performer.perform(action)
        except Exception as error:  # noqa: BLE001 - one action must not end the run; its text is in the report
            event.result, event.failed = str(error) or repr(error), True
        self._say(f"{action.do} {event.result[:100]}{' (not done)' if event.failed else ''}")

    def _submit(self) -> None:
        for job in submissions(self._seed):
            if self._stop.wait(job.pause):
                return
            while self._log.pending >= _PENDING_MOST and not self._stop.wait(1.0):
                pass
            try:
                line = self._stage.cluster.slurm(*_SBATCH, *job.command(), timeout=60.0)
            except BoxError:
                self._log.refused += 1
            else:
                self._log.accepted.append(line.strip().partition(";")[0])

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(BoxError):
                running, self._log.pending = self._stage.jobs()
                self._log.samples.append(Sample(self._at(), running, self._log.pending))
            with contextlib.suppress(BoxError):
                self._log.memory.append((self._at(), self._stage.operator_memory()))

    def _windows(self) -> list[Window]:
        return [
            Window(event.do, self._wall + event.at, self._wall + event.at + event.seconds + after)
            for event in self._log.events
            if (after := _NO_STEPS.get(event.do)) is not None
        ]

    # --- afterwards

    def _repair(self) -> str:
        """Repair until everything is as it should be; return what is missing at the end of the time."""
        self._say("the repair begins")
        end = time.monotonic() + _REPAIR_SECONDS
        missing = "nothing was answered"
        while time.monotonic() < end:
            try:
                self._performer.repair()
                missing = self._stage.missing(REPLICAS) or self._recorded()
            except BoxError as error:
                missing = str(error)
            if not missing:
                return ""
            time.sleep(3.0)
        self._say(troubles(self._stage.cluster))
        return missing

    def _recorded(self) -> str:
        """Return which jobs have no end in accounting; empty if all have."""
        left = [record.job for record in self._records() if not record.finished]
        return f"accounting has no end of {', '.join(left[:10])}" if left else ""

    def _records(self) -> list[Record]:
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._wall - 60))
        return self._stage.records(since)

    def _rest(self) -> list[str]:
        """Return what the operator still writes when nothing happens; the last of some intervals counts."""
        found: list[str] = []
        for _ in range(_REST_TRIES):
            since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".000000Z"
            time.sleep(_REST_SECONDS)
            lines = [
                line
                for log in sorted(self._stage.box.audit_log.parent.glob("audit*.log"))
                for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
            ]
            found = writes_of(lines, _USER, since)
            if not found:
                return []
        return found


def run(seed: int, minutes: float) -> Story:
    """Install everything on new nodes, and run."""
    say = Stopwatch(sys.stderr)
    with (
        tempfile.TemporaryDirectory(prefix="torture-") as home,
        real_box(None, images(say), say, audit=True, apiserver_args=_AUDIT) as box,
    ):
        cluster = Cluster(box.kubeconfig, Path(home), say)
        install_operator(cluster)
        install_slurm(cluster, "--values", str(KUBEBOX_VALUES), "--set", _SETTINGS)
        await_slurm(cluster, say, REPLICAS)
        stage = Stage(box, cluster)
        while missing := stage.missing(REPLICAS):
            say(missing)
            time.sleep(2.0)
        return Session(stage, seed, minutes, say).go()


def _commit() -> str:
    command = ("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    return "unknown"
