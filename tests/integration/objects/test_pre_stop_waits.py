"""The script that a worker runs before it ends, without any Slurm: what it waits for, and for how long.

`scontrol` is a program of the test that writes its arguments down, or hangs. The steps are real processes of
the name by which the script knows them. The script runs in a PID namespace of its own, as in a container.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from slurm_operator.objects.slurmd import PRE_STOP

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")

RECORD = """#!/bin/sh
printf '%s\\n' "$*" >>"$CALLS"
case $1 in show) printf '   State=IDLE+DYNAMIC_NORM ThreadsPerCore=1\\n' ;; esac
"""
HANG = """#!/bin/sh
printf '%s\\n' "$*" >>"$CALLS"
exec sleep 600
"""
DRAIN = "update NodeName=gpu-0 State=DRAIN Reason=slurm-operator: Pod is terminating"
DOWN = "update NodeName=gpu-0 State=DOWN Reason=slurm-operator: Pod is terminating"


def _program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _run(folder: Path, scontrol: str, before: str = "", grace: int = 30) -> tuple[list[str], float]:
    """Run the script behind something else in the same namespace; return calls of scontrol and seconds."""
    programs, calls = folder / "bin", folder / "calls"
    programs.mkdir()
    _program(programs / "scontrol", scontrol)
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, programs / "slurmstepd")
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CALLS": str(calls),
        "SLINKY_NODE_NAME": "gpu-0",
        "SLINKY_GRACE_SECONDS": str(grace),
    }
    started = time.monotonic()
    subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", f"{before}\n{PRE_STOP}"],
        env=environment,
        check=False,
        timeout=120,
    )
    return calls.read_text(encoding="utf-8").splitlines(), time.monotonic() - started


def test_an_idle_worker_waits_for_nothing(tmp_path: Path) -> None:
    """Without a step the node is drained and down at once."""
    calls, seconds = _run(tmp_path, RECORD)
    assert calls == ["show node gpu-0", DRAIN, DOWN]
    assert seconds < 10


def test_a_step_is_waited_for(tmp_path: Path) -> None:
    """The node goes down when the last process of a step has ended."""
    calls, seconds = _run(tmp_path, RECORD, "slurmstepd 4 & slurmstepd 6 &", grace=100)
    assert calls == ["show node gpu-0", DRAIN, DOWN]
    assert 5 <= seconds < 60


def test_a_step_is_waited_for_until_ten_seconds_before_the_end(tmp_path: Path) -> None:
    """A step that does not end delays the update by the grace period less ten seconds, and no longer."""
    calls, seconds = _run(tmp_path, RECORD, "slurmstepd 600 &", grace=15)
    assert calls == ["show node gpu-0", DRAIN, DOWN]
    assert 4 <= seconds < 15


@pytest.mark.parametrize("grace", [10, 1, 0])
def test_a_short_grace_period_leaves_no_time_to_wait(tmp_path: Path, grace: int) -> None:
    """With ten seconds or less nothing is waited for."""
    _, seconds = _run(tmp_path, RECORD, "slurmstepd 600 &", grace=grace)
    assert seconds < 10


def test_what_is_no_step_is_not_waited_for(tmp_path: Path) -> None:
    """The process that cgroup/v2 keeps, one that has ended, and other programs do not count."""
    # `sleep` knows the word, too: a real process with the name and the command line of the one that is kept.
    kept = "slurmstepd infinity & "
    zombie = "sh -c 'slurmstepd 0 & exec sleep 600' & "
    calls, seconds = _run(tmp_path, RECORD, f"{kept}{zombie}sleep 1")
    assert calls == ["show node gpu-0", DRAIN, DOWN]
    assert seconds < 12


def test_a_scontrol_that_hangs_does_not_keep_the_worker(tmp_path: Path) -> None:
    """Each call has its own limit, and all of them end within the grace period of Kubernetes."""
    calls, seconds = _run(tmp_path, HANG, "slurmstepd 600 &")
    assert calls == ["show node gpu-0", DRAIN, DOWN]
    assert 20 <= seconds < 40
