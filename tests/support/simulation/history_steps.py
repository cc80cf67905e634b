"""Words for histories that tests tell by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.simulation import world_events
from tests.support.simulation.end_state import check_wanted

if TYPE_CHECKING:
    from tests.support.simulation.world import World


def busy(world: World, *names_: str) -> None:
    """Start jobs, and let the operator see them."""
    for name in names_:
        assert world.slurm.start_job(name, world.now)
    world_events.time(world, 0)


def recover(world: World) -> None:
    """End all faults, let everything settle, and check that what was asked for has come about."""
    world.heal()
    world.settle()
    check_wanted(world)
