"""The benchmark of fairness, in small: that it runs to its end, and that the hostile ones are hostile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench.fairness import GOALS, Sizes, measure, words
from tests.support.processes import install_crds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box

SIZES = Sizes(clusters=5, rounds=1, cycles=1, pause=2.0)


@pytest.mark.long
@pytest.mark.timeout(600)  # half a minute on a machine with nothing else to do
async def test_every_figure_is_taken_while_others_are_hostile(
    kube_box_factory: Callable[..., Box], tmp_path: Path
) -> None:
    """Workers come and go beside hostile clusters, and 250 MB are read as far as the limit."""
    box = await asyncio.to_thread(kube_box_factory, controller_manager=True, scheduler=True)
    await asyncio.to_thread(install_crds, box)
    figures = await measure(box, SIZES, tmp_path / "operator.log")
    assert GOALS.keys() | words().keys() <= figures.keys()
    assert figures["peak_mib_beside"] > figures["peak_mib_alone"] + 20
