"""A Slurm box comes, serves, and goes without a trace, whoever dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubebox import BoxError, SlurmBox, SlurmSpec
from kubebox.slurm.layout import slurm_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Eventually = Callable[[Callable[[], bool], str], None]
    Factory = Callable[..., SlurmBox]

ROOT = Path(__file__).resolve().parents[3]
LOOPBACK = "0100007F"
LISTEN = "0A"
# A process that has ended but that nobody has waited for yet; it holds nothing any more.
ZOMBIE = "Z"


def processes_of(namespaces: set[str]) -> dict[int, str]:
    """Return pid and command of every living process in these pid namespaces."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                inside = str((entry / "ns" / "pid").readlink()) in namespaces
                command = (entry / "comm").read_text().strip()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if inside and state != ZOMBIE:
                found[int(entry.name)] = command
    return found


def namespaces_of(pids: Iterable[int]) -> set[str]:
    return {str(Path(f"/proc/{pid}/ns/pid").readlink()) for pid in pids}


def with_job(box: SlurmBox, eventually: Eventually) -> set[str]:
    """Run a job on two nodes and return the pid namespaces of the box, in which its processes are."""
    box.submit(nodes=["n0", "n1"])
    found = namespaces_of(process.pid for process in box.record().processes.values())
    eventually(lambda: "sleep" in processes_of(found).values(), "the job's sleep runs in the box")
    return found


def test_down_leaves_nothing(slurm_box_factory: Factory, eventually: Eventually) -> None:
    """After `down` no process, mount or file of a busy box is left; a second `down` is harmless."""
    box = slurm_box_factory(nodes=2)
    found = with_job(box, eventually)
    assert len(found) == 5  # slurmctld, slurmrestd, two slurmd, and the caller's commands
    box.down()
    assert processes_of(found) == {}
    assert not box.state.exists()
    assert str(box.state) not in Path("/proc/self/mountinfo").read_text()
    box.down()
    with pytest.raises(BoxError, match="the box is starting or was removed"):
        box.run("sinfo")


