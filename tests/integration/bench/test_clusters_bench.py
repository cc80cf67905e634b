"""The benchmark of many clusters, in small: that it runs to its end, and that no worker is lost in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench.clusters.__main__ import measure
from bench.clusters.figures import Sizes, goals, words
from tests.support.processes import install_crds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box

SIZES = Sizes(
    clusters=5,
    workers=2,
    changes=2,
    pause=0.5,
    idle_seconds=2.0,
    quiet_seconds=2.0,
    slow_seconds=0.3,
    roll_seconds=2.0,
)


@pytest.mark.long  # a minute on a machine with four times too much to do
@pytest.mark.timeout(600)
async def test_every_figure_is_taken_and_a_hostile_slurm_loses_no_worker(
    kube_box_factory: Callable[..., Box], tmp_path: Path
) -> None:
    """All clusters roll but the hostile one, whose workers stay until its Slurm answers again."""
    box = await asyncio.to_thread(kube_box_factory, controller_manager=True, scheduler=True)
    await asyncio.to_thread(install_crds, box)
    figures = await measure(box, SIZES, tmp_path / "operator.log")
    assert goals(SIZES).keys() | words(SIZES).keys() <= figures.keys()
    assert figures["hostile_removed"] == 0
    # The operator has read so much of a list of 250 MB that it was hostile indeed.
    assert figures["peak_mib"] > figures["rss_mib"] + 20
