"""Workers that come and go by number, with real jobs on them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from slurm_operator.api import Controller, NodeSet, wellknown
from slurm_operator.api.shared import find_condition
from slurm_operator.kube.models.kinds import PersistentVolumeClaim
from tests.support.jobs.background_scenarios import EVERY_RELEASE, REAL

if TYPE_CHECKING:
    from tests.support.jobs.job_ledger import Ledger
    from tests.support.jobs.slurm_namespace import Site
    from tests.support.jobs.timings import Measured

pytestmark = REAL


@EVERY_RELEASE
async def test_scale_out(site: Site) -> None:
    """Workers are made up to the wanted number, and each becomes a node of Slurm that says whose it is."""
    await site.nodeset("out", 1)
    await site.settled("out", 1)
    await site.scale("out", 5)
    await site.settled("out", 5)
    names = [f"out-{number}" for number in range(5)]
    assert sorted(site.pods("out")) == names
    await site.idle(names)

    async def counted() -> bool:
        live = await site.get("out")
        return live is not None and live.status.slurm_idle == 5

    async def told() -> bool:
        shown = await site.scontrol("show", "nodes")
        return all(f'"podName":"{name}"' in shown for name in names)

    await site.until(counted, "the status counts five idle nodes", "out")
    await site.until(told, "each node says whose it is", "out")
    for name in names:
        assert "ActiveFeatures=out" in await site.scontrol("show", "node", name)


@EVERY_RELEASE
async def test_scale_in_waits_for_jobs(site: Site, ledger: Ledger, measured: Measured) -> None:
    """Idle workers go at once; a busy one drains and goes when its job has ended, through a crash as well."""
    await site.nodeset("less", 5)
    await site.settled("less", 5)
    await site.idle(f"less-{number}" for number in range(5))
    await site.annotate("less-3", {wellknown.ANNOTATION_POD_DELETION_COST: "10"})
    jobs = await ledger.start(["less-0", "less-3"])
    await site.seen_busy("less-0", "less-3")
    await site.scale("less", 1)
    await site.left("less", "less-0", "less-3")
    await site.blocked("less", "JobsRunning", 1)
    state, reason = await site.node("less-0")
    assert "DRAIN" in state
    assert reason == f"slurm-operator: NodeSet ({site.namespace}/less) scales in"
    state, _ = await site.node("less-3")
    assert "DRAIN" not in state, "the dearer one stays in service"

    await site.kill_operator()
    site.start_operator()
    await ledger.end(jobs["less-0"])
    await site.settled("less", 1)
    assert [*site.pods("less")] == ["less-3"]
    site.outlived("less-0", ledger, jobs["less-0"], measured, "one worker, operator just restarted")
    await ledger.settle()


async def test_scale_in_of_busy_workers(site: Site, ledger: Ledger, measured: Measured) -> None:
    """Each of several busy workers goes when its own job has ended, and none before."""
    await site.nodeset("busy", 4)
    await site.settled("busy", 4)
    names = [f"busy-{number}" for number in range(4)]
    await site.idle(names)
    jobs = await ledger.start(names)
    await site.scale("busy", 0)
    for left in (4, 3, 2, 1):
        await site.blocked("busy", "JobsRunning", left)
        name, *others = sorted(site.pods("busy"))
        await ledger.end(jobs[name])
        await site.left("busy", *others)
        site.outlived(name, ledger, jobs[name], measured, "one worker after the other")
    await ledger.settle()


async def test_scale_in_through_a_restart_of_slurmctld(
    site: Site, ledger: Ledger, measured: Measured
) -> None:
    """A slurmctld that goes and comes back changes nothing about what has to be waited for."""
    await site.nodeset("again", 3)
    await site.settled("again", 3)
    names = [f"again-{number}" for number in range(3)]
    await site.idle(names)
    jobs = await ledger.start(names)
    await site.scale("again", 1)
    await site.blocked("again", "JobsRunning", 2)
    draining = site.blocked_pods("again", "JobsRunning")
    await asyncio.to_thread(site.slurm.restart, "slurmctld")
    ledger.check()
    await ledger.end(*(jobs[name] for name in draining))
    await site.settled("again", 1)
    assert {*site.pods("again")} == {*names} - {*draining}
    for name in draining:
        site.outlived(name, ledger, jobs[name], measured, "slurmctld just restarted")
    await ledger.settle()


async def test_scale_in_through_a_crash_of_slurmctld(site: Site, ledger: Ledger) -> None:
    """A slurmctld that is killed forgets drains that it has not saved yet; they are made again."""
    await site.nodeset("crash", 2)
    await site.settled("crash", 2)
    names = ["crash-0", "crash-1"]
    await site.idle(names)
    jobs = await ledger.start(names)
    begun = time.time()
    # They may be saved already; another change makes slurmctld save them once more.
    await site.scontrol("update", f"JobId={jobs['crash-0']}", "Comment=runs")
    saved = site.slurm._places.saved_state / "job_state"
    await site.until(lambda: saved.exists() and saved.stat().st_mtime > begun, "slurmctld saves the jobs")
    await site.scale("crash", 0)
    await site.blocked("crash", "JobsRunning", 2)
    await asyncio.to_thread(site.slurm.restart, "slurmctld", kill=True)
    ledger.check()
    for name in names:
        await site.drained(name, f"slurm-operator: NodeSet ({site.namespace}/crash) scales in")
    assert {*site.pods("crash")} == {*names}
    ledger.check()
    await ledger.end(*jobs.values())
    await site.left("crash")
    await ledger.settle()


async def test_scale_in_through_a_change_of_the_key(site: Site, ledger: Ledger) -> None:
    """While Slurm refuses the operator's tokens no worker goes; with the new key in its Secret all do."""
    await site.nodeset("keyed", 3)
    await site.settled("keyed", 3)
    names = [f"keyed-{number}" for number in range(3)]
    await site.idle(names)
    jobs = await ledger.start(names)
    uids = site.uids("keyed")
    await site.scale("keyed", 1)
    await site.blocked("keyed", "JobsRunning", 2)
    first, second = site.blocked_pods("keyed", "JobsRunning")
    (stays,) = {*names} - {first, second}
    key = await asyncio.to_thread(site.slurm.rotate_jwt_key)
    await ledger.end(jobs[first])
    await site.until(lambda: _refused(site), "the Controller says that the token is refused", "keyed")
    assert site.uids("keyed") == uids
    await site.keys(key)
    await site.left("keyed", second, stays)
    await ledger.end(jobs[second])
    # The workers do not know this key, so the one that stays is not replaced.
    await site.settled("keyed", 1)
    assert site.uids("keyed") == {stays: uids[stays]}
    await ledger.settle()


