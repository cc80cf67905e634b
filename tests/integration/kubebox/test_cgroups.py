"""The control groups of a box, made and removed by the real kernel, in all versions that this machine has."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from kubebox import cgroups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = ("node-0", "node-1")
CONTROLLERS, DELEGATED = "cgroup.controllers", "cgroup.subtree_control"
# A machine with version 1 may have version 2 beside it, with the controllers that nobody mounted.
MOUNTS = [path for path in (cgroups.MOUNT, cgroups.MOUNT / "unified") if cgroups.hierarchies(path)]


@pytest.fixture(params=MOUNTS, ids=str)
def mount(request: pytest.FixtureRequest) -> Path:
    """Hand out each place where control groups are mounted."""
    found: Path = request.param
    return found


@pytest.fixture
def tops(tmp_path: Path, mount: Path) -> Iterator[list[Path]]:
    """Make the groups of a box with two nodes, and hand out the box's own in each hierarchy."""
    name = cgroups.make(tmp_path, NODES, mount)
    yield [hierarchy / name for hierarchy in cgroups.hierarchies(mount)]
    cgroups.remove(tmp_path, mount)


def test_nodes_may_use_every_controller(tops: list[Path]) -> None:
    """A node passes on what its machine does: all controllers, and with version 1 all processors."""
    for top in tops:
        machine = top.parent
        for group in (top / node for node in NODES):
            if (group / CONTROLLERS).exists():
                assert (machine / DELEGATED).read_text().split() == (
                    machine / CONTROLLERS
                ).read_text().split()
                assert (group / DELEGATED).read_text() == (machine / DELEGATED).read_text()
            elif (group / "cpuset.cpus").exists():
                assert (group / "cpuset.cpus").read_text() == (machine / "cpuset.cpus").read_text()


def test_what_is_below_a_node_goes_when_its_processes_have_ended(tops: list[Path], mount: Path) -> None:
    """Clearing a node waits for processes that are about to end, and leaves the node and its neighbour."""
    deep = [top / node / "pods" / "pod1" for top in tops for node in NODES]
    for group in deep:
        group.mkdir(parents=True)
    # Of version 1, the last hierarchy takes processes without further ado.
    busy = next(group for group in reversed(deep) if group.parent.parent.name == NODES[0])
    with subprocess.Popen(["sleep", "600"]) as ending:
        (busy / "cgroup.procs").write_text(str(ending.pid))
        clearing = threading.Thread(target=cgroups.clear, args=(f"{tops[0].name}/{NODES[0]}", mount))
        clearing.start()
        ending.kill()
        ending.wait()
        clearing.join()
    assert [group.exists() for group in deep] == [False, True] * len(tops)
    assert all((top / node).is_dir() for top in tops for node in NODES)


def test_nothing_is_left_of_a_box(tops: list[Path], tmp_path: Path, mount: Path) -> None:
    """Removing the groups of a box takes everything below them, and a second time is harmless."""
    (tops[0] / NODES[1] / "a" / "b").mkdir(parents=True)
    cgroups.remove(tmp_path, mount)
    assert not [top for top in tops if top.exists()]
    cgroups.remove(tmp_path, mount)
