"""What goes wrong in the life of a NodeSet, and the list of all news that a history is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from tests.support.simulation import world_events
from tests.support.simulation.kubernetes import moment
from tests.support.simulation.world_events import some_pod

if TYPE_CHECKING:
    from tests.support.simulation.slurm_cluster import Work
    from tests.support.simulation.world import World

Event = Callable[["World", int], None]

# The longest that a slurmctld without its nodes answers, and is right again later; see `slurm.belief`.
LONGEST_LIE = 60.0


# --- the operator


def crash(world: World, _number: int) -> None:
    world.crash()


def crash_while_acting(world: World, number: int) -> None:
    """The process ends after so many writes of one reconcile, whichever these are."""
    world.reconcile(crash_after=number)


def crash_soon(world: World, number: int) -> None:
    """The process ends after so many writes, of whichever reconciles."""
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
    """Return whether a pod says that a job runs in it, and for how long."""
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
        world.reconcile_if_called()
    world.slurm.lie = ""


def half_lists_for_long(world: World, number: int) -> None:
    """A slurmrestd in trouble leaves out nodes and all jobs for minutes."""
    world.slurm.lie = "half"
    for _ in range(4 * (number + 1)):
        world.pass_time(11.0)
        world.reconcile_if_called()
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
    world_events.delete_pod_by_hand(world, number)
    for _ in range(4):
        world.pass_time(1.0)
        world.reconcile_if_called()
        claim_lost(world, 0)


def pod_keeps_failing(world: World, number: int) -> None:
    """The pods of one worker end one after the other, whenever one has come."""
    for _ in range(number + 2):
        pod_fails(world, 0)
        for _ in range(4):
            world.pass_time(2.0 ** (number + 1))
            world.reconcile_if_called()


# What happens often in a history stands here often.
PEACE: tuple[Event, ...] = (
    *(
        world_events.time,
        world_events.time,
        world_events.time,
        world_events.reconcile_without_news,
        world_events.time_unseen,
        world_events.long_time,
    ),
    *(world_events.outage_of_attention, world_events.called, world_events.called),
    *(world_events.start_job, world_events.start_job, world_events.start_job, world_events.end_job),
)
WISHES: tuple[Event, ...] = (
    *(
        world_events.scale,
        world_events.scale,
        world_events.new_template,
        world_events.new_template,
        world_events.old_template,
    ),
    *(
        world_events.change_strategy,
        world_events.schedule_update,
        world_events.change_pace,
        world_events.change_mode,
    ),
    *(world_events.pin_to_node, world_events.change_retention, world_events.change_pruning),
    *(
        world_events.cordon_pod,
        world_events.uncordon_pod,
        world_events.drain_by_hand,
        world_events.resume_by_hand,
    ),
    *(world_events.delete_pod_by_hand, world_events.cordon_node, world_events.uncordon_node),
    *(world_events.evict, world_events.evict, world_events.preempt, world_events.taint_node),
    *(world_events.add_node, world_events.remove_node, world_events.lose_label, world_events.rename_node),
    *(world_events.delete_nodeset, world_events.skip_drain, world_events.controller_leaves),
)
FAULTS: tuple[Event, ...] = (
    *(budget_missing, crash, crash_while_acting, crash_soon, crash_soon, clock_jumps),
    *(slurm_away, slurm_back, slurm_back, no_connection, slurmctld_down, slurmctld_up),
    *(slurmctld_loses_state, half_an_answer, half_lists_for_long, half_a_write),
    *(cache_lags, cache_moves, cache_loses, cache_catches_up, cache_starts_over),
    *(pod_not_ready, pod_fails, pod_keeps_failing, claim_lost, claim_lost_before_the_start),
)
NEWS = (*PEACE, *WISHES, *FAULTS)
POWER: tuple[Event, ...] = (
    *(
        world_events.autoscale,
        world_events.autoscale,
        world_events.autoscale_no_more,
        world_events.need_node,
        world_events.need_node,
    ),
    *(
        world_events.suspend_time,
        world_events.suspend_time,
        world_events.new_template,
        world_events.called,
        world_events.start_job,
    ),
)
