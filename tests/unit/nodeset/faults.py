"""What goes wrong in the life of a NodeSet, and the list of all news that a history is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from tests.unit.nodeset import events
from tests.unit.nodeset.clustermodel import moment
from tests.unit.nodeset.events import some_pod

if TYPE_CHECKING:
    from tests.unit.nodeset.model import World
    from tests.unit.nodeset.slurmmodel import Work

Event = Callable[["World", int], None]

# The longest that a slurmctld without its nodes answers, and is right again later; see `slurm.belief`.
LONGEST_LIE = 60.0


# --- the operator


def crash(world: World, _number: int) -> None:
    world.crash()


def crash_while_acting(world: World, number: int) -> None:
    """The process ends after so many writes of one pass, whichever these are."""
    world.reconcile(crash_after=number)


def crash_soon(world: World, number: int) -> None:
    """The process ends after so many writes, of whichever passes."""
    world.fuse = number


def clock_jumps(world: World, number: int) -> None:
    """The clock of the machine is set wrong; the others' are right."""
    world.skew = (0.0, 3600.0, -3600.0, 130.0, -130.0, 10_000_000.0)[number]


def budget_missing(world: World, number: int) -> None:
    """The PodDisruptionBudget cannot be applied; every other time it is there again."""
    world.budget = bool(number % 2)
    world.awake = True


# --- Slurm


def slurm_away(world: World, _number: int) -> None:
    world.slurm.reachable = False


def slurm_back(world: World, _number: int) -> None:
    world.slurm.reachable = world.connected = True
    world.partial = False


def no_connection(world: World, _number: int) -> None:
    world.connected = False


def slurmctld_down(world: World, _number: int) -> None:
    world.slurm.up = False


def slurmctld_up(world: World, _number: int) -> None:
    if not world.slurm.up:
        world.slurm.up, world.slurm.started = True, world.now


def slurmctld_loses_state(world: World, _number: int) -> None:
    world.slurm.lose_state(world.now, lambda job: _written_down(world, job))


def _written_down(world: World, job: Work) -> bool:
    """Tell whether a pod says that a job runs in it, and for how long."""
    pod = next((pod for pod in world.pods.values() if pod.uid == job.pod), None)
    if pod is None:
        return False
    return (
        pod.annotations.get(wellknown.ANNOTATION_POD_DEADLINE, "") >= f"{moment(job.end):%Y-%m-%dT%H:%M:%SZ}"
    )


def half_an_answer(world: World, number: int) -> None:
    """Some lists that leave out nodes, and then the truth again; slurmctld itself denies only for so long."""
    world.slurm.lie = ("empty", "half")[number % 2]
    for _ in range(number + 1):
        if world.slurm.lie == "empty" and world.lied + 5.0 > LONGEST_LIE:
            break
        world.lied += 5.0 if world.slurm.lie == "empty" else 0.0
        world.pass_time(5.0)
        world.look_if_called()
    world.slurm.lie = ""


def half_lists_for_long(world: World, number: int) -> None:
    """A slurmrestd in trouble leaves out nodes and all jobs for minutes."""
    world.slurm.lie = "half"
    for _ in range(4 * (number + 1)):
        world.pass_time(11.0)
        world.look_if_called()
    world.slurm.lie = ""


def half_a_write(world: World, _number: int) -> None:
    """Slurm does what it is told to half of the nodes that it is told about, until it is well again."""
    world.partial = True


# --- the cache


def cache_lags(world: World, _number: int) -> None:
    world.lagging = True


def cache_moves(world: World, number: int) -> None:
    world.catch_up(number + 1)


def cache_loses(world: World, number: int) -> None:
    """An event never arrives; the next list tells."""
    behind = world.operator.behind
    if behind:
        del behind[number % len(behind)]


def cache_catches_up(world: World, _number: int) -> None:
    world.lagging = False
    world.catch_up()


def cache_starts_over(world: World, _number: int) -> None:
    world.lagging = False
    world.relist()


# --- pods


def pod_not_ready(world: World, number: int) -> None:
    pod = some_pod(world, number)
    if pod is not None and pod.phase == "Running":
        pod.ready_since = None
        world.touch(pod)


def pod_fails(world: World, number: int) -> None:
    """A pod is evicted: its containers end, and its jobs with them."""
    pod = some_pod(world, number)
    if pod is not None and not pod.deleting and pod.node:
        pod.phase, pod.ready_since, pod.finished_at = "Failed", None, world.now
        world.slurm.unregister(pod.hostname, pod.uid)
        world.touch(pod)


def claim_lost(world: World, number: int) -> None:
    """A person deletes the claim of a worker; while its pod runs, Kubernetes keeps the claim."""
    for claim in sorted(world.claims.values(), key=lambda one: one.name)[number:]:
        users = [pod for pod in world.pods.values() if claim.name in pod.mounts]
        if all(pod.phase == "Pending" for pod in users):
            world._drop(claim)


def claim_lost_before_the_start(world: World, number: int) -> None:
    """A worker is made, and its claim is deleted before its pod runs."""
    events.delete_pod_by_hand(world, number)
    for _ in range(4):
        world.pass_time(1.0)
        world.look_if_called()
        claim_lost(world, 0)


def pod_keeps_failing(world: World, number: int) -> None:
    """The pods of one worker end one after the other, whenever one has come."""
    for _ in range(number + 2):
        pod_fails(world, 0)
        for _ in range(4):
            world.pass_time(2.0 ** (number + 1))
            world.look_if_called()


# What happens often in a history stands here often.
PEACE: tuple[Event, ...] = (
    *(events.time, events.time, events.time, events.look_without_news, events.time_unseen, events.long_time),
    *(events.outage_of_attention, events.called, events.called),
    *(events.start_job, events.start_job, events.start_job, events.end_job),
)
WISHES: tuple[Event, ...] = (
    *(events.scale, events.scale, events.new_template, events.new_template, events.old_template),
    *(events.change_strategy, events.schedule_update, events.change_pace, events.change_mode),
    *(events.pin_to_node, events.change_retention, events.change_pruning),
    *(events.cordon_pod, events.uncordon_pod, events.drain_by_hand, events.resume_by_hand),
    *(events.delete_pod_by_hand, events.cordon_node, events.uncordon_node),
    *(events.evict, events.evict, events.preempt, events.taint_node),
    *(events.add_node, events.remove_node, events.lose_label, events.rename_node),
    *(events.delete_nodeset, events.skip_drain, events.controller_leaves),
)
FAULTS: tuple[Event, ...] = (
    *(budget_missing, crash, crash_while_acting, crash_soon, crash_soon, clock_jumps),
    *(slurm_away, slurm_back, slurm_back, no_connection, slurmctld_down, slurmctld_up),
    *(slurmctld_loses_state, half_an_answer, half_lists_for_long, half_a_write),
    *(cache_lags, cache_moves, cache_loses, cache_catches_up, cache_starts_over),
    *(pod_not_ready, pod_fails, pod_keeps_failing, claim_lost, claim_lost_before_the_start),
)
NEWS = (*PEACE, *WISHES, *FAULTS)
