"""The scripts of the small containers, run by a real shell in a folder of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from slurm_operator.objects import scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_DEADLINE = 120.0


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _DEADLINE
    while not condition():
        assert time.monotonic() < end, "the script did not do it in time"
        time.sleep(0.01)


@contextmanager
def _running(shell: str, script: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [shell, "-c", script],
        env=dict(os.environ) | environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# --------------------------------------------------------------------------------------------------- logfile


@pytest.mark.parametrize("existing", [False, True])
def test_logfile_prints_what_is_written_into_the_pipe(tmp_path: Path, existing: bool) -> None:  # noqa: FBT001 - two starts
    """Lines written to the log are printed, also by a writer that comes later; TERM ends it well."""
    log = tmp_path / "slurm" / "slurmctld.log"
    if existing:
        log.parent.mkdir()
        log.write_text("left over by a daemon that started first\n", encoding="utf-8")
    with _running("sh", scripts.LOGFILE, SOCKET=str(log)) as process:
        assert process.stdout is not None
        _until(lambda: log.exists() and stat.S_ISFIFO(log.stat().st_mode))
        _until(lambda: stat.S_IMODE(log.stat().st_mode) == 0o660)
        for line in ("first\n", "second\n"):
            with log.open("w", encoding="utf-8") as pipe:
                pipe.write(line)
            assert process.stdout.readline() == line
        process.send_signal(signal.SIGTERM)
        assert process.wait(_DEADLINE) == 0


def test_logfile_keeps_a_pipe_that_is_there(tmp_path: Path) -> None:
    """A sidecar that restarts uses the pipe that the daemon already has open."""
    log = tmp_path / "slurmd.log"
    os.mkfifo(log)
    before = log.stat().st_ino
    with _running("sh", scripts.LOGFILE, SOCKET=str(log)) as process:
        assert process.stdout is not None
        with log.open("w", encoding="utf-8") as pipe:
            pipe.write("x\n")
        assert process.stdout.readline() == "x\n"
    assert log.stat().st_ino == before


def test_jobs_can_neither_open_nor_replace_the_pipe(tmp_path: Path) -> None:
    """In a folder that all may write to, as a new volume is, others have no way to the log of slurmd."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    folder.chmod(0o777)
    log = folder / "slurmd.log"
    with _running("sh", scripts.LOGFILE, SOCKET=str(log)):
        _until(log.exists)
        assert not stat.S_IMODE(log.stat().st_mode) & stat.S_IRWXO
        assert not stat.S_IMODE(folder.stat().st_mode) & stat.S_IWOTH


def test_users_without_a_common_group_share_an_open_pipe(tmp_path: Path) -> None:
    """The pipe for a daemon of another user is open, as it always was."""
    log = tmp_path / "slurm" / "slurmd.log"
    with _running("sh", scripts.LOGFILE_OPEN, SOCKET=str(log)):
        _until(log.exists)
        _until(lambda: stat.S_IMODE(log.stat().st_mode) == 0o777)


# ----------------------------------------------------------------------------------------------- reconfigure


class _Volume:
    """A projected volume as the kubelet makes one: files are links through a folder that is exchanged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0
        folder.mkdir()

    def publish(self, **files: str) -> None:
        self._version += 1
        version = self.folder / f"..v{self._version}"
        version.mkdir()
        for name, text in files.items():
            (version / name).write_text(text, encoding="utf-8")
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        fresh = self.folder / "..data_tmp"
        fresh.symlink_to(version.name)
        fresh.rename(self.folder / "..data")
        for old in self.folder.glob("..v*"):
            if old != version:
                shutil.rmtree(old)


def test_reconfigure_tells_slurmctld_of_each_change(tmp_path: Path) -> None:
    """A change of content is told until it is heard, then no more; an exchange of folders is no change."""
    volume = _Volume(tmp_path / "etc")
    volume.publish(conf="1")
    calls, heard = tmp_path / "calls", tmp_path / "heard"
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    # Deaf at first, as slurmctld is while it restarts.
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n[ -e {heard} ]\n', encoding="utf-8")
    scontrol.chmod(0o755)
    script = scripts.RECONFIGURE.replace("/etc/slurm", str(volume.folder))
    script = script.replace("sleep 5", "touch rounds; sleep 0.02").replace("sleep 2", "sleep 0.02")
    rounds = tmp_path / "rounds"

    def count() -> int:
        return len(calls.read_text(encoding="utf-8").splitlines()) if calls.exists() else 0

    def rounds_pass() -> None:
        for _ in range(3):
            rounds.unlink(missing_ok=True)
            _until(rounds.exists)

    path = f"{scontrol.parent}:{os.environ['PATH']}"
    with _running("bash", script.replace("touch rounds", f"touch {rounds}"), PATH=path):
        rounds_pass()
        volume.publish(conf="1")
        rounds_pass()
        assert count() == 0
        volume.publish(conf="2")
        _until(lambda: count() >= 3)
        heard.touch()
        rounds_pass()
        told = count()
        rounds_pass()
        assert count() == told
        volume.publish(conf="2", gres="new")
        _until(lambda: count() == told + 1)
        assert set(calls.read_text(encoding="utf-8").split("\n")) == {"reconfigure", ""}


# -------------------------------------------------------------------------------------------------- initconf


def test_initconf_puts_files_in_place(tmp_path: Path) -> None:
    """Configuration is readable by all, keys and slurmdbd.conf by their owner alone; no more is copied."""
    source, target = tmp_path / "from", tmp_path / "to"
    target.mkdir()
    volume = _Volume(source)
    volume.publish(
        **{"slurm.key": "k", "slurm.jwks": "{}", "slurm.conf": "c", "slurmdbd.conf": "d", "other": "o"}
    )
    script = scripts.INITCONF.replace("/mnt/slurm", str(source)).replace("/mnt/etc/slurm", str(target))
    script = script.replace("401:401", f"{os.getuid()}:{os.getgid()}")
    subprocess.run(["sh", "-c", script], check=True, capture_output=True)
    assert {path.name: stat.S_IMODE(path.lstat().st_mode) for path in target.iterdir()} == {
        "slurm.key": 0o600,
        "slurm.jwks": 0o600,
        "slurm.conf": 0o644,
        "slurmdbd.conf": 0o600,
    }
    assert not any(path.is_symlink() for path in target.iterdir())


def test_initconf_fails_loudly(tmp_path: Path) -> None:
    """A file that cannot be put in place keeps the login container from starting without it."""
    source = tmp_path / "from"
    _Volume(source).publish(**{"slurm.key": "k"})
    script = scripts.INITCONF.replace("/mnt/slurm", str(source)).replace(
        "/mnt/etc/slurm", str(tmp_path / "nowhere")
    )
    assert subprocess.run(["sh", "-c", script], check=False, capture_output=True).returncode != 0
