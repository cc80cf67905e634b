"""Slurm as the operator meets it: records, jobs, a slurmrestd that lies or is gone, people who drain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.slurm import hostlist
from slurm_operator.slurm.answers import Known
from slurm_operator.slurm.model import Job, Node, NodeUpdate, Reservation
from slurm_operator.slurm.wishes import decide
from tests.unit.nodeset.clustermodel import EPOCH, moment
from tests.unit.slurm.views import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.slurm.model import ReservationSpec
    from slurm_operator.slurm.wishes import Wish

# Longer than it takes to believe that a node is gone for good.
JOB_MINUTES = 8
PERSONS_REASON = "bad disk"
_HOUR = timedelta(hours=1)


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

    @property
    def persons(self) -> bool:
        """Tell whether a person has drained it."""
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
        state = ["DOWN" if record.down else "MIXED" if busy else "IDLE", "DYNAMIC_NORM"]
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

    def register(self, name: str, pod: str) -> None:
        record = self.records.setdefault(name, Record(name))
        record.slurmd, record.down = pod, False
        if record.reason == "slurm-operator: Pod is terminating" and not record.drain:
            record.reason = ""

    def unregister(self, name: str, pod: str) -> None:
        """A pod has ended: its preStop hook has set its node down, and its jobs are gone."""
        record = self.records.get(name)
        if record is not None and record.slurmd == pod:
            record.slurmd, record.down = "", True
            if record.reason != PERSONS_REASON:
                record.reason = "slurm-operator: Pod is terminating"
        for job in [job for job in self.work.values() if job.pod == pod]:
            self.end(job.job_id)

    def start_job(self, name: str, now: float) -> bool:
        record = self.records.get(name)
        if not self.up or record is None or record.down or record.drain or not record.slurmd:
            return False
        if self._window(name, until=moment(now + 60 * JOB_MINUTES)) is not None:
            return False
        job = Work(self.next_job, name, record.slurmd, now)
        self.jobs[job.job_id] = self.work[job.job_id] = job
        self.next_job += 1
        return True

    def takes_work(self, name: str, pod: str) -> bool:
        """Return whether a job could start in a pod at any moment."""
        record = self.records.get(name)
        return record is not None and record.slurmd == pod and not record.down and not record.drain

    def end(self, job_id: int) -> None:
        self.jobs.pop(job_id, None)
        self.work.pop(job_id, None)

    def pass_time(self, now: float) -> None:
        """End jobs at their limit, also forgotten ones, and windows, unless they come back."""
        self.now = now
        for job in [job for job in self.work.values() if now >= job.end]:
            self.end(job.job_id)
        for window in [window for window in self.windows.values() if window.end < moment(now)]:
            if "HOURLY" in window.flags:
                window.start += _HOUR
            else:
                del self.windows[window.name]

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

    def write(self, name: str, wish: Wish) -> None:
        """Do what the writer does: decide on a fresh list, then send."""
        record = self.records.get(name)
        if record is None:
            return
        busy = any(job.node == name for job in self.jobs.values())
        update = decide(wish, Known(self.shown(record, busy=busy), 0.0), wellknown.REASON_PREFIX)
        if isinstance(update, NodeUpdate):
            self._apply(record, update)

    def _apply(self, record: Record, update: NodeUpdate) -> None:
        if update.state == ("DRAIN",):
            record.drain = True
            record.reason = record.reason if update.reason is None else update.reason
        elif update.state in (("UNDRAIN",), ("RESUME",)):
            assert not record.persons, f"a person's drain of {record.name} was undone"
            record.drain, record.reason = False, ""
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
