"""The benchmark of NodeSets, in small: that it runs to its end, and what it says whatever the machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench.nodeset.figures import Sizes, goals, words
from bench.nodeset.measurements import measure, measure_ended_jobs
from tests.support.processes import install_crds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box

SIZES = Sizes(workers=20, most=24, jobs=3, idle_seconds=2.0, quiet_seconds=1.5)


@pytest.mark.timeout(600)  # a minute and a half on a machine with ten times too much to do
async def test_every_figure_is_taken_and_nodes_are_drained_in_bulk(
    kube_box_factory: Callable[..., Box], tmp_path: Path
) -> None:
    """The benchmark runs to its end, every figure with a goal or a name is taken, drains come in bulk."""
    box = await asyncio.to_thread(kube_box_factory, controller_manager=True, scheduler=True)
    await asyncio.to_thread(install_crds, box)
    figures = await measure(box, SIZES, tmp_path / "operator.log")
    assert goals(SIZES).keys() | words(SIZES).keys() <= figures.keys()
    assert figures["update_workers"] == 10
    assert 1 <= figures["scale_in_waves"] <= 3
    assert figures["raw_created_seconds"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_the_ends_of_jobs_are_measured_alone(
    kube_box_factory: Callable[..., Box], tmp_path: Path
) -> None:
    """Jobs of two workers end, so many pods are deleted as were to go, and the lists for it are counted."""
    box = await asyncio.to_thread(kube_box_factory, controller_manager=True, scheduler=True)
    await asyncio.to_thread(install_crds, box)
    figures = await measure_ended_jobs(box, 12, 3, 2, tmp_path / "operator.log")
    assert figures["workers"] == 12
    assert figures["job_end_jobs"] == 6
    assert figures["job_end_p95_seconds"] >= figures["job_end_p50_seconds"] > 0
    assert figures["job_end_slurm_nodes"] >= 1
