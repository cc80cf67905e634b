from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.simulation.end_state import new_world

if TYPE_CHECKING:
    from tests.support.simulation.world import World


@pytest.fixture
def world() -> World:
    """Hand out a cluster at rest."""
    return new_world()
