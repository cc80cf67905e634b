"""This operator in the fault lab: the fixed sample that CI runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scripts.faults import CI, lab
from tests.support.job_killed import JobKilled

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("kube_programs")
def test_the_sample_passes(tmp_path: Path) -> None:
    """Crashes at writes of four scenarios end in the state of the run without a crash, and lose no job."""
    report = tmp_path / "report.json"
    code = lab([*CI, "--json", str(report)])
    runs = [run for section in json.loads(report.read_text())["scenarios"] for run in section["runs"]]
    problems = [
        f"{problem} ({run['repeat']})" for run in runs if "problems" in run for problem in run["problems"]
    ]
    if lost := [problem for problem in problems if problem.startswith("job ")]:
        raise JobKilled("; ".join(lost))
    assert problems == []
    assert [run["fault"] for run in runs if run["verdict"] != "passed"] == []
    assert runs
    assert code == 0
