"""Slurm as the operator meets it: records, jobs, a slurmrestd that lies or is gone, people who drain."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.objects.slurmd_records import RecordShape
from slurm_operator.slurm.decide.node_changes import decide
from slurm_operator.slurm.model import hostlist
from slurm_operator.slurm.model.answers import Known
from slurm_operator.slurm.model.records import Job, Node, NodeUpdate, Reservation
from tests.support.simulation.kubernetes import EPOCH, moment
from tests.support.slurm.views import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.slurm.decide.node_changes import NodeChange
    from slurm_operator.slurm.model.records import ReservationSpec

# Longer than it takes to believe that a node is gone for good.
JOB_MINUTES = 8
PERSONS_REASON = "bad disk"
# Shorter than the quiet after which a history ends.
IDLE_SECONDS, SUSPEND_SECONDS, RESUME_SECONDS = 40.0, 20.0, 50.0
SHAPE = RecordShape(2, 1000, frozenset({"gpu"}), frozenset(), 300, "CPUs=2 Features=gpu RealMemory=1000")
_HOUR = timedelta(hours=1)


class Power(Enum):
    """What power saving makes of a record; the values are the words of Slurm's list."""

    NONE = ()
    UP = ("CLOUD",)
    GOING = ("CLOUD", "POWERING_DOWN")
    DOWN = ("CLOUD", "POWERED_DOWN")
    COMING = ("CLOUD", "POWERING_UP")


@dataclass
class Record:
    """One node as slurmctld has it."""

    name: str
    slurmd: str = ""
    """The UID of the pod whose slurmd is registered; empty when it is gone."""
    down: bool = False
    drain: bool = False
    reason: str = ""
    comment: str = ""
    features: tuple[str, ...] = ()
    topology: str = ""
    power: Power = Power.NONE
    powered_at: float = 0.0
    """When the power state last changed; on a node that is up, when it was last busy."""

    @property
    def cloud(self) -> bool:
        """Return whether Slurm's power saving manages it."""
        return self.power is not Power.NONE

    @property
    def persons(self) -> bool:
        """Return whether a person has drained it."""
        return self.drain and self.reason == PERSONS_REASON


@dataclass
class Work:
    """A job that runs in a pod."""

    job_id: int
    node: str
    pod: str
    start: float

    @property
    def end(self) -> float:
        return self.start + 60 * JOB_MINUTES


@dataclass
class Window:
    """A reservation."""

    name: str
    nodes: frozenset[str]
    start: datetime
    minutes: int
    flags: tuple[str, ...]
    users: tuple[str, ...]

    @property
    def end(self) -> datetime:
        return self.start + timedelta(minutes=self.minutes)

    def open(self, wall: datetime) -> bool:
        return self.start <= wall <= self.end

    def show(self) -> Reservation:
        return Reservation(
            name=self.name,
            start_time=number(self.start.timestamp()),
            end_time=number(self.end.timestamp()),
            flags=(*self.flags, "SPEC_NODES"),
            node_list=hostlist.fold(self.nodes),
            users=",".join(self.users),
        )


