"""Which nodes are held by work that has not ended, and until when.

A job holds the nodes it lists unless all words of its state are known to mean that it has left them: a state
that nobody has heard of holds. Two kinds of trouble are kept apart from the rest. A job whose hostlist cannot
be read holds nodes that nobody can name, so none may be called free on account of the list that has it
(`unplaced`). A job that was unfinished and is missing from the next list without ever having ended may have
been left out by half an answer: it goes on holding its nodes until several whole lists agree that it is gone
(`JobBook.doubtful`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm import hostlist

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.slurm.model import Job

# A job that vanishes without an end is believed gone after so many whole lists over so many seconds. Slurm
# keeps an ended job in its list for MinJobAge, 300 s unless configured, so this is for the rare cases.
VANISHED_LISTS: Final = 3
VANISHED_SECONDS: Final = 10.0
# A job without a limit is said to end so long after its start: the longest time that programs in Go count,
# 292 years, as other tools around Slurm say it. Every such end is a date, and later than any real one.
UNLIMITED_SECONDS: Final = float((2**63 - 1) // 10**9)


@dataclass(frozen=True, slots=True)
class Hold:
    """The unfinished jobs on one node, and when the last of them ends at the latest.

    `end` is in Slurm's clock, seconds since 1970; centuries away when a job has no limit, and infinite when
    it is not known whether it has one.
    """

    jobs: tuple[int, ...]
    end: float


@dataclass(frozen=True, slots=True)
class Jobs:
    """What one list of jobs says."""

    holds: Mapping[str, Hold] = field(default_factory=dict)
    unplaced: tuple[str, ...] = ()
    """A sentence for each unfinished job whose nodes cannot be named."""
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many jobs are in a state and a partition."""


NO_JOBS: Final = Jobs()


@dataclass(frozen=True, slots=True)
class _Held:
    """One unfinished job."""

    job_id: int
    nodes: tuple[str, ...]
    end: float
    problem: str = ""
    lists: int = 0
    since: float = math.inf


def unfinished(job: Job) -> bool:
    """Tell whether a job may hold nodes."""
    # Waiting, with a flag that nobody knows yet: without nodes it holds none, whatever the flag means.
    waits = "PENDING" in job.job_state and "COMPLETING" not in job.job_state and not job.nodes
    return not job.finished and not waits


def latest_end(job: Job) -> float:
    """Return when a job ends at the latest, infinite when nothing says so."""
    start, limit = job.start_time.value, job.time_limit.value
    if not start or limit is None:
        return math.inf
    # Slurm moves the end of a job that was suspended or extended, and not the start.
    moved = (job.end_time.value or 0.0) - start
    return start + min(max(60.0 * limit, moved), UNLIMITED_SECONDS)


class JobBook:
    """Turns lists of jobs into `Jobs`, and remembers what a single list must not make it forget."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    @property
    def doubtful(self) -> bool:
        """Tell whether a job has vanished without an end and is not believed gone yet."""
        return any(held.lists for held in self._held.values())

    def listed(self, jobs: Iterable[Job], sent: float) -> Jobs:
        """Take in one whole list."""
        seen: set[int] = set()
        counts: Counter[tuple[str, str]] = Counter()
        held: dict[int, _Held] = {}
        names: dict[str, tuple[str, ...]] = {}
        for job in jobs:
            seen.add(job.job_id)
            counts[job.job_state[0] if job.job_state else "UNKNOWN", job.partition] += 1
            if unfinished(job):
                placed = self._place(job, names)
                # A number that comes twice must not hide half of what it holds.
                held[job.job_id] = _joined(held[job.job_id], placed) if job.job_id in held else placed
        for job_id, before in self._held.items():
            if job_id not in seen:
                since = min(before.since, sent)
                if before.lists + 1 < VANISHED_LISTS or sent - since < VANISHED_SECONDS:
                    held[job_id] = replace(before, lists=before.lists + 1, since=since)
        self._held, self._names = held, names
        return Jobs(
            MappingProxyType(_by_node(held.values())), _unplaced(held.values()), MappingProxyType(counts)
        )

    def _place(self, job: Job, names: dict[str, tuple[str, ...]]) -> _Held:
        end = latest_end(job)
        if not job.nodes:
            states = "+".join(job.job_state) or "in no state"
            return _Held(job.job_id, (), end, f"job {job.job_id} is {states} and Slurm does not say where")
        expanded = names.get(job.nodes) or self._names.get(job.nodes)
        if expanded is None:
            try:
                expanded = tuple(hostlist.expand(job.nodes))
            except ValueError as error:
                return _Held(job.job_id, (), end, f"the nodes of job {job.job_id} cannot be read: {error}")
            if not expanded:
                return _Held(job.job_id, (), end, f"job {job.job_id} lists no node: {job.nodes!r}")
        names[job.nodes] = expanded
        return _Held(job.job_id, expanded, end)


def _joined(one: _Held, other: _Held) -> _Held:
    return replace(
        one,
        nodes=tuple(dict.fromkeys((*one.nodes, *other.nodes))),
        end=max(one.end, other.end),
        problem=one.problem or other.problem,
    )


def _by_node(held: Iterable[_Held]) -> dict[str, Hold]:
    holds: dict[str, Hold] = {}
    for job in sorted(held, key=attrgetter("job_id")):
        for name in job.nodes:
            before = holds.get(name)
            if before is None:
                holds[name] = Hold((job.job_id,), job.end)
            else:
                holds[name] = Hold((*before.jobs, job.job_id), max(before.end, job.end))
    return holds


def _unplaced(held: Iterable[_Held]) -> tuple[str, ...]:
    return tuple(job.problem for job in held if job.problem)
