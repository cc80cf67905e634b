"""How a history ends, and what must be so then."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.name_conflicts import expected_hostname
from tests.support.simulation.kubernetes import FIT, moment
from tests.support.simulation.slurm_cluster import IDLE_SECONDS, Power
from tests.support.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.simulation.kubernetes import SimPod

News = tuple["Callable[[World, int], None]", int]


def live_through(history: list[News]) -> World:
    """Return the world after a history, with all faults ended, everything settled, and checked."""
    world = new_world()
    for what, number in history:
        what(world, number)
        world.check_protected()
    world.heal()
    world.settle()
    wait_for_windows(world)
    check_wanted(world)
    check_silence(world)
    return world


def new_world() -> World:
    """Return a world with three workers that serve."""
    return _serving().clone()


@functools.cache
def _serving() -> World:
    world = World(replicas=3)
    world.settle()
    return world


def wait_for_windows(world: World) -> None:
    """Let windows that are open, or soon to be, pass by."""
    while any(one.start < moment(world.now + 600) for one in world.slurm.windows.values()):
        for _ in range(10):
            world.pass_time(20.0)
            world.reconcile_if_called()
        world.settle()


def check_silence(world: World) -> None:
    """Fail if anything is written, or said, about a state that is as it should be."""
    writes = world.writes
    for _ in range(3):
        world.pass_time(20.0)
        decided = world.reconcile()
        assert not decided.notes, f"said again: {decided.notes}"
        assert world.writes == writes, f"written at rest: {decided.actions}"


def check_wanted(world: World) -> None:
    """Fail unless everything is as it was last asked for."""
    if world.deleting:
        assert world.gone, f"the NodeSet is kept by {world.finalizers}"
        assert not world.pods
        return
    assert (wellknown.FINALIZER_DRAIN in world.finalizers) != world.skip_drain
    assert not any(pod.deleting for pod in world.pods.values())
    assert {pod.mode for pod in world.pods.values()} <= {world.mode}
    hostnames = [pod.hostname for pod in world.pods.values()]
    assert len(hostnames) == len(set(hostnames)), hostnames
    if world.mode == "StatefulSet" and world.most is not None:
        _check_powered(world)
    elif world.mode == "StatefulSet":
        assert len(world.pods) == world.replicas
        assert not any(one.cloud and not one.persons for one in world.slurm.records.values())
    else:
        _check_daemons(world, set(hostnames))
    for pod in world.pods.values():
        _check_pod(world, pod)
    _check_window(world)
    _check_status(world)


def _check_powered(world: World) -> None:
    """Fail unless exactly the nodes that are up have a pod, and no more of them are than are kept."""
    records = world.slurm.records
    assert {f"gpu-{index}" for index in range(world.most or 0)} <= records.keys()
    cloud = {name for name, one in records.items() if one.cloud}
    up = {name for name in cloud if records[name].power is Power.UP}
    hostnames = {pod.hostname for pod in world.pods.values()}
    cordoned = {pod.hostname for pod in world.pods.values() if pod.persons_cordon}
    assert hostnames == up | cordoned, f"{hostnames} have pods, and {up} are up"
    lately = [name for name in up if world.now - records[name].powered_at < 2 * IDLE_SECONDS]
    assert len(up) <= max(len(lately), world.least)
    for name in cloud - up:
        assert records[name].persons or not records[name].down, f"{name} stays down"


def _check_daemons(world: World, hostnames: set[str]) -> None:
    placed = {pod.node or pod.target for pod in world.pods.values()}
    assert len(placed) == len(world.pods)
    for name, node in world.nodes.items():
        # A node whose name in Slurm is another one's gets no worker.
        wanted = FIT.admits(node) and expected_hostname(node) not in hostnames
        assert name in placed or not wanted, f"{name} has no worker"
        assert name not in placed or FIT.keeps(node), f"{name} has a worker"


def _check_pod(world: World, pod: SimPod) -> None:
    record = world.slurm.records.get(pod.hostname)
    # A worker that is pinned to a cordoned node waits for it, and those that may go only after it, too.
    unhindered = all(one.node for one in world.pods.values())
    if world.strategy == "RollingUpdate" and unhindered:
        assert pod.revision == f"r{world.revision}", f"{pod.name} is of an old revision"
    kube_node = world.nodes.get(pod.node or pod.target)
    cordoned_node = kube_node is not None and kube_node.spec.unschedulable
    if not pod.node and pod.target:
        assert kube_node is not None, f"{pod.name} waits for {pod.target}, which is gone"
        assert FIT.suits(kube_node), f"{pod.name} waits for {pod.target}, which does not match"
    assert (wellknown.ANNOTATION_POD_CORDON_BY in pod.annotations) <= cordoned_node
    assert (wellknown.ANNOTATION_POD_CORDON in pod.annotations) == (pod.persons_cordon or cordoned_node)
    assert record is not None or pod.phase != "Running" or not unhindered, f"{pod.name} is not in Slurm"
    if record is not None and pod.phase == "Running":
        assert record.drain == (record.persons or pod.persons_cordon or cordoned_node), record
        released = record.drain and wellknown.ANNOTATION_POD_CORDON in pod.annotations
        assert pod.protected != (world.skip_drain or released), f"{pod.name} is protected: {pod.protected}"
        assert wellknown.ANNOTATION_POD_DEADLINE not in pod.annotations
    claim = world.claims[f"scratch-gpu-{pod.index or pod.hostname}"]
    owners = [owner.kind for owner in claim.owners]
    assert owners == (["NodeSet"] if world.when_deleted == "Delete" else []), owners
    if world.pin and pod.index and pod.phase == "Running" and FIT.suits(world.nodes[pod.node]):
        assert world.status["ordinalToNode"][str(int(pod.index))] == pod.node


def _check_window(world: World) -> None:
    scheduled = world.strategy == "ScheduledUpdate" and (world.mode == "DaemonSet" or world.replicas > 0)
    if not scheduled:
        assert not world.slurm.windows
        assert wellknown.FINALIZER_RESERVATION not in world.finalizers
    there = {pod.hostname for pod in world.pods.values() if pod.hostname in world.slurm.records}
    for window in world.slurm.windows.values():
        assert window.nodes == there


def _check_status(world: World) -> None:
    said = {one["type"]: one["status"] for one in world.status["conditions"]}
    serving = sum(pod.ready_since is not None for pod in world.pods.values())
    old = any(pod.revision != f"r{world.revision}" for pod in world.pods.values())
    if serving == world.status["desired"] and not (old and world.strategy == "ScheduledUpdate"):
        assert said["Ready"] == "True", world.status
        assert said["Progressing"] == "False", world.status
