"""Which jobs are submitted, and what became of each by the records of accounting.

A job is lost if it is not COMPLETED with code 0 and exactly one record: a node that failed, a requeue, a
kill. Counted apart are jobs whose `srun` failed while slurmd or slurmctld was stopped or restarted: their
script then ends with an exit code of its own.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NO_STEP: Final = 77
FIELDS: Final = ("JobID", "JobName", "State", "ExitCode", "Submit", "Start", "End", "NodeList")
UNFINISHED: Final = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING"}
)
_PREFIX: Final = "torture-"
_LENGTHS: Final = ((3, 15), (15, 45), (45, 150))
_PAUSES: Final = (1.0, 6.0)
# A step that begins in the last moment before a freeze, and messages that are under way, need some seconds.
_MARGIN: Final = 30.0


@dataclass(frozen=True)
class Submission:
    """One job, or one array of jobs."""

    name: str
    pause: float
    """Seconds after the submission before it."""
    nodes: int
    seconds: int
    requeue: bool
    steps: bool
    """Whether it runs `srun`; jobs on several nodes do."""
    array: int = 0
    """How many tasks the array has; 0 for a plain job."""

    def command(self) -> list[str]:
        """Return the options and the script for sbatch."""
        words = [f"--job-name={self.name}", f"--nodes={self.nodes}", "--ntasks-per-node=1", "--time=15"]
        words.append("--requeue" if self.requeue else "--no-requeue")
        if self.array:
            words.append(f"--array=0-{self.array - 1}")
        sleep = f"sleep {self.seconds}"
        return [*words, f"--wrap={f'srun {sleep} || exit {NO_STEP}' if self.steps else sleep}"]


def submissions(seed: int) -> Iterator[Submission]:
    """Yield the jobs of a run, without end."""
    chance = random.Random(f"jobs {seed}")  # noqa: S311 - to choose, not to hide
    number = 0
    while True:
        number += 1
        nodes = chance.choice((1, 1, 1, 2))
        yield Submission(
            name=f"{_PREFIX}{number}",
            pause=round(chance.uniform(*_PAUSES), 1),
            nodes=nodes,
            seconds=chance.randint(*chance.choice(_LENGTHS)),
            requeue=chance.random() < 0.5,  # noqa: PLR2004 - half of them
            steps=nodes > 1 or chance.random() < 0.3,  # noqa: PLR2004 - a third of the others
            array=chance.choice((0, 0, 0, 3)) if nodes == 1 else 0,
        )


@dataclass(frozen=True)
class Record:
    """A line of sacct."""

    job: str
    """The id, with the task of an array."""
    name: str
    state: str
    code: str
    submitted: float
    started: float
    ended: float
    nodes: str

    @property
    def finished(self) -> bool:
        """Whether the job is over."""
        return self.state.partition(" ")[0] not in UNFINISHED


@dataclass(frozen=True)
class Window:
    """A time in which starting steps may fail."""

    what: str
    start: float
    end: float


@dataclass(frozen=True)
class Loss:
    """A job that was lost, and what its records say."""

    job: str
    why: str


@dataclass
class Tally:
    """What became of the jobs."""

    completed: int = 0
    apart: int = 0
    """Jobs whose `srun` failed while slurmd or slurmctld was stopped."""
    unfinished: int = 0
    lost: tuple[Loss, ...] = ()

    @property
    def total(self) -> int:
        """Return how many jobs there were."""
        return self.completed + self.apart + self.unfinished + len(self.lost)


def read_records(text: str) -> list[Record]:
    """Read what sacct prints for FIELDS with --parsable2, all jobs but those of others."""
    rows = (line.split("|") for line in text.splitlines() if line.count("|") == len(FIELDS) - 1)
    return [
        Record(job, name, state, code, _time(submitted), _time(started), _time(ended), nodes)
        for job, name, state, code, submitted, started, ended, nodes in rows
        if name.startswith(_PREFIX)
    ]


def _time(text: str) -> float:
    """Return the seconds since the epoch; infinity for what has not happened."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return float("inf")


def tally(records: Iterable[Record], accepted: Sequence[str], windows: Sequence[Window]) -> Tally:
    """Return what became of the jobs; `accepted` are the ids that sbatch has returned."""
    jobs: dict[str, list[Record]] = {}
    for record in records:
        jobs.setdefault(record.job, []).append(record)
    count: Counter[str] = Counter()
    lost = []
    for job, found in jobs.items():
        verdict = _verdict(found, windows)
        count[verdict] += 1
        if verdict not in ("completed", "apart", "unfinished"):
            lost.append(Loss(job, verdict))
    known = {job.partition("_")[0] for job in jobs}
    lost += [Loss(job, "accounting has no record of it") for job in accepted if job not in known]
    return Tally(count["completed"], count["apart"], count["unfinished"], tuple(lost))


def _verdict(found: list[Record], windows: Sequence[Window]) -> str:
    last = found[-1]
    if len(found) > 1:
        states = ", then ".join(f"{one.state} on {one.nodes}" for one in found)
        return f"ran {len(found)} times: {states}"
    if not last.finished:
        return "unfinished"
    if last.state == "COMPLETED" and last.code == "0:0":
        return "completed"
    if last.code == f"{NO_STEP}:0" and any(
        last.started < one.end + _MARGIN and last.ended > one.start for one in windows
    ):
        return "apart"
    return f"{last.state} with {last.code} on {last.nodes}"