async def _refused(site: Site) -> bool:
    live = await site.client.get(Controller, "slurm", site.namespace)
    found = find_condition(live.status.conditions, wellknown.CONDITION_SLURM_API_READY)
    return found is not None and found.reason == "TokenRefused"


async def test_a_deleted_nodeset_waits_for_jobs(site: Site, ledger: Ledger, measured: Measured) -> None:
    """A NodeSet that is deleted stays until the last job on its workers has ended."""
    await site.nodeset("gone", 3)
    await site.settled("gone", 3)
    await site.idle(f"gone-{number}" for number in range(3))
    jobs = await ledger.start(["gone-1"])
    await site.client.delete(NodeSet, "gone", site.namespace)
    await site.left("gone", "gone-1")
    await site.blocked("gone", "JobsRunning", 1)
    live = await site.get("gone")
    assert live is not None
    assert live.deleting
    await ledger.end(jobs["gone-1"])

    async def is_gone() -> bool:
        return await site.get("gone") is None and not site.workers.live("gone")

    await site.until(is_gone, "the NodeSet is gone with its last worker")
    site.outlived("gone-1", ledger, jobs["gone-1"], measured, "NodeSet deleted")
    await ledger.settle()


# --------------------------------------------------------------------------------------------------- volumes
def _volume(site: Site, number: int) -> str:
    return f"""\
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {site.namespace}-{number}}}
spec:
  storageClassName: {site.namespace}
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: /none}}
"""


async def test_claims_go_with_scaled_in_workers(site: Site, ledger: Ledger) -> None:
    """With whenScaled: Delete the claim of a worker goes after the worker, which goes after its job."""
    volumes = "---\n".join(_volume(site, number) for number in range(3))
    await asyncio.to_thread(site.kube.kubectl, "apply", "-f", "-", stdin=volumes)
    try:
        await _claims_go(site, ledger)
    finally:
        names = [f"{site.namespace}-{number}" for number in range(3)]
        await asyncio.to_thread(site.kube.kubectl, "delete", "pv", "--wait=false", *names)


async def _claims_go(site: Site, ledger: Ledger) -> None:
    claim = {
        "metadata": {"name": "scratch"},
        "spec": {
            "storageClassName": site.namespace,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await site.nodeset(
        "kept",
        2,
        volumeClaimTemplates=[claim],
        persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete", "whenDeleted": "Retain"},
    )
    await site.settled("kept", 2)
    await site.idle(["kept-0", "kept-1"])
    before = await _claims(site)
    assert sorted(before) == ["scratch-kept-0", "scratch-kept-1"]
    jobs = await ledger.start(["kept-0", "kept-1"])
    await site.seen_busy("kept-0", "kept-1")
    await site.annotate("kept-0", {wellknown.ANNOTATION_POD_DELETION_COST: "10"})
    await site.scale("kept", 1)
    await site.blocked("kept", "JobsRunning", 1)
    assert await _claims(site) == before
    await ledger.end(jobs["kept-1"])
    await site.settled("kept", 1)

    async def one_left() -> bool:
        return sorted(await _claims(site)) == ["scratch-kept-0"]

    await site.until(one_left, "its claim goes as well")
    await site.scale("kept", 2)
    await site.settled("kept", 2)
    after = await _claims(site)
    assert after["scratch-kept-0"] == before["scratch-kept-0"]
    assert after["scratch-kept-1"] != before["scratch-kept-1"], "a new one, with nothing in it"
    await ledger.settle()


async def _claims(site: Site) -> dict[str, str]:
    found = (await site.client.list_all(PersistentVolumeClaim, site.namespace)).items
    return {one.metadata.name: one.metadata.uid for one in found}
