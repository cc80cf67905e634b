"""The ends of the stories that are told beside the other tests; see `stories`."""

from __future__ import annotations

import asyncio

from tests.support.jobs.background_scenarios import REAL

pytestmark = REAL

Told = dict[str, asyncio.Task[None]]


async def test_silence(told: Told) -> None:
    """When all is as it should be, nothing is written, to Kubernetes or to Slurm, while jobs run."""
    await told["silence"]


async def test_a_node_that_is_gone(told: Told) -> None:
    """A worker whose Kubernetes node is gone goes with it, and its record in Slurm if that is wished."""
    await told["a_node_that_is_gone"]


async def test_an_empty_list_for_a_minute(told: Told) -> None:
    """A Slurm that shows no nodes for a minute and then has them all again loses none of 20 busy workers."""
    await told["an_empty_list_for_a_minute"]


async def test_a_lost_state(told: Told) -> None:
    """Workers that slurmctld has lost are registered again when that is certain, but not over a job."""
    await told["a_lost_state"]
