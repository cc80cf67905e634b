"""Which nodes are held by work that has not ended, and until when.

A job holds the nodes it lists unless all words of its state are known and mean that it has ended or has not
started: a job in an unknown state holds its nodes. Two kinds of problems are kept apart from the rest. A job
whose hostlist cannot be read holds nodes that cannot be named, so no node may be called free on account of
the list that has it (`unplaced`). A job that was unfinished and is missing from the next list without ever
having ended may have been left out by half an answer: it goes on holding its nodes until several whole lists
agree that it is gone (`JobBook.doubtful`).

The nodes of all jobs together are expanded up to limits: forty jobs in a few kilobytes can name millions of
nodes. The jobs beyond them are unplaced, so no node is free on account of that list.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.model import hostlist
from slurm_operator.slurm.model.reply_limits import MAX_EXPANDED, MAX_JOBS, MAX_NODES
from slurm_operator.slurm.model.steps import at_once

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from slurm_operator.slurm.model.records import Job

# A job that vanishes without an end counts as gone after so many whole lists over so many seconds. Slurm
# keeps an ended job in its list for MinJobAge, 300 s unless configured, so this is for the rare cases.
VANISHED_LISTS: Final = 3
VANISHED_SECONDS: Final = 10.0
# A job without a limit is said to end so long after its start: the longest time that programs in Go count,
# 292 years, as other tools around Slurm say it. Every such end is a date, and later than any real one.
UNLIMITED_SECONDS: Final = float((2**63 - 1) // 10**9)
# So many jobs that cannot be placed are described; of the others it is only said how many they are.
_DESCRIBED: Final = 10
# Between two slices at most so many jobs are taken in, and about so many names expanded.
_SLICE_JOBS: Final = 2000
_SLICE_NAMES: Final = 20_000
# The number of what stands for jobs that vanished in such numbers that they are not remembered one by one.
_FORGOTTEN: Final = -1
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class NodeJobs:
    """The unfinished jobs on one node, and when the last of them ends at the latest.

    `end` is in Slurm's clock, seconds since 1970; centuries away when a job has no limit, and infinite when
    it is not known whether it has one.
    """

    jobs: tuple[int, ...]
    end: float


@dataclass(frozen=True, slots=True)
class UnfinishedJobs:
    """What one list of jobs says."""

    by_node: Mapping[str, NodeJobs] = field(default_factory=dict)
    unplaced: tuple[str, ...] = ()
    """A sentence for each unfinished job whose nodes cannot be named; for many, some and how many more."""
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many jobs are in a state and a partition."""