@dataclass
class Slurm:
    """slurmctld and slurmrestd."""

    up: bool = True
    reachable: bool = True
    started: float = -10_000.0
    records: dict[str, Record] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)
    jobs: dict[int, Work] = field(default_factory=dict)
    """What slurmctld knows of."""
    work: dict[int, Work] = field(default_factory=dict)
    """What really runs."""
    keeps: int = 0
    """How many idle nodes power saving leaves up."""
    next_job: int = 1
    lie: str = ""
    now: float = 0.0

    def clone(self) -> Slurm:
        return replace(
            self,
            records={name: replace(one) for name, one in self.records.items()},
            windows={name: replace(one) for name, one in self.windows.items()},
            jobs=dict(self.jobs),
            work=dict(self.work),
        )

    @property
    def answers(self) -> bool:
        return self.up and self.reachable

    def listed(self) -> tuple[Node, ...]:
        """Answer with all nodes, or with what a broken slurmrestd makes of them."""
        busy = {job.node for job in self.jobs.values()}
        nodes = tuple(self.shown(record, busy=record.name in busy) for record in self.records.values())
        if self.lie == "empty":
            return ()
        return nodes[: len(nodes) // 2] if self.lie == "half" else nodes

    def has(self, name: str) -> bool:
        """Answer whether a node exists: half a list does not touch this, an empty slurmctld does."""
        return self.lie != "empty" and name in self.records

    def shown(self, record: Record, *, busy: bool) -> Node:
        base = "DOWN" if record.down else "MIXED" if busy else "IDLE"
        state = [base, "DYNAMIC_NORM", *record.power.value]
        if record.drain:
            state.append("DRAIN")
        if not record.slurmd:
            state.append("NOT_RESPONDING")
        window = self._window(record.name)
        if window is not None:
            state.append("MAINTENANCE")
        return Node(
            name=record.name,
            state=tuple(state),
            reason=record.reason,
            comment=record.comment,
            features=record.features,
            active_features=record.features,
            topology=record.topology,
            alloc_cpus=1 if busy else 0,
            cpus=SHAPE.cpus,
            real_memory=SHAPE.memory,
            reason_changed_at=number(record.powered_at),
            reservation="" if window is None else window.name,
        )

    def listed_jobs(self) -> tuple[Job, ...]:
        if self.lie:
            return ()
        return tuple(
            Job(
                job_id=job.job_id,
                job_state=("RUNNING",),
                nodes=job.node,
                start_time=number(EPOCH.timestamp() + job.start),
                time_limit=number(JOB_MINUTES),
            )
            for job in self.jobs.values()
        )

    # --- daemons

    def register(self, name: str, pod: str, started: float = math.inf) -> bool:
        """Take a slurmd in; return whether it was waited for, as far as it was started at that moment."""
        record = self.records.setdefault(name, Record(name, features=("gpu",)))
        if record.power is Power.GOING or (record.power is Power.COMING and started < record.powered_at):
            return False
        if record.cloud:
            self._join(record, pod)
            return True
        record.slurmd, record.down = pod, False
        if record.reason == "slurm-operator: Pod is terminating" and not record.drain:
            record.reason = ""
        return True

    def _join(self, record: Record, pod: str) -> None:
        """Take in the slurmd of a CLOUD node: a job that waits starts; on a node that was up, it is lost."""
        known, waiting = record.slurmd, record.power is Power.COMING
        record.slurmd = pod
        if record.power is Power.UP and known != pod:
            record.down = True
            record.reason = record.reason or "Node unexpectedly rebooted"
        if record.power is not Power.UP:
            record.power, record.powered_at = Power.UP, self.now
        for job in [job for job in self.jobs.values() if job.node == record.name]:
            if waiting and not record.down:
                started = Work(job.job_id, record.name, pod, self.now)
                self.jobs[job.job_id] = self.work[job.job_id] = started
            elif job.pod != pod:
                self.end(job.job_id)

    def unregister(self, name: str, pod: str) -> None:
        """A pod has ended: its preStop hook has set its node down, and its jobs are gone."""
        record = self.records.get(name)
        if record is not None and record.slurmd == pod and record.power not in (Power.NONE, Power.UP):
            record.slurmd = ""
        if record is not None and record.slurmd == pod:
            record.slurmd, record.down = "", True
            if record.reason != PERSONS_REASON:
                record.reason = "slurm-operator: Pod is terminating"
        for job in [job for job in self.work.values() if job.pod == pod]:
            self.end(job.job_id)

    def start_job(self, name: str, now: float) -> bool:
        record = self.records.get(name)
        if record is not None and record.power in (Power.DOWN, Power.GOING, Power.COMING):
            return self._allocate(record, now)
        if not self.up or record is None or record.down or record.drain or not record.slurmd:
            return False
        if self._window(name, until=moment(now + 60 * JOB_MINUTES)) is not None:
            return False
        job = Work(self.next_job, name, record.slurmd, now)
        self.jobs[job.job_id] = self.work[job.job_id] = job
        self.next_job += 1
        return True

    def _allocate(self, record: Record, now: float) -> bool:
        """Give a job a node that is powered down, and power it up for it."""
        if not self.up or record.power is not Power.DOWN or record.down or record.drain:
            return False
        record.power, record.powered_at = Power.COMING, now
        self.jobs[self.next_job] = Work(self.next_job, record.name, "", now)
        self.next_job += 1
        return True

    def takes_work(self, name: str, pod: str) -> bool:
        """Return whether a job could start in a pod at any moment."""
        record = self.records.get(name)
        if record is None or record.power not in (Power.NONE, Power.UP):
            return False
        return record.slurmd == pod and not record.down and not record.drain

    def end(self, job_id: int) -> None:
        self.jobs.pop(job_id, None)
        self.work.pop(job_id, None)

    def pass_time(self, now: float) -> None:
        """End jobs at their limit, also forgotten ones, and windows, unless they come back."""
        self.now = now
        for job in [job for job in self.work.values() if now >= job.end]:
            self.end(job.job_id)
        if self.up:
            self._save_power(now)
        for window in [window for window in self.windows.values() if window.end < moment(now)]:
            if "HOURLY" in window.flags:
                window.start += _HOUR
            else:
                del self.windows[window.name]

    def _save_power(self, now: float) -> None:
        """Power nodes down that were idle for long, and give up those that did not come up in time."""
        busy = {job.node for job in self.jobs.values()}
        kept = self.keeps
        for record in self.records.values():
            since = now - record.powered_at
            if record.power is Power.UP and record.name in busy:
                record.powered_at = now
            elif record.power is Power.UP and not (record.down or record.drain) and kept > 0:
                kept -= 1
            elif record.power is Power.UP and since > IDLE_SECONDS:
                record.power, record.powered_at = Power.GOING, now
            elif record.power is Power.GOING and since > SUSPEND_SECONDS:
                record.power, record.powered_at = Power.DOWN, now
            elif record.power is Power.COMING and since > RESUME_SECONDS:
                record.power, record.powered_at = Power.DOWN, now
                record.down, record.drain, record.reason = True, False, "ResumeTimeout reached"
                for job in [job for job in self.jobs.values() if job.node == record.name]:
                    self.end(job.job_id)

    def create(self, names: tuple[str, ...]) -> bool:
        """Create records of nodes that are powered down, all or none."""
        if not {*names}.isdisjoint(self.records):
            return False
        for name in names:
            self.records[name] = Record(name, features=("gpu",), power=Power.DOWN, powered_at=self.now)
        return True

    def lose_state(self, now: float, remembered: Callable[[Work], bool]) -> None:
        """Restart without the saved state; jobs run on, of which only the remembered ones count.

        A job that nobody but slurmctld knew of is lost with it: no operator can protect what it never saw.
        """
        self.records.clear()
        self.windows.clear()
        self.jobs.clear()
        self.work = {key: job for key, job in self.work.items() if remembered(job)}
        self.started = now

    # --- writes

    def write(self, name: str, change: NodeChange) -> None:
        """Do what the writer does: decide on a fresh list, then send."""
        record = self.records.get(name)
        if record is None:
            return
        busy = any(job.node == name for job in self.jobs.values())
        update = decide(change, Known(self.shown(record, busy=busy), 0.0), wellknown.REASON_PREFIX)
        if isinstance(update, NodeUpdate):
            self._apply(record, update)

    def _apply(self, record: Record, update: NodeUpdate) -> None:
        if update.state == ("DRAIN",):
            record.drain = True
            record.reason = record.reason if update.reason is None else update.reason
        elif update.state in (("UNDRAIN",), ("RESUME",)):
            assert not record.persons, f"a person's drain of {record.name} was undone"
            record.drain, record.reason = False, ""
            if record.cloud and update.state == ("RESUME",):
                record.down = False
        elif update.state == ("POWER_UP",) and record.power is Power.DOWN:
            record.power, record.powered_at = Power.COMING, self.now
        if update.comment is not None:
            record.comment = update.comment
        if update.features is not None:
            record.features = tuple(one for one in update.features if one)
        if update.topology_str is not None:
            record.topology = update.topology_str

    def reserve(self, spec: ReservationSpec) -> bool:
        """Make or change a reservation; refuse as slurmctld does."""
        wall, old = moment(self.now), self.windows.get(spec.name)
        nodes = frozenset(hostlist.expand(spec.node_list)) if spec.node_list else None
        if nodes is not None and not nodes <= self.records.keys():
            return False
        start = spec.start_time or (old.start if old else None)
        if nodes is None:
            nodes = old.nodes if old else frozenset()
        if not nodes or start is None:
            return False
        if start < wall and (old is None or start != old.start) and "FORCE_START" not in spec.flags:
            return False
        self.windows[spec.name] = Window(
            name=spec.name,
            nodes=nodes,
            start=start,
            minutes=spec.duration_minutes or (old.minutes if old else 1),
            flags=tuple(one for one in spec.flags if one != "FORCE_START") or (old.flags if old else ()),
            users=spec.users or (old.users if old else ()),
        )
        return True

    def _window(self, name: str, until: datetime | None = None) -> Window | None:
        """Return the window in which a node is, or comes to be until a moment."""
        wall = moment(self.now)
        for window in self.windows.values():
            if name in window.nodes and (window.open(wall) or (until and wall < window.start < until)):
                return window
        return None

    def person_drains(self, name: str) -> None:
        record = self.records.get(name)
        if record is not None:
            record.drain, record.reason = True, PERSONS_REASON

    def person_resumes(self, name: str) -> None:
        record = self.records.get(name)
        if record is not None:
            record.drain, record.reason = False, ""
