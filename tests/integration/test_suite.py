"""All tests in several processes, with a project of a few tests and a real pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.again import PARTS
from scripts.suite import LANES, PATHS

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
# Plugins of this project are none of that one's, and take seconds to load.
# Empty, this one counts as not set: that output must not wait in a buffer is for the suite to say.
BARE = os.environ | {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "",
}
# Each of two parts ends only when the other has begun.
MEET = """\
import pathlib, time

def test_meets():
    pathlib.Path("{mine}").touch()
    for _ in range(1200):
        if pathlib.Path("{other}").exists():
            break
        time.sleep(0.05)
    else:
        raise AssertionError("alone")
    print("said by {mine}")
    assert {passes}
"""


DIE = """\
import os, signal

def test_dies():
    print("last words")
    os.kill(os.getpid(), signal.SIGKILL)
"""


GOOD = "def test_passes():\n    pass\n"
# The first two parts run side by side.
FIRST, SECOND = PARTS[:2]


def suite(project: Path, *options: str, **tests: str) -> subprocess.CompletedProcess[str]:
    """Run a project with one test in each part; those that are not given pass."""
    for part, paths in PATHS.items():
        for number, path in enumerate(paths or ("tests/rest",)):
            file = project / path
            if not path.endswith(".py"):
                file /= f"test_{part}_{number}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(tests.get(part, GOOD) if number == 0 else GOOD)
    pytest_ = [
        sys.executable,
        "-m",
        "pytest",
        "-o",
        "cache_dir=notes",
        "-s",
        "--strict-config",
        "--rootdir=.",
    ]
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "suite.py"), "--reports", ".", *options, *pytest_],
        cwd=project,
        env=BARE,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_parts_run_side_by_side_and_each_counts(tmp_path: Path, *, first: bool, second: bool) -> None:
    """Parts do not wait for each other, all are run and shown, and one that fails fails all."""
    assert LANES > 1
    meeting = {
        FIRST: MEET.format(mine="one", other="two", passes=first),
        SECOND: MEET.format(mine="two", other="one", passes=second),
    }
    done = suite(tmp_path, **meeting)
    assert (done.returncode == 0) == (first and second), done.stdout
    assert "said by one" in done.stdout
    assert "said by two" in done.stdout
    assert {one.name for one in tmp_path.glob("*.xml")} == {f"tests-{part}.xml" for part in PARTS}, (
        done.stdout
    )
    codes = {part: int((tmp_path / f"tests-{part}.code").read_text()) for part in PARTS}
    assert codes == dict.fromkeys(PARTS, 0) | {FIRST: int(not first), SECOND: int(not second)}
    for part, code in codes.items():
        assert f"==> part {part}: {'FAILED' if code else 'passed'}" in done.stdout


def test_what_a_part_printed_before_it_was_killed_is_shown(tmp_path: Path) -> None:
    """A part that is killed loses nothing of what it has printed, and the others are run."""
    done = suite(tmp_path, **{FIRST: DIE})
    assert done.returncode != 0
    assert "last words" in done.stdout.partition(f"==> part {FIRST}: FAILED")[2]
    assert done.stdout.count(": passed after") == len(PARTS) - 1


def test_only_some_parts_may_be_run(tmp_path: Path) -> None:
    """The parts that are named are run, and one that does not exist is refused."""
    done = suite(tmp_path, "--only", "unit,unit-clients")
    assert done.returncode == 0, done.stdout
    assert {one.name for one in tmp_path.glob("*.xml")} == {"tests-unit.xml", "tests-unit-clients.xml"}
    done = suite(tmp_path, "--only", "unit,other")
    assert done.returncode == 2
    assert "there is no part other" in done.stderr