NO_JOBS: Final = UnfinishedJobs()


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
    """Return whether a job may hold nodes."""
    # Pending, with an unknown flag: without nodes it holds none, whatever the flag means.
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
    """Turns lists of jobs into `UnfinishedJobs`, and remembers what a single list must not make it forget."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    @property
    def doubtful(self) -> bool:
        """Return whether a job has vanished without an end and does not count as gone yet."""
        return any(held.lists for held in self._held.values())

    def listed(self, jobs: Sequence[Job], sent: float) -> UnfinishedJobs:
        """Take in one whole list."""
        return at_once(self.listing(jobs, sent))

    def ended(self, numbers: Collection[int], shown: UnfinishedJobs) -> UnfinishedJobs:
        """Take in that jobs of the last list have ended since; return what of that list, `shown`, is left."""
        gone = [self._held.pop(number) for number in numbers if number in self._held]
        by_node = dict(shown.by_node)
        for name in {name for job in gone for name in job.nodes}:
            left = [number for number in by_node.pop(name).jobs if number in self._held]
            if left:
                by_node[name] = NodeJobs((*left,), max(self._held[number].end for number in left))
        return replace(shown, by_node=MappingProxyType(by_node))

    def listing(self, jobs: Sequence[Job], sent: float) -> Generator[None, None, UnfinishedJobs]:
        """Take in one whole list as `listed` does, in slices of a few milliseconds."""
        seen: set[int] = set()
        counts: Counter[tuple[str, str]] = Counter()
        held: dict[int, _Held] = {}
        names = _Expansion(self._names)
        work = 0
        for job in jobs:
            seen.add(job.job_id)
            counts[job.job_state[0] if job.job_state else "UNKNOWN", job.partition] += 1
            if unfinished(job):
                placed = _place(job, names)
                # A number that comes twice must not hide half of what it holds.
                held[job.job_id] = _joined(held[job.job_id], placed) if job.job_id in held else placed
                work += len(placed.nodes) * _SLICE_JOBS // _SLICE_NAMES
            work += 1
            if work >= _SLICE_JOBS:
                work = 0
                yield
        held |= yield from self._vanished(seen, sent)
        by_node = yield from _by_node(held.values())
        self._held, self._names = held, names.used
        return UnfinishedJobs(MappingProxyType(by_node), _unplaced(held.values()), MappingProxyType(counts))

    def _vanished(self, seen: set[int], sent: float) -> Generator[None, None, dict[int, _Held]]:
        """Return the jobs that were unfinished, are missing from a list, and do not count as gone yet."""
        vanished: dict[int, _Held] = {}
        names = 0
        for job_id, before in self._held.items():
            if job_id not in seen:
                since = min(before.since, sent)
                if before.lists + 1 < VANISHED_LISTS or sent - since < VANISHED_SECONDS:
                    vanished[job_id] = replace(before, lists=before.lists + 1, since=since)
                    names += len(before.nodes)
                    if not len(vanished) % _SLICE_JOBS:
                        yield
        if len(vanished) <= MAX_JOBS and names <= MAX_EXPANDED:
            return vanished
        # Still in doubt as a whole: which nodes they held is not recorded any more.
        problem = f"{len(vanished)} jobs disappeared from the job list without having ended"
        return {_FORGOTTEN: _Held(_FORGOTTEN, (), math.inf, problem, 1, sent)}


class _Expansion:
    """The hostlists of one list of jobs, each expanded once, as long as there is room for the names."""

    def __init__(self, before: Mapping[str, tuple[str, ...]]) -> None:
        self.used: dict[str, tuple[str, ...]] = {}
        self._before = before
        self._left = MAX_EXPANDED
        self._distinct: set[str] = set()

    def expand(self, text: str) -> tuple[str, ...]:
        """Return the names in a hostlist; a ValueError says why they cannot be had."""
        expanded = self.used.get(text) or self._before.get(text)
        try:
            if expanded is None and self._left:
                limit = min(self._left, hostlist.MAX_NAMES)
                expanded = tuple(dict.fromkeys(hostlist.expand(text, limit)))
        except hostlist.TooManyNamesError:
            if self._left >= hostlist.MAX_NAMES:
                raise
        if expanded is None or len(expanded) > self._left:
            # From here on none is: trying each of many would take long.
            self._left = 0
            raise ValueError(f"the jobs of this list name more than {MAX_EXPANDED} nodes in all")
        if text not in self.used:
            self._distinct.update(expanded)
            if len(self._distinct) > MAX_NODES:
                self._left = 0
                raise ValueError(f"the jobs of this list name more than {MAX_NODES} different nodes")
        # Each job counts, also with the nodes of another: the node remembers both.
        self._left -= len(expanded)
        self.used[text] = expanded
        return expanded


def _place(job: Job, names: _Expansion) -> _Held:
    end = latest_end(job)
    if not job.nodes:
        states = "+".join(job.job_state) or "in no state"
        return _Held(
            job.job_id, (), end, f"job {job.job_id} is {states}, and Slurm does not report its nodes"
        )
    try:
        expanded = names.expand(job.nodes)
    except ValueError as error:
        return _Held(job.job_id, (), end, f"the nodes of job {job.job_id} cannot be read: {error}")
    if not expanded:
        return _Held(job.job_id, (), end, f"job {job.job_id} lists no node: {job.nodes[:_SHOWN]!r}")
    return _Held(job.job_id, expanded, end)


def _joined(one: _Held, other: _Held) -> _Held:
    return replace(
        one,
        nodes=tuple(dict.fromkeys((*one.nodes, *other.nodes))),
        end=max(one.end, other.end),
        problem=one.problem or other.problem,
    )


def _by_node(held: Iterable[_Held]) -> Generator[None, None, dict[str, NodeJobs]]:
    by_name: dict[str, list[_Held]] = {}
    work = 0
    for job in sorted(held, key=attrgetter("job_id")):
        for name in job.nodes:
            by_name.setdefault(name, []).append(job)
        work += len(job.nodes)
        if work >= _SLICE_NAMES:
            work = 0
            yield
    by_node: dict[str, NodeJobs] = {}
    for name, jobs in by_name.items():
        by_node[name] = NodeJobs(tuple(job.job_id for job in jobs), max(job.end for job in jobs))
        work += 1
        if work >= _SLICE_NAMES:
            work = 0
            yield
    return by_node


def _unplaced(held: Iterable[_Held]) -> tuple[str, ...]:
    problems = [job.problem for job in held if job.problem]
    more = len(problems) - _DESCRIBED
    return (
        *problems[:_DESCRIBED],
        *([f"the nodes of {more} more {'job' if more == 1 else 'jobs'} are unknown"] if more > 0 else []),
    )
