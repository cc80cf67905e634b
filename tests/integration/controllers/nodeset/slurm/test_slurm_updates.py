"""Workers that are replaced because what they run has changed, with real jobs on them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.kube.models.kinds import Pod
from tests.support.jobs.background_scenarios import EVERY_RELEASE, FORMER, REAL

if TYPE_CHECKING:
    from tests.support.jobs.job_ledger import Ledger
    from tests.support.jobs.slurm_namespace import Site
    from tests.support.jobs.timings import Measured

pytestmark = REAL


@EVERY_RELEASE
async def test_rolling_update_under_load(site: Site, ledger: Ledger, measured: Measured) -> None:
    """Never more than maxUnavailable workers are out of service, and each is replaced after its job."""
    await site.nodeset("roll", 6, updateStrategy={"rollingUpdate": {"maxUnavailable": 2}})
    await site.settled("roll", 6)
    names = [f"roll-{number}" for number in range(6)]
    await site.idle(names)
    old = site.uids("roll")
    jobs = await ledger.start(names)
    since = len(site.workers.sightings)
    await site.update("roll", "2")
    while ledger.waiting():

        def due() -> list[int]:
            return [
                job
                for name in site.blocked_pods("roll", "JobsRunning")
                if not ledger.ended(job := jobs[name])
            ]

        await site.until(due, "the next workers wait for their jobs", "roll")
        await ledger.end(*due())
    await site.settled("roll", 6)
    await site.idle(names)
    assert not {*site.uids("roll").values()} & {*old.values()}, "all were replaced"
    worst = site.most_out("roll", since)
    assert len(worst) == 2, f"as many as allowed, and no more: {worst}"
    for name in names:
        site.outlived(name, ledger, jobs[name], measured, "rolling update, two at a time")
    await ledger.settle()


async def test_on_delete(site: Site, ledger: Ledger) -> None:
    """With OnDelete a worker is replaced when somebody deletes its pod, and not before."""
    await site.nodeset("manual", 2, updateStrategy={"type": "OnDelete"})
    await site.settled("manual", 2)
    await site.idle(["manual-0", "manual-1"])
    await ledger.start(["manual-1"])
    old = site.uids("manual")
    await site.update("manual", "2")

    async def updated(workers: int) -> bool:
        live = await site.get("manual")
        return (
            live is not None
            and live.status.observed_generation == live.metadata.generation
            and live.status.updated_replicas == workers
        )

    await site.until(lambda: updated(0), "the new revision is there, and no worker has it", "manual")
    await site.client.delete(Pod, "manual-0", site.namespace)
    await site.until(
        lambda: site.uids("manual").get("manual-0", old["manual-0"]) != old["manual-0"],
        "the deleted one comes back",
        "manual",
    )
    await site.until(lambda: updated(1), "one worker has the new revision", "manual")
    await site.settled("manual", 2)
    assert site.uids("manual")["manual-1"] == old["manual-1"]
    await ledger.settle()


async def test_scheduled_update(site: Site, ledger: Ledger, measured: Measured) -> None:
    """Workers are replaced in the maintenance window only, and in it only when no job is on them."""
    await site.nodeset("window", 2)
    await site.settled("window", 2)
    await site.idle(["window-0", "window-1"])
    old = site.uids("window")
    jobs = await ledger.start(["window-0"])
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=12)
    window = {"startTime": f"{start:%Y-%m-%dT%H:%M:%SZ}", "duration": "1h"}
    await site.patch("window", {"updateStrategy": {"type": "ScheduledUpdate", "scheduledUpdate": window}})
    await site.update("window", "2")
    name = f"{wellknown.RESERVATION_PREFIX}window"
    await site.until(lambda: _reserved(site, name), "the window is booked in Slurm")
    shown = await site.scontrol("--oneliner", "show", "reservation", name)
    assert {"MAINT", "IGNORE_JOBS"} <= _flags(shown)
    await site.until(
        lambda: "window-1" in site.pods("window") and site.uids("window")["window-1"] != old["window-1"],
        "the idle one is replaced",
    )
    assert datetime.now(UTC) >= start
    assert all(
        one.at >= start.timestamp() for one in site.workers.sightings if one.nodeset == "window" and one.gone
    )
    await site.blocked("window", "JobsRunning", 1)
    condition = await site.condition("window", wellknown.CONDITION_RESERVATION_CREATED)
    assert condition is not None
    assert condition.status == "True"
    await ledger.end(jobs["window-0"])
    await site.until(
        lambda: site.uids("window").get("window-0", old["window-0"]) != old["window-0"], "so is the other"
    )
    site.outlived("window-0", ledger, jobs["window-0"], measured, "in a maintenance window")
    await site.patch("window", {"updateStrategy": {"type": "RollingUpdate"}})

    async def ended() -> bool:
        live = await site.get("window")
        free = live is not None and wellknown.FINALIZER_RESERVATION not in live.metadata.finalizers
        return free and not await _reserved(site, name)

    await site.until(ended, "the window is given up with the strategy")
    await site.idle(["window-0", "window-1"])
    await ledger.settle()


@FORMER
async def test_a_slurm_without_windows(site: Site) -> None:
    """Where Slurm cannot be asked for a window nobody is replaced, and the NodeSet says which release can."""
    await site.nodeset("never", 1)
    await site.settled("never", 1)
    old = site.uids("never")
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    window = {"startTime": f"{start:%Y-%m-%dT%H:%M:%SZ}", "duration": "1h"}
    await site.patch("never", {"updateStrategy": {"type": "ScheduledUpdate", "scheduledUpdate": window}})
    await site.update("never", "2")

    async def said() -> bool:
        found = await site.condition("never", wellknown.CONDITION_DEGRADED)
        return found is not None and found.reason == "ReservationFailed" and "25.05" in found.message

    await site.until(said, "it says that this Slurm is too old", "never")
    assert site.uids("never") == old
    await site.patch("never", {"updateStrategy": {"type": "RollingUpdate"}})
    await site.until(
        lambda: site.uids("never").get("never-0", old["never-0"]) != old["never-0"],
        "another strategy does what was asked for",
        "never",
    )


async def _reserved(site: Site, name: str) -> bool:
    return f"ReservationName={name} " in await site.scontrol("--oneliner", "show", "reservations")


def _flags(shown: str) -> set[str]:
    words = dict(word.partition("=")[::2] for word in shown.split())
    return set(words["Flags"].split(","))
