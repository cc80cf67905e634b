"""A webhook for tests that leave it as it is, and one for each test that breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.webhook.clusters_with_keys import Made
from tests.support.webhook.served_webhook import Stage, staged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from kubebox import Box


@pytest.fixture(scope="session")
def shared_stage(kube_box: Box, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Hand out one webhook for the session."""
    with staged(kube_box, tmp_path_factory.mktemp("webhook")) as stage:
        yield stage


@pytest.fixture
def own_stage(kube_box: Box, tmp_path: Path) -> Iterator[Stage]:
    """Hand out a webhook that may be stopped and changed."""
    with staged(kube_box, tmp_path) as stage:
        yield stage


@pytest.fixture
async def slurm(shared_stage: Stage) -> AsyncIterator[Made]:
    """Hand out a maker of Slurm clusters, which are gone afterwards."""
    made = Made(shared_stage.server)
    yield made
    await made.clean()
