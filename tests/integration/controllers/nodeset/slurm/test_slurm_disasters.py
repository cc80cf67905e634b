"""Disasters, each with twenty busy workers: no job is lost, and afterwards all that was asked is done.

The fourth one, a Slurm that shows no nodes for a minute, is in `stories`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.api import RestApi
from tests.support.jobs.background_scenarios import EVERY_RELEASE_LONG, REAL
from tests.support.jobs.busy_workers import LEFT, WORKERS, busy, scaled_in

if TYPE_CHECKING:
    from tests.support.jobs.job_ledger import Ledger
    from tests.support.jobs.slurm_namespace import Site
    from tests.support.jobs.timings import Measured

pytestmark = REAL


@EVERY_RELEASE_LONG
async def test_operator_restarted_while_slurmrestd_is_down(
    site: Site, ledger: Ledger, measured: Measured
) -> None:
    """An operator that starts without an answer from Slurm removes nobody until it has one."""
    jobs = await busy(site, ledger, "blind")
    uids = site.uids("blind")
    await asyncio.to_thread(site.slurm.stop, "slurmrestd")
    try:
        await site.kill_operator()
        site.start_operator()
        await site.scale("blind", LEFT)
        await site.blocked("blind", "SlurmUnreachable", WORKERS - LEFT)
        assert site.uids("blind") == uids
    finally:
        await asyncio.to_thread(site.slurm.start, "slurmrestd")
    await scaled_in(site, ledger, "blind", jobs, uids, measured)


async def test_restapi_deleted_then_scale_in(site: Site, ledger: Ledger, measured: Measured) -> None:
    """Without a RestApi there is nobody to ask, and nobody is removed."""
    jobs = await busy(site, ledger, "mute")
    uids = site.uids("mute")
    await site.client.delete(RestApi, "slurm", site.namespace)
    try:
        await site.scale("mute", LEFT)
        await site.blocked("mute", "NoConnection", WORKERS - LEFT)
        assert site.uids("mute") == uids
    finally:
        await site.restapi()
    await scaled_in(site, ledger, "mute", jobs, uids, measured)


async def test_restapi_deleted_then_rolling_update(site: Site, ledger: Ledger, measured: Measured) -> None:
    """Without a RestApi nobody is replaced; with one, each is after its job, a quarter of them at a time."""
    jobs = await busy(site, ledger, "deaf")
    uids = site.uids("deaf")
    since = len(site.workers.sightings)
    quarter = WORKERS // 4
    await site.client.delete(RestApi, "slurm", site.namespace)
    try:
        await site.update("deaf", "2")
        await site.blocked("deaf", "NoConnection", quarter)
        assert site.uids("deaf") == uids
    finally:
        await site.restapi()
    await site.blocked("deaf", "JobsRunning", quarter)
    assert site.uids("deaf") == uids
    ledger.check()
    await ledger.end(*jobs.values())
    await site.settled("deaf", WORKERS)
    assert not {*site.uids("deaf").values()} & {*uids.values()}
    worst = site.most_out("deaf", since)
    assert len(worst) == quarter, worst
    for pod, job in jobs.items():
        site.outlived(pod, ledger, job, measured, "20 jobs at once, five workers at a time")
    await ledger.settle()
