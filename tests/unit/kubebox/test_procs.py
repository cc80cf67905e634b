from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kubebox.procs import ProcessId, children, parse_stat, program_name, start_time, tail

ROOT = Path(__file__).resolve().parents[3]


def stat_line(name: str, state: str, started: int) -> str:
    return f"42 ({name}) {state} " + " ".join(["0"] * 18) + f" {started} 0 0\n"


@pytest.mark.parametrize("name", ["etcd", "a b", "a) R 1", "(x)", ") Z"])
def test_start_time_is_found_behind_any_command_name(name: str) -> None:
    """A command name with blanks and brackets does not shift the fields."""
    assert parse_stat(stat_line(name, "S", 987)) == ("S", 987)


def test_zombie_counts_as_gone() -> None:
    """A process that has ended and only waits for its parent is not alive."""
    with subprocess.Popen(["sleep", "60"]) as child:
        identity = ProcessId.of(child.pid)
        assert identity is not None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{child.pid}").exists()
        assert not identity.alive()


def test_own_process_is_known() -> None:
    """The start time of a living process is found, and tells it apart from nothing."""
    own = ProcessId.of(os.getpid())
    assert own is not None
    assert own.alive()


def test_children_are_found_by_their_parent() -> None:
    """A process that was started is found below its parent, by the name of its program, until it ends."""
    with subprocess.Popen(["sleep", "60"]) as child:
        assert child.pid in children(os.getpid())
        assert program_name(child.pid) == "sleep"
        child.kill()
    assert child.pid not in children(os.getpid())
    assert program_name(child.pid) == ""


def test_reused_pid_is_not_signalled() -> None:
    """A process with the same pid but another start time gets no signal."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        started = start_time(stranger.pid)
        assert started is not None
        assert not ProcessId(stranger.pid, started - 1).signal(signal.SIGKILL)
        assert stranger.poll() is None
        assert ProcessId(stranger.pid, started).signal(signal.SIGKILL)
        assert stranger.wait() == -signal.SIGKILL
        assert not ProcessId(stranger.pid, started).signal(signal.SIGKILL)


def test_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """A spawned program ends when its parent is killed with a signal that cannot be handled."""
    script = (
        "import pathlib, sys, time\n"
        "from kubebox.procs import spawn\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "child = spawn(['/bin/sleep', '600'], log=folder / 'log', env={}, cwd=folder)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        child = ProcessId.of(int(parent.stdout.readline()))
        assert child is not None
        parent.kill()
    deadline = time.monotonic() + 120
    while child.alive():
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.01)


def test_tail_shows_the_end_of_a_log(tmp_path: Path) -> None:
    """An error message gets the last lines of a log, and none when the log was never written."""
    log = tmp_path / "x.log"
    assert tail(log) == ""
    log.write_text("\n".join(str(number) for number in range(100)))
    assert tail(log, 3) == "97\n98\n99"
