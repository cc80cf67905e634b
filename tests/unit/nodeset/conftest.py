from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.nodeset.outcome import new_world

if TYPE_CHECKING:
    from tests.unit.nodeset.model import World


@pytest.fixture
def world() -> World:
    """Hand out a cluster at rest."""
    return new_world()
