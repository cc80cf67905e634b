"""What time, people and jobs do to a NodeSet, each as one function of the world and a small number.

The number chooses among what there is, so that any sequence of events makes sense, and every shorter one.
What goes wrong is in `faults`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slurm_operator.api import removal, wellknown
from slurm_operator.controllers.nodeset.decide.observation import ControllerState
from slurm_operator.kube.models.meta import Condition
from tests.support.simulation.kubernetes import LABELS, make_node, moment
from tests.support.simulation.world import NODES, World

if TYPE_CHECKING:
    from tests.support.simulation.kubernetes import SimPod


def some_pod(world: World, which: int) -> SimPod | None:
    pods = [world.pods[name] for name in sorted(world.pods)]
    return pods[which % len(pods)] if pods else None


# --- nothing special


def time(world: World, number: int) -> None:
    world.pass_time(1.0 + 7 * number)
    world.reconcile()


def reconcile_without_news(world: World, _number: int) -> None:
    world.reconcile()


def called(world: World, number: int) -> None:
    """Time passes, and the operator reconciles only if something calls it."""
    for _ in range(number + 1):
        world.pass_time(8.0)
        world.reconcile_if_called()


def long_time(world: World, number: int) -> None:
    """Long enough for a list without nodes to be believed."""
    for _ in range(14):
        world.pass_time(10.0 + number)
        world.reconcile()


def time_unseen(world: World, number: int) -> None:
    """Slurm is listed, but the operator has not reconciled yet."""
    world.pass_time(1.0 + number)


def outage_of_attention(world: World, number: int) -> None:
    """Time in which nothing is listed and nothing is reconciled."""
    world.advance(10.0 * (number + 1))


# --- what users want


def scale(world: World, number: int) -> None:
    world.replicas = number
    world.awake = True


def new_template(world: World, _number: int) -> None:
    world.revision += 1
    world.awake = True


def old_template(world: World, _number: int) -> None:
    world.revision = max(1, world.revision - 1)
    world.awake = True


def change_strategy(world: World, number: int) -> None:
    world.strategy = ("RollingUpdate", "OnDelete")[number % 2]
    world.awake = True


def schedule_update(world: World, number: int) -> None:
    """Ask for a window that opens soon, or is about to; every other time one that comes back."""
    world.strategy = "ScheduledUpdate"
    world.window = moment(math.floor(world.now) + 60.0 * number)
    world.flags = ((), ("HOURLY",), ("FORCE_START",))[number % 3]
    world.awake = True


def change_pace(world: World, number: int) -> None:
    world.max_unavailable = (1, 2, "34%", "100%")[number % 4]
    world.min_ready = (0, 30)[number % 2]
    world.awake = True


def change_mode(world: World, number: int) -> None:
    world.mode = ("StatefulSet", "DaemonSet")[number % 2]
    world.awake = True


def pin_to_node(world: World, number: int) -> None:
    world.pin = number % 2 == 0
    world.awake = True


def change_retention(world: World, number: int) -> None:
    world.when_scaled = ("Delete", "Retain")[number % 2]
    world.when_deleted = ("Retain", "Delete")[number % 3 == 0]
    world.awake = True


def change_pruning(world: World, number: int) -> None:
    world.prune = ("Never", "NodeNotFound", "ScaledIn")[number % 3]
    world.awake = True


# --- the end of the NodeSet


def delete_nodeset(world: World, _number: int) -> None:
    if not world.deleting:
        world.deleting = True
        world.awake = True


def skip_drain(world: World, number: int) -> None:
    """Ask that the pods go with the NodeSet; sometimes only to take that back."""
    world.skip_drain = number % 3 != 0
    world.awake = True


def controller_leaves(world: World, number: int) -> None:
    """The Controller is deleted, too, with its NodeSet."""
    world.controller = (ControllerState.LEAVES, ControllerState.GONE, ControllerState.OUTLIVED)[number % 3]
    delete_nodeset(world, number)


# --- nodes of Kubernetes


def _change_node(
    world: World, name: str, *, cordoned: bool, taint: str = "", labels: object = None, **annotations: str
) -> None:
    """Put a node, new or changed, and tell whoever watches nodes."""
    kept = LABELS if labels is None else labels
    world.nodes[name] = make_node(name, cordoned=cordoned, taint=taint, labels=kept, annotations=annotations)
    world.awake = True


def cordon_node(world: World, number: int) -> None:
    if NODES[number % 3] in world.nodes:
        _change_node(world, NODES[number % 3], cordoned=True)


def uncordon_node(world: World, number: int) -> None:
    if NODES[number % 3] in world.nodes:
        _change_node(world, NODES[number % 3], cordoned=False)


def taint_node(world: World, number: int) -> None:
    """A person drives everything away from a node."""
    if NODES[number % 3] in world.nodes:
        _change_node(world, NODES[number % 3], cordoned=False, taint="bad-disk")


def add_node(world: World, number: int) -> None:
    _change_node(world, (*NODES, "node-8")[-1 - number % 5], cordoned=False)


def lose_label(world: World, number: int) -> None:
    """A node is given to another purpose."""
    if NODES[number] in world.nodes:
        _change_node(world, NODES[number], cordoned=False, labels={})


def rename_node(world: World, number: int) -> None:
    """A node is called otherwise in Slurm; sometimes as another one is."""
    name = NODES[number % 4]
    if name in world.nodes:
        override = {wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE: f"node-{number // 2}"}
        _change_node(world, name, cordoned=False, **override)


def remove_node(world: World, number: int) -> None:
    """A Kubernetes node is gone, with whatever ran on it."""
    name = NODES[number]
    if world.nodes.pop(name, None) is None:
        return
    world.awake = True
    for pod in world.pods.values():
        if pod.node == name:
            world.slurm.unregister(pod.hostname, pod.uid)


# --- cordons and drains by hand


def cordon_pod(world: World, number: int) -> None:
    pod = some_pod(world, number)
    # On a pod that the operator has cordoned nothing would change, and nobody could tell.
    if pod is not None and wellknown.ANNOTATION_POD_CORDON not in pod.annotations:
        pod.annotations[wellknown.ANNOTATION_POD_CORDON] = "true"
        pod.annotations.pop(wellknown.ANNOTATION_POD_CORDON_BY, None)
        pod.persons_cordon = True
        world.touch(pod)


def uncordon_pod(world: World, number: int) -> None:
    pod = some_pod(world, number)
    if pod is not None and wellknown.ANNOTATION_POD_CORDON in pod.annotations:
        del pod.annotations[wellknown.ANNOTATION_POD_CORDON]
        pod.persons_cordon = False
        world.touch(pod)


def drain_by_hand(world: World, number: int) -> None:
    pod = some_pod(world, number)
    if pod is not None and world.slurm.up:
        world.slurm.person_drains(pod.hostname)


def resume_by_hand(world: World, number: int) -> None:
    pod = some_pod(world, number)
    if pod is not None and world.slurm.up:
        world.slurm.person_resumes(pod.hostname)
        if not pod.protected:
            world.excused.add(pod.uid)


def delete_pod_by_hand(world: World, number: int) -> None:
    pod = some_pod(world, number)
    if pod is not None:
        world.delete(pod)


def evict(world: World, number: int) -> None:
    """Somebody evicts or deletes a pod; what Kubernetes refuses is recorded as a request."""
    pod = some_pod(world, number)
    if pod is None or pod.deleting:
        return
    if pod.protected and pod.phase == "Running":
        by = ("eviction", "deletion")[number // 2 % 2]
        pod.annotations[wellknown.ANNOTATION_REMOVAL_REQUESTED] = removal.text(moment(world.now), by)
        world.touch(pod)
        return
    jobs = [job.job_id for job in world.slurm.work.values() if job.pod == pod.uid]
    assert not jobs or pod.uid in world.excused, f"{pod.name} was evicted under {jobs}"
    world.delete(pod)


def preempt(world: World, number: int) -> None:
    """The scheduler wants the place of a pod, and is refused."""
    pod = some_pod(world, number)
    if pod is not None and not pod.deleting and pod.phase == "Running":
        pod.conditions["DisruptionTarget"] = Condition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            last_transition_time=moment(world.now),
        )
        world.touch(pod)


# --- power saving


def autoscale(world: World, number: int) -> None:
    """Let Slurm decide which workers run, up to so many, and keep some up."""
    if world.mode == "StatefulSet":
        world.most, world.least = number + 1, number // 3
        world.slurm.keeps = world.least
        world.strategy = "RollingUpdate"
        world.awake = True


def autoscale_no_more(world: World, _number: int) -> None:
    world.most, world.least, world.slurm.keeps = None, 0, 0
    world.awake = True


def need_node(world: World, number: int) -> None:
    """A job is given a node, up or powered down."""
    world.slurm.start_job(f"gpu-{number}", world.now)


def suspend_time(world: World, number: int) -> None:
    """Long enough for idle nodes to be powered down; jobs may come at any moment of it."""
    for step in range(8):
        world.pass_time(12.0)
        world.reconcile_if_called()
        if step == number:
            need_node(world, number)


# --- jobs


def start_job(world: World, number: int) -> None:
    pod = some_pod(world, number)
    if pod is not None:
        world.slurm.start_job(pod.hostname, world.now)


def end_job(world: World, number: int) -> None:
    jobs = sorted(world.slurm.work)
    if jobs:
        world.slurm.end(jobs[number % len(jobs)])
