"""Words for histories that tests tell by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.nodeset import events
from tests.unit.nodeset.outcome import check_wanted

if TYPE_CHECKING:
    from tests.unit.nodeset.model import World


def busy(world: World, *names_: str) -> None:
    """Start jobs, and let the operator see them."""
    for name in names_:
        assert world.slurm.start_job(name, world.now)
    events.time(world, 0)


def recover(world: World) -> None:
    """End all faults, let everything settle, and check that what was asked for has come about."""
    world.heal()
    world.settle()
    check_wanted(world)
