"""The second chance of CI, with a project of a few tests, a real pytest and a real make."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.again import PARTS

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
# Plugins of this project are none of that one's, and take seconds to load.
BARE = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
OPTIONS = "--override-ini=junit_family=xunit1"
FLAKY, BROKEN, KILLED = "test_flaky[$HOME it's]", "test_broken", "test_killed"
FAILED = '<testsuites><testcase file="tests/e2e/test_a.py" name="test_a"><failure/></testcase></testsuites>'
TESTS = """\
import pathlib
import pytest
from tests.support.job_killed import JobKilled

@pytest.mark.parametrize("name", ["$HOME it's"])
def test_flaky(name):
    first = not pathlib.Path("ran").exists()
    pathlib.Path("ran").touch()
    assert not first

def test_broken():
    assert False

def test_killed():
    raise JobKilled("job 7")

def test_good():
    assert not pathlib.Path("good").exists(), "what passed is not run again"
    pathlib.Path("good").touch()
"""


class Outcome(NamedTuple):
    """How it ended, what is to be said, and everything that was printed."""

    code: int
    verdict: str
    output: str


def again(project: Path, *left_out: str) -> Outcome:
    """Run all tests of a project but some, then give those that failed their second chance."""
    kept = project / "kept"
    kept.mkdir()
    tests = project / "tests" / "integration"
    tests.mkdir(parents=True)
    (tests / "test_some.py").write_text(TESTS)
    (project / "tests" / "support").mkdir()
    shutil.copy(ROOT / "tests" / "support" / "job_killed.py", project / "tests" / "support")
    chosen = " ".join(f"--deselect={tests.relative_to(project)}/test_some.py::{name}" for name in left_out)
    pytest_ = f"{sys.executable} -m pytest -p no:cacheprovider --import-mode=importlib {chosen}"
    (project / "Makefile").write_text(f"test:\n\t{pytest_} $(PYTEST_ARGS)\n")
    for part in PARTS:
        (kept / f"tests-{part}.xml").write_text("<testsuites/>")
        (kept / f"tests-{part}.code").write_text("0")
    (kept / "tests-rest.code").write_text("1")
    first = [*pytest_.split(), f"--junitxml={kept / 'tests-rest.xml'}", OPTIONS]
    assert subprocess.run(first, cwd=project, env=BARE, check=False, timeout=SECONDS).returncode == 1
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "again.py"), str(kept)],
        cwd=project,
        env=BARE,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return Outcome(done.returncode, (kept / "verdict.txt").read_text(), done.stdout)


def test_a_test_that_passes_alone_passes_and_is_named(tmp_path: Path) -> None:
    """What failed once and passes alone costs nothing but a line at the end; what passed is not run again."""
    code, verdict, output = again(tmp_path, BROKEN, KILLED)
    assert (code, verdict) == (
        0,
        f"FLAKY: tests/integration/test_some.py::{FLAKY} failed once, passed alone; fix it\n",
    )
    assert verdict in output
    assert "1 passed" in output


def test_a_test_that_fails_again_fails(tmp_path: Path) -> None:
    """One test that fails twice fails the run, whatever became of the others."""
    code, verdict, _ = again(tmp_path, KILLED)
    assert code == 1
    assert f"FLAKY: tests/integration/test_some.py::{FLAKY}" in verdict
    assert f"FAILED TWICE: tests/integration/test_some.py::{BROKEN}" in verdict


def test_a_killed_job_is_not_tried_again(tmp_path: Path) -> None:
    """A real report of a disturbed job is recognised, and nothing is run after it."""
    code, verdict, output = again(tmp_path, BROKEN)
    assert code == 1
    assert verdict.startswith("NO SECOND CHANCE: a job was disturbed")
    assert "pytest" not in output


@pytest.mark.parametrize("content", [None, "<testsuites>"])
def test_without_a_report_there_is_no_second_chance(tmp_path: Path, content: str | None) -> None:
    """A part that ended before its report, or within it, has failed."""
    for part in PARTS:
        (tmp_path / f"tests-{part}.xml").write_text(FAILED)
        (tmp_path / f"tests-{part}.code").write_text("1")
    last = tmp_path / f"tests-{PARTS[-1]}.xml"
    if content is None:
        last.unlink()
    else:
        last.write_text(content)
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "again.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 1
    assert done.stdout.startswith("NO SECOND CHANCE: a part of the tests ended")
