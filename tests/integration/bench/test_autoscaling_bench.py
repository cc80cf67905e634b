"""The benchmark of autoscaling, in small: that it runs to its end, and what it says whatever the machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench.autoscaling import GOALS, Sizes, measure, words
from tests.support.processes import install_crds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box

SIZES = Sizes(records=20, resumed=8, idle_seconds=4.0, quiet_seconds=1.5)


@pytest.mark.timeout(600)  # a minute on a machine with ten times too much to do
async def test_every_figure_is_taken_and_nothing_is_written_at_rest(
    kube_box_factory: Callable[..., Box], tmp_path: Path
) -> None:
    """All records come from one request; powered-down nodes cost no write."""
    box = await asyncio.to_thread(kube_box_factory, controller_manager=True, scheduler=True)
    await asyncio.to_thread(install_crds, box)
    figures = await measure(box, SIZES, tmp_path / "operator.log")
    assert GOALS.keys() | words(SIZES).keys() <= figures.keys()
    assert figures["records_requests"] == 1
    assert (figures["idle_writes"], figures["idle_slurm_writes"]) == (0, 0)
