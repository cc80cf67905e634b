"""The table, the JSON file, and the command that repeats a failed run."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from faultlab.run import Outcome, Reference


@dataclass
class Section:
    """What a scenario came to."""

    scenario: str
    suite: str
    reference: Reference
    points: int
    outcomes: list[Outcome] = field(default_factory=list)

    def row(self) -> list[str]:
        """Return its line of the table."""
        count = dict.fromkeys(("passed", "failed", "not reached"), 0)
        for outcome in self.outcomes:
            count[outcome.verdict] += 1
        slowest = max((outcome.recovery for outcome in self.outcomes), default=0.0)
        return [
            self.scenario,
            self.suite,
            str(len(self.reference.writes)),
            str(len(self.outcomes)),
            *(str(number) for number in count.values()),
            f"{self.reference.seconds:.1f}",
            f"{slowest:.1f}",
        ]


HEADER = [
    "scenario",
    "suite",
    "writes",
    "runs",
    "passed",
    "failed",
    "not reached",
    "reference s",
    "slowest recovery s",
]


def table(sections: list[Section]) -> str:
    """Return the table of all scenarios."""
    rows = [HEADER, *(section.row() for section in sections)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


@dataclass(frozen=True)
class Repetition:
    """What the commands that repeat runs have in common."""

    command: str
    arguments: list[str] = field(default_factory=list)


def repeat_command(outcome: Outcome, repetition: Repetition) -> str:
    """Return the one command that repeats a run."""
    fault = [] if outcome.fault is None else ["--fault", outcome.fault.to_text()]
    return f"{repetition.command} {shlex.join([outcome.source, *repetition.arguments, *fault])}"


def line(outcome: Outcome) -> str:
    """Return a run in one line."""
    what = outcome.fault.to_text() if outcome.fault is not None else "no fault"
    return f"{outcome.verdict:11} {outcome.scenario}: {what}"


def to_json(sections: list[Section], about: dict[str, Any], arguments: Repetition) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        **about,
        "scenarios": [
            {
                "scenario": section.scenario,
                "suite": section.suite,
                "reference": {
                    "seconds": round(section.reference.seconds, 2),
                    "writes": [write.to_json() for write in section.reference.writes],
                    "not compared": sorted(section.reference.ignored),
                },
                "runs": [run_json(outcome, arguments) for outcome in section.outcomes],
            }
            for section in sections
        ],
    }


def run_json(outcome: Outcome, arguments: Repetition) -> dict[str, Any]:
    """Return a run as plain values, of a failed one all writes."""
    result: dict[str, Any] = {
        "fault": outcome.fault.to_text() if outcome.fault is not None else "",
        "verdict": outcome.verdict,
        "seconds": round(outcome.seconds, 2),
        "recovery": round(outcome.recovery, 2),
        "starts": outcome.lives,
    }
    if outcome.problems:
        result |= {
            "problems": outcome.problems,
            "log": outcome.log,
            "repeat": repeat_command(outcome, arguments),
            "writes": [write.to_json() for write in outcome.writes],
        }
    return result


def save(path: Path, content: dict[str, Any]) -> None:
    """Write the JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
