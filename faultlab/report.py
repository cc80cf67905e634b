"""The table, the JSON file, and the command that repeats a failed run."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from faultlab.run import Outcome, Reference


@dataclass
class Section:
    """What a suite of a scenario came to."""

    scenario: str
    suite: str
    reference: Reference
    outcomes: list[Outcome] = field(default_factory=list)


VERDICTS = ("passed", "failed", "not reached")
HEADER = [
    "scenario",
    "suite",
    "writes",
    "runs",
    *VERDICTS,
    "reference s",
    "slowest recovery s",
]


def row(section: dict[str, Any]) -> list[str]:
    """Return the line of a section, which may be one that was read from a file, in the table."""
    count = Counter(run["verdict"] for run in section["runs"])
    slowest = max((run["recovery"] for run in section["runs"]), default=0.0)
    return [
        section["scenario"],
        section["suite"],
        str(len(section["reference"]["writes"])),
        str(len(section["runs"])),
        *(str(count[verdict]) for verdict in VERDICTS),
        f"{section['reference']['seconds']:.1f}",
        f"{slowest:.1f}",
    ]


def table(sections: list[dict[str, Any]]) -> str:
    """Return the table of all sections."""
    rows = [HEADER, *(row(section) for section in sections)]
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


def to_json(section: Section, arguments: Repetition) -> dict[str, Any]:
    """Return a section as plain values."""
    return {
        "scenario": section.scenario,
        "suite": section.suite,
        "reference": {
            "seconds": round(section.reference.seconds, 2),
            "writes": [write.to_json() for write in section.reference.writes],
            "not compared": sorted(section.reference.ignored),
        },
        "runs": [run_json(outcome, arguments) for outcome in section.outcomes],
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


@dataclass(frozen=True)
class Folder:
    """One file for each section, so that a run of hours that was interrupted can be continued."""

    path: Path | None
    """Without one, nothing is kept."""
    same: dict[str, Any]
    """What must be the same in the run that wrote a section; with an empty version no run is the same."""

    def find(self, scenario: str, suite: str) -> dict[str, Any] | None:
        """Return a section of the same run; None if there is none."""
        if self.path is None or not self.same["version"]:
            return None
        try:
            found = json.loads((self.path / _name(scenario, suite)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found["section"] if found.get("same") == self.same else None

    def save(self, section: dict[str, Any]) -> None:
        """Write a section that is complete."""
        if self.path is not None:
            path = self.path / _name(section["scenario"], section["suite"])
            # In one step: half a file would be an error the next time.
            part = path.with_suffix(".part")
            save(part, {"same": self.same, "section": section})
            part.replace(path)


def _name(scenario: str, suite: str) -> str:
    return f"{scenario}-{suite}.json"
