"""Everything that can happen to a NodeSet, each as one function of the world and a small number.

The number chooses among what there is, so that any sequence of events makes sense, and every shorter one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset import names
from tests.unit.nodeset.clustermodel import make_node
from tests.unit.nodeset.model import NODES, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.nodeset.clustermodel import SimPod


def _pod(world: World, which: int) -> SimPod | None:
    pods = [world.pods[name] for name in sorted(world.pods)]
    return pods[which % len(pods)] if pods else None


# --- nothing special


def time(world: World, number: int) -> None:
    world.pass_time(1.0 + 7 * number)
    world.reconcile()


def look_without_news(world: World, _number: int) -> None:
    world.reconcile()


def long_time(world: World, number: int) -> None:
    """Long enough for a list without nodes to be believed."""
    for _ in range(14):
        world.pass_time(10.0 + number)
        world.reconcile()


def time_unseen(world: World, number: int) -> None:
    """Slurm is listed, but nobody looks at it yet."""
    world.pass_time(1.0 + number)


def outage_of_attention(world: World, number: int) -> None:
    """Time in which nobody lists anything and nobody reconciles."""
    world.advance(10.0 * (number + 1))


# --- what users want


def scale(world: World, number: int) -> None:
    world.replicas = number


def new_template(world: World, _number: int) -> None:
    world.revision += 1


def old_template(world: World, _number: int) -> None:
    world.revision = max(1, world.revision - 1)


def change_strategy(world: World, number: int) -> None:
    world.strategy = ("RollingUpdate", "OnDelete")[number % 2]


def change_mode(world: World, number: int) -> None:
    world.mode = ("StatefulSet", "DaemonSet")[number % 2]


def cordon_node(world: World, number: int) -> None:
    world.nodes[NODES[number % 3]] = make_node(NODES[number % 3], cordoned=True)


def uncordon_node(world: World, number: int) -> None:
    world.nodes[NODES[number % 3]] = make_node(NODES[number % 3])


def cordon_pod(world: World, number: int) -> None:
    pod = _pod(world, number)
    # On a pod that the operator has cordoned nothing would change, and nobody could tell.
    if pod is not None and wellknown.ANNOTATION_POD_CORDON not in pod.annotations:
        pod.annotations[wellknown.ANNOTATION_POD_CORDON] = "true"
        pod.annotations.pop(names.ANNOTATION_POD_CORDON_BY, None)
        pod.persons_cordon = True
        world.touch(pod)


def uncordon_pod(world: World, number: int) -> None:
    pod = _pod(world, number)
    if pod is not None and wellknown.ANNOTATION_POD_CORDON in pod.annotations:
        del pod.annotations[wellknown.ANNOTATION_POD_CORDON]
        pod.persons_cordon = False
        world.touch(pod)


def drain_by_hand(world: World, number: int) -> None:
    pod = _pod(world, number)
    if pod is not None and world.slurm.up:
        world.slurm.person_drains(pod.hostname)


def resume_by_hand(world: World, number: int) -> None:
    pod = _pod(world, number)
    if pod is not None and world.slurm.up:
        world.slurm.person_resumes(pod.hostname)


def delete_pod_by_hand(world: World, number: int) -> None:
    pod = _pod(world, number)
    if pod is not None:
        pod.deleting = True
        world.touch(pod)


# --- jobs


def start_job(world: World, number: int) -> None:
    pod = _pod(world, number)
    if pod is not None:
        world.slurm.start_job(pod.hostname, world.now)


def end_job(world: World, number: int) -> None:
    jobs = sorted(world.slurm.work)
    if jobs:
        world.slurm.end(jobs[number % len(jobs)])


# --- faults


def crash(world: World, _number: int) -> None:
    world.crash()


def crash_while_acting(world: World, number: int) -> None:
    world.reconcile(crash_after=number)


def slurm_away(world: World, _number: int) -> None:
    world.slurm.reachable = False


def slurm_back(world: World, _number: int) -> None:
    world.slurm.reachable = world.connected = True


def no_connection(world: World, _number: int) -> None:
    world.connected = False


def slurmctld_down(world: World, _number: int) -> None:
    world.slurm.up = False


def slurmctld_up(world: World, _number: int) -> None:
    if not world.slurm.up:
        world.slurm.up, world.slurm.started = True, world.now


def slurmctld_loses_state(world: World, _number: int) -> None:
    remembered = {
        pod.uid for pod in world.pods.values() if pod.labels.get(wellknown.LABEL_POD_PROTECT) == "true"
    }
    world.slurm.lose_state(world.now, remembered)


def half_an_answer(world: World, number: int) -> None:
    """Some lists that leave out nodes, and then the truth again."""
    world.slurm.lie = ("empty", "half")[number % 2]
    for _ in range(number + 1):
        world.pass_time(5.0)
        world.reconcile()
    world.slurm.lie = ""


def cache_lags(world: World, _number: int) -> None:
    world.lagging = True


def cache_moves(world: World, number: int) -> None:
    world.catch_up(number + 1)


def cache_catches_up(world: World, _number: int) -> None:
    world.lagging = False
    world.catch_up()


def pod_not_ready(world: World, number: int) -> None:
    pod = _pod(world, number)
    if pod is not None and pod.phase == "Running":
        pod.ready_since = None
        world.touch(pod)


def pod_fails(world: World, number: int) -> None:
    """A pod is evicted: its containers end, and its jobs with them."""
    pod = _pod(world, number)
    if pod is not None and not pod.deleting:
        pod.phase, pod.ready_since, pod.finished_at = "Failed", None, world.now
        world.slurm.unregister(pod.hostname, pod.uid)
        world.touch(pod)


NEWS: tuple[Callable[[World, int], None], ...] = (
    *(time, time, time, look_without_news, time_unseen, long_time, outage_of_attention),
    *(scale, scale, new_template, old_template, change_strategy, change_mode),
    *(
        cordon_node,
        uncordon_node,
        cordon_pod,
        uncordon_pod,
        drain_by_hand,
        resume_by_hand,
        delete_pod_by_hand,
    ),
    *(start_job, start_job, start_job, end_job),
    *(crash, crash_while_acting, slurm_away, slurm_back, no_connection, slurmctld_down, slurmctld_up),
    *(slurmctld_loses_state, half_an_answer, cache_lags, cache_moves, cache_catches_up),
    *(pod_not_ready, pod_fails),
)
