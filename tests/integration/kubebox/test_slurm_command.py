"""`python -m kubebox slurm`, as a person uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubebox import SlurmBox

    Command = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def command(state_home: Path) -> Iterator[Command]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kubebox", "slurm", *arguments],
            cwd=ROOT,
            env={**os.environ, "KUBEBOX_STATE_HOME": str(state_home)},
            capture_output=True,
            text=True,
            check=False,
        )

    yield run
    run("down", "--all")


def test_detached_box_lives_until_down(command: Command, slurm_box: SlurmBox) -> None:
    """`up` returns and the box stays; `exec`, `token` and `status` find it; `down` ends it."""
    up = command("up", "--nodes", "1", "--cloud-nodes", "2", "--conf", "PartitionName=second Nodes=ALL")
    assert (up.returncode, up.stderr) == (0, "")
    assert "Slurm box default is up at http://127.0.0.1:" in up.stdout

    again = command("up")
    assert again.returncode == 1
    assert "is up already" in again.stderr

    shown = command("exec", "--user", "alice", "--", "sinfo", "--noheader", "--format=%R %D")
    assert shown.stdout.splitlines() == ["all 3", "second 3"]
    failed = command("exec", "--", "sh", "-c", "exit 7")
    assert failed.returncode == 7
    assert command("token", "--user", "alice").stdout.count(".") == 2

    status = command("status").stdout
    assert slurm_box.name not in status
    for name in ("slurmctld", "slurmrestd", "slurmd-n0"):
        assert [line for line in status.splitlines() if name in line and line.endswith("healthy")], status
    assert "detached" in status

    down = command("down")
    assert (down.returncode, down.stdout) == (0, "box default is down\n")
    assert command("status").stdout == "no box is up\n"
    missing = command("exec", "--", "sinfo")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "no Slurm box 'default' is up" in missing.stderr


def test_build_names_the_root_file_systems(command: Command, slurm_box: SlurmBox) -> None:
    """`build` prints where each release is; what is there already is not made again."""
    built = command("build", "--release", slurm_box.spec.release)
    assert (built.returncode, built.stderr) == (0, "")
    line = built.stdout.split()
    assert line[:2] == ["Slurm", "26.05"]
    assert (Path(line[2]) / "usr" / "sbin" / "slurmctld").exists()


def test_missing_tools_fail_only_the_tests_that_need_them(tmp_path: Path) -> None:
    """Where Slurm cannot be had, a test that wants it fails with the reason, and the others pass."""
    tests = tmp_path / "test_sample.py"
    tests.write_text("def test_slurm(slurm_box): pass\ndef test_plain(): pass\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "kubebox.pytest_plugin", "-p", "no:cacheprovider", str(tests)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed, 1 error" in result.stdout
    assert "kubebox: Slurm boxes are made from Debian packages" in result.stdout
    assert "Traceback" not in result.stdout
