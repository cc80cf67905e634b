"""The stand-in for kubelets and the ledger of jobs: a worker that is deleted too early must be noticed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api import wellknown
from slurm_operator.kube.models.kinds import Pod
from tests.support.jobs.background_scenarios import REAL
from tests.support.jobs.job_ledger import Ledger

if TYPE_CHECKING:
    from tests.support.jobs.slurm_namespace import Site

pytestmark = REAL


async def test_a_killed_job_is_noticed(site: Site) -> None:
    """A pod that goes takes its jobs along, and the ledger says so."""
    labels = {
        wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD,
        wellknown.LABEL_APP_INSTANCE: "alone",
        wellknown.LABEL_SCALING_MODE: "StatefulSet",
    }
    container = {"name": "slurmd", "image": "i", "args": ["--conf", "'Features=odd Weight='\"7\"''"]}
    body = {
        "metadata": {**site.meta("alone-0"), "labels": labels},
        "spec": {"containers": [container], "nodeName": f"{site.namespace}-m0"},
    }
    await site.client.create(Pod, body)
    await site.until(lambda: site.workers.running("alone-0"), "its slurmd runs")
    await site.idle(["alone-0"])
    shown = await site.scontrol("show", "node", "alone-0")
    assert "AvailableFeatures=odd" in shown
    assert "Weight=7" in shown
    with Ledger(site.slurm) as ledger:
        begun = await ledger.start(["alone-0"])
        ledger.check()
        await site.client.delete(Pod, "alone-0", site.namespace)
        await site.left("alone")
        with pytest.raises(AssertionError, match=f"job {begun['alone-0']} on alone-0 was killed"):
            ledger.check()
    await asyncio.to_thread(site.slurm.run, "scancel", str(begun["alone-0"]))
