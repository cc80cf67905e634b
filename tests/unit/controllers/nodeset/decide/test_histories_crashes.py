"""A crash after any single write leads to the same end: each scenario is lived through once for each write.

The histories crash at random; here nothing is left to chance. The process dies before its first write, before
its second, and so on to the last, and a new one, which remembers nothing, finishes what was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.simulation import world_events, world_faults
from tests.support.simulation.end_state import check_silence, new_world, wait_for_windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.simulation.world import World


def scale_out(world: World) -> None:
    world_events.scale(world, 5)


def scale_in_under_a_job(world: World) -> None:
    assert world.slurm.start_job("gpu-2", world.now)
    world.when_scaled = "Delete"
    world_events.scale(world, 0)


def update(world: World) -> None:
    world.max_unavailable = 2
    assert world.slurm.start_job("gpu-0", world.now)
    world_events.new_template(world, 0)


def update_in_a_window(world: World) -> None:
    world_events.schedule_update(world, 3)
    world_events.new_template(world, 0)


def change_of_mode(world: World) -> None:
    assert world.slurm.start_job("gpu-1", world.now)
    world_events.change_mode(world, 1)


def cordon_of_a_machine(world: World) -> None:
    assert world.slurm.start_job("gpu-0", world.now)
    world_events.cordon_node(world, 0)


def cordon_taken_back(world: World) -> None:
    world_events.cordon_node(world, 0)
    world.pass_time(12.0)
    world.reconcile_if_called()
    world_events.uncordon_node(world, 0)


def lost_state(world: World) -> None:
    world_events.time(world, 0)
    world_faults.slurmctld_loses_state(world, 0)


def machines_come_and_go(world: World) -> None:
    world.prune = "NodeNotFound"
    world_events.change_mode(world, 1)
    for _ in range(6):
        world.pass_time(12.0)
        world.reconcile_if_called()
    world_events.remove_node(world, 5)
    world_events.lose_label(world, 4)


def deletion(world: World) -> None:
    world.when_deleted = "Delete"
    assert world.slurm.start_job("gpu-0", world.now)
    world_events.delete_nodeset(world, 0)


SCENARIOS = (
    *(scale_out, scale_in_under_a_job, update, update_in_a_window, change_of_mode, cordon_of_a_machine),
    *(cordon_taken_back, lost_state, machines_come_and_go, deletion),
)


def lived_through(scenario: Callable[[World], None], fuse: int | None) -> World:
    """Return the world after a scenario in which the process dies after so many writes."""
    world = new_world()
    world.writes, world.fuse = 0, fuse
    scenario(world)
    world.settle()
    wait_for_windows(world)
    return world


def picture(world: World) -> dict[str, Any]:
    """Return what users see in the end; the scheduler decides which node a numbered worker gets."""
    return {
        "pods": {
            pod.name: (
                pod.revision,
                pod.phase,
                dict(pod.annotations),
                dict(pod.labels),
                sorted(pod.conditions),
            )
            for pod in world.pods.values()
        },
        "records": {
            one.name: (one.drain, one.down, one.reason, bool(one.slurmd))
            for one in world.slurm.records.values()
        },
        "claims": {one.name: [owner.kind for owner in one.owners] for one in world.claims.values()},
        "windows": dict(world.slurm.windows),
        "finalizers": world.finalizers,
        "status": None if world.gone else world.status,
        "gone": world.gone,
    }


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_a_crash_after_any_write_leads_to_the_same_end(scenario: Callable[[World], None]) -> None:
    """Whichever write is the last of a process, the next one comes to the same end, and falls silent."""
    whole = lived_through(scenario, None)
    assert whole.writes > 3
    for fuse in range(whole.writes):
        world = lived_through(scenario, fuse)
        assert world.fuse is None, f"no crash after {fuse} writes"
        assert picture(world) == picture(whole), f"after a crash after {fuse} writes"
        check_silence(world)
