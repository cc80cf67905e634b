"""What the operator's configuration does to a job that takes too much memory, on real Slurm of both releases.

A slurmd runs in a control group with a limit, as in a container, under the cgroup.conf of the operator. Test
machines have control groups of version 1, so the plugin is another one; where there are none, the tests are
skipped.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_operator.objects.slurmd_conf import ENV_MEMORY, resource_environment
from slurm_operator.slurm.conf import conf_files
from tests.support.objects.resources import node_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubebox.slurm import SlurmBox

HIERARCHY = Path("/sys/fs/cgroup/memory")
LIMIT = 256
SCRIPT = r"""
PATH=/home/bin:$PATH
mount -t tmpfs none /sys && mkdir -p /sys/fs/cgroup && cd /sys/fs/cgroup || exit 1
for name in memory cpuset freezer cpuacct; do
  mkdir "$name" && mount -t cgroup -o "$name" cgroup "$name" || exit 1
done
echo $$ >"memory$1/cgroup.procs" && mount --bind "memory$1" memory || exit 1
mkdir -p /var/spool/slurmd/w /run/slurmd
slurmd -D -Z -N w --conf-server "$2" --conf "$3" &
while [ ! -e /home/stop ]; do sleep 0.2; done
kill $!
wait
"""

pytestmark = pytest.mark.skipif(
    not (HIERARCHY / "memory.limit_in_bytes").exists(), reason="no control groups of version 1"
)


@pytest.fixture(params=["26.05", "24.11"])
def box(request: pytest.FixtureRequest, slurm_box_factory: Callable[..., SlurmBox]) -> SlurmBox:
    """Hand out a cluster without nodes, configured as the operator would."""
    made = slurm_box_factory(release=request.param, nodes=0, extra_conf="TaskPlugin=task/cgroup")
    text = conf_files.cgroup_conf(constrain_memory=True).replace("cgroup/v2", "cgroup/v1")
    (made.home.parent / "etc" / "cgroup.conf").write_text(text, encoding="utf-8")
    made.run("scontrol", "reconfigure")
    return made


@contextmanager
def _group() -> Iterator[str]:
    """Make a control group with the limit of a container, inside of our own, and return its path."""
    (here,) = re.findall(
        r"^\d+:memory:(.*)$", Path("/proc/self/cgroup").read_text(encoding="utf-8"), re.MULTILINE
    )
    name = f"{here.rstrip('/')}/slurm-operator-test-{secrets.token_hex(4)}"
    made = HIERARCHY / name.lstrip("/")
    made.mkdir()
    try:
        (made / "memory.limit_in_bytes").write_text(f"{LIMIT}M", encoding="utf-8")
        yield name
    finally:
        for folder in sorted((path for path in [made, *made.rglob("*")] if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextmanager
def _worker(box: SlurmBox, memory: str) -> Iterator[None]:
    """Run the slurmd `w` under a limit until the block ends."""
    mount = shutil.which("mount")
    assert mount is not None
    (box.home / "bin").mkdir()
    shutil.copy(mount, box.home / "bin" / "mount")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    server_address = f"127.0.0.1:{box.record().ports['slurmctld']}"
    node = f"NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory={memory}"
    with _group() as group:
        command = ("unshare", "--mount", "sh", "-c", SCRIPT, "sh", group, server_address, node)
        running = threading.Thread(target=lambda: box.run(*command, check=False, timeout=240), name="slurmd")
        running.start()
        try:
            yield
        finally:
            (box.home / "stop").touch()
            running.join()


def _until(holds: Callable[[], bool], what: str, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.3)


def _submit(box: SlurmBox, memory: int, script: str) -> str:
    words = (
        "sbatch",
        "--parsable",
        f"--mem={memory}",
        "--chdir=/tmp",
        "--output=/dev/null",
        f"--wrap={script}",
    )
    return box.run(*words, user="alice").stdout.strip()


def _job(box: SlurmBox, job: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S*)", box.run("scontrol", "show", "job", job).stdout))


def test_a_job_that_exceeds_its_memory_dies_alone(box: SlurmBox) -> None:
    """The offender is OUT_OF_MEMORY; the job beside it COMPLETES, and its worker serves on."""
    nodeset = node_set("gpu", slurmd={"resources": {"limits": {"memory": f"{LIMIT}Mi"}}})
    (memory,) = (
        item["value"] for item in resource_environment(nodeset, reserve=True) if item["name"] == ENV_MEMORY
    )
    with _worker(box, memory):
        _until(lambda: box.run("sinfo", "-h", "-o", "%t").stdout.strip() == "idle", "the worker is idle")
        beside = _submit(box, 32, "until [ -e /home/alice/end ]; do sleep 0.2; done")
        _until(lambda: _job(box, beside)["JobState"] == "RUNNING", "the job runs")
        # `tail` keeps all of a line that does not end.
        greedy = _submit(box, 64, "head -c 160m /dev/zero | tail | wc -c")
        _until(lambda: _job(box, greedy)["JobState"] == "OUT_OF_MEMORY", "the offender is ended")
        assert _job(box, beside)["JobState"] == "RUNNING"
        (box.home / "alice" / "end").touch()
        _until(
            lambda: _job(box, beside)["JobState"] not in ("RUNNING", "COMPLETING"), "the other job has ended"
        )
        told = _job(box, beside)
        assert (told["JobState"], told["ExitCode"], told["Restarts"]) == ("COMPLETED", "0:0", "0")
        assert box.run("sinfo", "-h", "-o", "%t").stdout.strip() == "idle"
