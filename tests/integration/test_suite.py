"""All tests in two processes, with a project of a few tests and a real pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.again import PARTS
from scripts.suite import WAITING

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
# Plugins of this project are none of that one's, and take seconds to load.
# Empty, this one counts as not set: that output must not wait in a buffer is for the suite to say.
BARE = os.environ | {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "",
}
# Each half ends only when the other has begun.
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


def suite(project: Path, *, rest: str, waiting: str) -> subprocess.CompletedProcess[str]:
    """Run a project with one file of tests in each part."""
    for folder in (*WAITING, "tests/unit"):
        (project / folder).mkdir(parents=True)
    (project / WAITING[0] / "test_w.py").write_text(waiting)
    (project / "tests/unit/test_r.py").write_text(rest)
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
        [sys.executable, str(ROOT / "scripts" / "suite.py"), "--reports", ".", *pytest_],
        cwd=project,
        env=BARE,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize(("rest", "waiting"), [(True, True), (True, False), (False, True)])
def test_both_parts_run_at_once_and_both_count(tmp_path: Path, *, rest: bool, waiting: bool) -> None:
    """Neither part waits for the other, both are shown, and one that fails fails all."""
    done = suite(
        tmp_path,
        rest=MEET.format(mine="r", other="w", passes=rest),
        waiting=MEET.format(mine="w", other="r", passes=waiting),
    )
    assert (done.returncode == 0) == (rest and waiting)
    assert (
        done.stdout.index("said by r") < done.stdout.index("what ran beside") < done.stdout.index("said by w")
    )
    assert {one.name for one in tmp_path.glob("*.xml")} == {"tests-rest.xml", "tests-waiting.xml"}
    codes = [int((tmp_path / f"tests-{part}.code").read_text()) for part in PARTS]
    assert codes == [int(not rest), int(not waiting)]


def test_what_a_part_printed_before_it_was_killed_is_shown(tmp_path: Path) -> None:
    """A part that is killed loses nothing of what it has printed."""
    done = suite(tmp_path, rest="def test_passes():\n    pass\n", waiting=DIE)
    assert done.returncode != 0
    assert "last words" in done.stdout.partition("what ran beside")[2]
