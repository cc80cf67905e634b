"""A box comes, serves, and goes without a trace, whoever dies first."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubebox import Box, BoxError, BoxSpec
from kubebox.state import state_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox.procs import ProcessId

    Eventually = Callable[[Callable[[], bool], str], None]
    Processes = Callable[[Path], list[str]]

pytestmark = pytest.mark.usefixtures("kube_programs")
ROOT = Path(__file__).resolve().parents[3]


def identities(box: Box) -> list[ProcessId]:
    record = box.record()
    return [record.supervisor, *record.processes.values()]


def test_down_leaves_nothing(processes_in: Processes) -> None:
    """After `down` no process and no file is left; a second `down` is harmless, any other use an error."""
    box = Box.up()
    processes = identities(box)
    assert sorted(box.pids) == ["etcd", "kube-apiserver"]
    assert all(process.alive() for process in processes)
    box.down()
    assert not any(process.alive() for process in processes)
    assert processes_in(box.state) == []
    assert not box.state.exists()
    box.down()
    with pytest.raises(BoxError, match=f"box {box.name}: No such file"):
        box.kubectl("get", "nodes")
    with pytest.raises(BoxError, match=f"box {box.name}: No such file"):
        box.log("etcd")


def test_two_boxes_do_not_disturb_each_other(kube_box: Box, eventually: Eventually) -> None:
    """Two boxes share no port and no object, and the end of one leaves the other at work."""
    with Box.up() as other:
        assert not set(kube_box.record().ports.values()) & set(other.record().ports.values())
        with kube_box.namespace("mine") as name:
            assert name in kube_box.kubectl("get", "namespaces", "-o", "name")
            assert name not in other.kubectl("get", "namespaces", "-o", "name")
            with pytest.raises(BoxError, match="certificate"):
                kube_box.kubectl("--server", other.server, "get", "namespaces")
    eventually(lambda: kube_box.kubectl("get", "--raw", "/readyz") == "ok", "the other box is ready")


def test_name_is_unique_among_living_boxes(kube_box: Box) -> None:
    """A second box of the same name is refused, and the first one does not notice."""
    with pytest.raises(BoxError, match="is up already"):
        Box.up(BoxSpec(name=kube_box.name))
    assert kube_box.kubectl("get", "--raw", "/readyz") == "ok"


def test_box_dies_with_its_killed_caller(
    state_home: Path, eventually: Eventually, processes_in: Processes
) -> None:
    """When the process that asked for a box is killed, every process and file of the box goes, too."""
    script = (
        "import time\n"
        "from kubebox import Box\n"
        "box = Box.up()\n"
        "print(box.state, flush=True)\n"
        "time.sleep(600)\n"
    )
    environ = {**os.environ, "KUBEBOX_STATE_HOME": str(state_home)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        folder = Path(caller.stdout.readline().strip())
        assert len(processes_in(folder)) >= 3
        caller.kill()
    eventually(lambda: processes_in(state_home) == [], "every process of the box has ended")
    eventually(lambda: not folder.exists(), "the folder is gone")


def test_components_die_with_a_killed_supervisor(eventually: Eventually) -> None:
    """When the supervisor is killed, the kernel ends its components, and `down` removes what is left."""
    box = Box.up()
    processes = identities(box)
    os.kill(box.supervisor_pid, signal.SIGKILL)
    eventually(lambda: not any(process.alive() for process in processes), "all processes have ended")
    with pytest.raises(BoxError, match="does not answer"):
        box.stop("etcd")
    assert box.state.exists()
    box.down()
    assert not box.state.exists()


def test_box_ends_when_its_folder_is_removed(eventually: Eventually) -> None:
    """A box whose folder somebody deleted cannot be found any more, so it ends by itself."""
    box = Box.up()
    processes = identities(box)
    shutil.rmtree(box.state, ignore_errors=True)  # its components go on writing meanwhile
    eventually(lambda: not any(process.alive() for process in processes), "all processes have ended")
    box.down()


def test_component_that_cannot_start_is_quoted(processes_in: Processes) -> None:
    """A component that ends at once fails the start with its own last words, and nothing keeps running."""
    folder = state_root() / f"bad-{os.getpid()}"
    with pytest.raises(
        BoxError, match=r"(?s)kube-apiserver ended with exit code 1.*unknown flag: --nonsense"
    ):
        Box.up(BoxSpec(apiserver_args=("--nonsense=1",), name=folder.name))
    assert processes_in(folder) == []
    assert not folder.exists()


def test_deadline_is_an_error_with_the_logs() -> None:
    """A box that is not ready in time is taken down, and the error shows what its components said."""
    with pytest.raises(BoxError, match=r"not ready after 0.01 s; last lines of"):
        Box.up(BoxSpec(ready_timeout=0.01))


def test_secrets_of_a_box_are_private(kube_box: Box) -> None:
    """Keys and kubeconfigs are readable by their owner only, and so is the folder around them."""
    assert kube_box.state.stat().st_mode & 0o777 == 0o700
    for path in (kube_box.kubeconfig, kube_box.key_file, kube_box.state / "scheduler.kubeconfig"):
        assert path.stat().st_mode & 0o777 == 0o600
