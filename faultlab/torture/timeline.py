"""The report of a run: the result, the figures, and minute by minute what was done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faultlab.torture.assess import MEMORY_LIMIT
from faultlab.torture.schedule import ABOUT

if TYPE_CHECKING:
    from faultlab.torture.assess import Facts

_LONGEST = 160


@dataclass
class Event:
    """An action that was carried out."""

    at: float
    """Seconds since the start."""
    do: str
    seconds: float
    result: str = ""
    """On what it was done, and what came of it."""
    failed: bool = False
    """Whether it was refused, or could not be done just then; no finding by itself."""


@dataclass(frozen=True)
class Sample:
    """How many jobs there were at a time."""

    at: float
    running: int
    pending: int


@dataclass
class Story:
    """A whole run."""

    seed: int
    minutes: float
    commit: str
    machine: str
    facts: Facts
    problems: list[str]
    took: float
    submitted: int = 0
    refused: int = 0
    """Submissions that sbatch refused, or that did not reach it."""
    events: list[Event] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "seed": self.seed,
            "minutes": self.minutes,
            "commit": self.commit,
            "machine": self.machine,
            "took": round(self.took),
            "submitted": self.submitted,
            "refused": self.refused,
            "jobs": {**vars(self.facts.jobs), "lost": [vars(one) for one in self.facts.jobs.lost]},
            "problems": self.problems,
            "memory": [[round(at), round(size, 1)] for at, size in self.facts.memory],
            "events": [vars(event) for event in self.events],
            "samples": [vars(sample) for sample in self.samples],
        }


def page(story: Story) -> str:
    """Return the report in Markdown."""
    jobs, facts = story.facts.jobs, story.facts
    verdict = "passed" if not story.problems else f"FAILED: {_count(len(story.problems), 'problem')}"
    done = sum(not event.failed for event in story.events)
    lines = [
        f"# Torture, seed {story.seed}: {verdict}",
        "",
        f"Commit {story.commit}, {story.machine}. `make torture MINUTES={story.minutes:g} SEED={story.seed}`",
        "",
        "| | |",
        "|---|---|",
        f"| time | {story.minutes:g} minutes with faults, {story.took / 60:.1f} with the repair |",
        f"| actions | {len(story.events)}, of which {done} were accepted |",
        f"| jobs | {jobs.total}, of {_count(story.submitted, 'submission')} |",
        f"| completed | {jobs.completed} |",
        f"| **lost** | **{len(jobs.lost)}** |",
        f"| `srun` failed while slurmd or slurmctld was stopped or restarted | {jobs.apart} |",
        f"| submissions that failed | {story.refused} |",
        f"| writes of the operator at rest | {len(facts.rest_writes)} |",
        f"| objects left behind or missing | {_changed(facts)} |",
        f"| largest memory of the operator | {facts.peak:.0f} MiB, limit {MEMORY_LIMIT:.0f} MiB |",
        "",
    ]
    if story.problems:
        lines += ["## Problems", *(f"- {problem}" for problem in story.problems), ""]
    return "\n".join([*lines, *_kinds(story), *_course(story)])


def _changed(facts: Facts) -> int:
    return (facts.after - facts.before).total() + (facts.before - facts.after).total()


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _kinds(story: Story) -> list[str]:
    count = Counter(event.do for event in story.events)
    accepted = Counter(event.do for event in story.events if not event.failed)
    rows = [f"| {ABOUT[do]} | {number} | {accepted[do]} |" for do, number in sorted(count.items())]
    return ["## What was done", "| action | times | accepted |", "|---|---|---|", *rows, ""]


def _course(story: Story) -> list[str]:
    lines = ["## Timeline", "| time | jobs running, pending | what happened | result |", "|---|---|---|---|"]
    minute = -1
    for event in sorted(story.events, key=lambda one: one.at):
        jobs = ""
        if int(event.at // 60) != minute:
            minute = int(event.at // 60)
            jobs = _jobs(story.samples, event.at)
        lasted = f", for {event.seconds:.0f} s" if event.seconds else ""
        result = " ".join(event.result.replace("|", "/").split())[:_LONGEST]
        lines.append(f"| {_clock(event.at)} | {jobs} | {ABOUT[event.do]}{lasted} | {result} |")
    return [*lines, ""]


def _clock(at: float) -> str:
    return f"{int(at // 60):02}:{int(at % 60):02}"


def _jobs(samples: list[Sample], at: float) -> str:
    found = next((one for one in reversed(samples) if one.at <= at), None)
    return "" if found is None else f"{found.running}, {found.pending}"
