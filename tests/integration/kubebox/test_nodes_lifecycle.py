"""Real nodes fail, come back and go without a trace, whoever dies first."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.cgroups import hierarchies
from kubebox.errors import BoxError
from kubebox.state import state_root, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox import Box
    from kubebox.procs import ProcessId

    BoxFactory = Callable[..., Box]

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).resolve().parents[3]
_DEADLINE = 180.0
_ONE: dict[str, Any] = {"nodes": 1, "controller_manager": True, "scheduler": True, "ready_timeout": 300.0}


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not so after {_DEADLINE:g} s: {what}"
        time.sleep(0.1)


def node(box: Box, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(box.kubectl("get", "node", name, "-o", "json"))
    return found


def ready(box: Box, name: str) -> str:
    conditions = node(box, name)["status"]["conditions"]
    return str(next(item["status"] for item in conditions if item["type"] == "Ready"))


def traces(box_folder: Path, group: str, link: str) -> dict[str, list[str]]:
    """Return what is to be found of a box on the machine."""
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    routes = Path("/proc/net/route").read_text(encoding="ascii").splitlines()
    return {
        "processes": processes_of(box_folder, group),
        "mounts": [line for line in mounts if str(box_folder) in line],
        "links": [path.name for path in Path("/sys/class/net").iterdir() if path.name == link],
        "routes": [line for line in routes if line.startswith(link)],
        "cgroups": [str(top / group) for top in hierarchies() if (top / group).exists()],
    }


def processes_of(folder: Path, group: str) -> list[str]:
    """Return the processes that name the box's folder, or run in one of its control groups."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            groups = (entry / "cgroup").read_text(encoding="utf-8")
        except OSError:
            continue
        if str(folder) in command or group in groups:
            found.append(f"{entry.name} {command[:100]}")
    return found


def marks(folder: Path) -> tuple[str, str]:
    """Return the names of a box's control group and of the machine's link to it."""
    server = json.loads((folder / "box.json").read_text(encoding="utf-8"))["server"]
    group = (folder / "cgroup").read_text(encoding="utf-8")
    return group, f"kbox{server.removeprefix('https://').split('.')[1]}"


def kernel_settings() -> dict[str, str]:
    """Return the settings of the machine that a kubelet changes where it can."""
    names = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
    return {name: (Path("/proc/sys") / name).read_text(encoding="ascii") for name in names}


def images_are_held(folder: Path) -> bool:
    """Return whether somebody keeps the images of a box from being removed from the cache."""
    machine = json.loads((folder / "nodes" / "node-0" / "machine.json").read_text(encoding="utf-8"))
    layers = Path(next(iter(machine["shows_read_only"].values())))
    (place,) = (path for path in layers.parents if path.name.startswith("images-"))
    with place.with_name(f".{place.name}.lock").open("r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def some_in_each(found: dict[str, list[str]]) -> bool:
    return all(found[kind] for kind in ("processes", "links", "routes", "cgroups"))


def none_in_any(found: dict[str, list[str]]) -> bool:
    return not any(found.values())


def test_boxes_side_by_side_leave_nothing(kube_box_factory: BoxFactory) -> None:
    """Boxes share nothing: one goes without a trace, the other lives on; no kernel setting was changed."""
    mounts, settings = Path("/proc/mounts").read_text(encoding="utf-8"), kernel_settings()
    box, other = kube_box_factory(**_ONE), kube_box_factory(**_ONE)
    assert kernel_settings() == settings
    mine, others = marks(box.state), marks(other.state)
    assert mine[0] != others[0]
    assert mine[1] != others[1]
    assert some_in_each(traces(box.state, *mine))
    assert images_are_held(box.state)
    box.down()
    assert none_in_any(traces(box.state, *mine)), traces(box.state, *mine)
    assert not box.state.exists()
    assert set(Path("/proc/mounts").read_text(encoding="utf-8").splitlines()) <= set(mounts.splitlines())
    assert ready(other, "node-0") == "True"
    assert images_are_held(other.state)
    assert some_in_each(traces(other.state, *others))


@pytest.mark.usefixtures("kube_programs")
def test_nodes_end_with_the_process_that_asked_for_them() -> None:
    """When its owner is killed, a box with nodes goes as completely as with `down`."""
    text = f"""
import sys, time
from kubebox import Box, BoxSpec
box = Box.up(BoxSpec(**{_ONE!r}))
print(box.state, flush=True)
time.sleep(1000)
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, env=environ, text=True
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        group, link = marks(folder)
        assert some_in_each(traces(folder, group, link))
        owner.kill()
    until(lambda: none_in_any(traces(folder, group, link)), "a box goes with its owner")
    until(lambda: not folder.exists(), "its folder, too")


def test_a_killed_supervisor_leaves_only_what_the_next_command_removes(kube_box_factory: BoxFactory) -> None:
    """With its supervisor killed, a box has no process, mount or link; a sweep removes groups and folder."""
    box = kube_box_factory(**_ONE)
    group, link = marks(box.state)
    os.kill(box.supervisor_pid, signal.SIGKILL)

    def only_groups() -> bool:
        found = traces(box.state, group, link)
        return not any(found[kind] for kind in ("processes", "mounts", "links", "routes"))

    until(only_groups, "the kernel ends nodes with their supervisor")
    sweep(state_root())
    assert none_in_any(traces(box.state, group, link)), traces(box.state, group, link)
    assert not box.state.exists()


def kubelet(box: Box) -> ProcessId | None:
    """Return the process of the first node's kubelet, None while there is none."""
    try:
        return box._daemon("node-0.kubelet")
    except BoxError:
        return None


def test_a_node_fails_and_reboots(kube_box_factory: BoxFactory) -> None:
    """A killed node is NotReady once its grace is over; started again it is Ready, without its old groups.

    A kubelet that is killed is started again by its node.
    """
    box = kube_box_factory(**{**_ONE, "nodes": 2}, gpus=4, node_grace=12.0)
    until(lambda: node(box, "node-1")["status"]["capacity"].get("nvidia.com/gpu") == "4", "GPUs are claimed")
    box.stop("node-1", kill=True)
    until(lambda: ready(box, "node-1") == "Unknown", "a dead node is noticed")
    assert ready(box, "node-0") == "True"
    # As containers leave them; kubelet would look at each of them for seconds.
    (group, _), left = marks(box.state), "kubepods/burstable/pod1/container1"
    tops = [top / group / "node-1" / left for top in hierarchies()]
    for top in tops:
        top.mkdir(parents=True)
    box.start("node-1")
    until(lambda: ready(box, "node-1") == "True", "a rebooted node is back")
    until(lambda: node(box, "node-1")["status"]["capacity"].get("nvidia.com/gpu") == "4", "GPUs are back")
    assert box.status()["node-1"]["health"] == "running"
    assert not [top for top in tops if top.exists()]
    killed = kubelet(box)
    box.crash("node-0.kubelet")
    until(lambda: kubelet(box) not in (None, killed), "the node starts its kubelet again")