def test_box_dies_with_its_killed_caller(
    state_home: Path, eventually: Eventually, slurm_box: SlurmBox
) -> None:
    """When the process that asked for a box is killed, its daemons, jobs and files all go."""
    script = (
        "import time\n"
        "from kubebox import SlurmBox, SlurmSpec\n"
        "box = SlurmBox.up(SlurmSpec(nodes=1))\n"
        "job = box.submit()\n"
        "while 'R' not in box.run('squeue', '--noheader', '--format=%t').stdout:\n"
        "    time.sleep(0.05)\n"
        "pids = [process.pid for process in box.record().processes.values()]\n"
        "print(box.state, *pids, flush=True)\n"
        "time.sleep(600)\n"
    )
    environ = {**os.environ, "KUBEBOX_STATE_HOME": str(state_home)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        folder, *pids = caller.stdout.readline().split()
        found = namespaces_of(map(int, pids))
        eventually(lambda: "sleep" in processes_of(found).values(), "the job's sleep runs in the box")
        caller.kill()
    eventually(lambda: not processes_of(found), "every process of the box has ended")
    eventually(lambda: not Path(folder).exists(), "the folder is gone")
    assert slurm_box.run("scontrol", "ping").stdout.count("UP") == 1


def test_everything_dies_with_a_killed_supervisor(slurm_box_factory: Factory, eventually: Eventually) -> None:
    """When the supervisor is killed, the kernel ends daemons and jobs, and `down` removes what is left."""
    box = slurm_box_factory(nodes=2)
    found = with_job(box, eventually)
    os.kill(box.supervisor_pid, signal.SIGKILL)
    eventually(lambda: not processes_of(found), "all processes have ended")
    with pytest.raises(BoxError, match="has ended"):
        box.run("sinfo")
    with pytest.raises(BoxError, match="does not answer"):
        box.stop("slurmctld")
    assert box.state.exists()
    box.down()
    assert not box.state.exists()


def test_two_boxes_do_not_disturb_each_other(slurm_box: SlurmBox, slurm_box_24: SlurmBox) -> None:
    """Two boxes, of two releases even, share no port, no key and no job."""
    assert not set(slurm_box.record().ports.values()) & set(slurm_box_24.record().ports.values())
    assert slurm_box.jwt_key != slurm_box_24.jwt_key
    assert slurm_box.slurm_key != slurm_box_24.slurm_key
    assert slurm_box.version.startswith("26.05.")
    assert slurm_box_24.version.startswith("24.11.")
    job = slurm_box.submit(options=["--hold", "--job-name=mine"])
    try:
        assert "mine" in slurm_box.run("squeue").stdout
        assert "mine" not in slurm_box_24.run("squeue").stdout
    finally:
        slurm_box.run("scancel", str(job))


def test_name_is_unique_among_living_boxes(slurm_box: SlurmBox) -> None:
    """A second box of the same name is refused, and the first one does not notice."""
    with pytest.raises(BoxError, match="is up already"):
        SlurmBox.up(SlurmSpec(name=slurm_box.name))
    assert slurm_box.run("scontrol", "ping").stdout.count("UP") == 1
    assert SlurmBox.attach(slurm_box.name).url == slurm_box.url


def test_daemon_that_cannot_start_is_quoted() -> None:
    """A daemon that ends at once fails the start with its own last words, and nothing is left."""
    folder = slurm_root() / f"bad-{os.getpid()}"
    with pytest.raises(BoxError, match=r"(?s)slurmctld ended with exit code 1.*Nonsense"):
        SlurmBox.up(SlurmSpec(extra_conf="Nonsense=1", name=folder.name, nodes=0))
    assert not folder.exists()


def test_nothing_listens_beyond_loopback(
    slurm_box: SlurmBox, slurm_box_24: SlurmBox, eventually: Eventually
) -> None:
    """No daemon, step or srun of a box listens on an address that other machines can reach."""
    for box in (slurm_box, slurm_box_24):
        job = box.submit("#!/bin/sh\nsrun --nodes=2 --ntasks=2 sleep 100\n", nodes=["n0", "n1"])
        found = namespaces_of(process.pid for process in box.record().processes.values())
        eventually(lambda: list(processes_of(found).values()).count("sleep") == 2, "both tasks run")  # noqa: B023
        ours = {inode for pid in processes_of(found) for inode in sockets(pid)}
        listening = [entry for entry in tcp_entries() if entry[1] == LISTEN and entry[2] in ours]
        assert len(listening) >= 5  # the daemons, the steps' own ports come on top
        assert {address for address, _, _ in listening} == {LOOPBACK}
        box.run("scancel", str(job))


def tcp_entries() -> list[tuple[str, str, str]]:
    """Return address, state and inode of every TCP socket of the machine."""
    lines = [*Path("/proc/net/tcp").read_text().splitlines()[1:]]
    lines += Path("/proc/net/tcp6").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return [(field[1].partition(":")[0], field[3], field[9]) for field in fields]


def sockets(pid: int) -> set[str]:
    found = set()
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(fd.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target.removeprefix("socket:[").removesuffix("]"))
    except OSError:
        pass
    return found


def test_root_file_system_is_never_written(slurm_box: SlurmBox) -> None:
    """Not even root inside a box can change the file system that all boxes share."""
    for place in ("/usr/bin/new", "/etc/new", "/new"):
        result = slurm_box.run("touch", place, check=False)
        assert result.returncode == 1
        assert "Read-only file system" in result.stderr
    for place in ("/var/new", "/run/new", "/home/new"):
        slurm_box.run("touch", place)


def test_keys_are_private(slurm_box: SlurmBox) -> None:
    """Keys are readable by Slurm's own user only, and the box's folder by its owner."""
    assert slurm_box.state.stat().st_mode & 0o777 == 0o700
    for name in ("slurm.key", "jwt.key"):
        assert slurm_box.run("stat", "--format=%a %U", f"/etc/slurm/{name}").stdout == "600 slurm\n"
        assert slurm_box.run("cat", f"/etc/slurm/{name}", user="alice", check=False).returncode == 1


def test_box_without_root_is_refused(slurm_box: SlurmBox, tmp_path: Path) -> None:
    """A caller without root is told so in one sentence, before anything is made."""
    script = "import os; from kubebox import SlurmBox; os.setuid(65534); SlurmBox.up()"
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "KUBEBOX_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ToolError: Slurm boxes need root" in result.stderr
    assert list(tmp_path.iterdir()) == []
    assert slurm_box.pids
