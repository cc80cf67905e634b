"""Twenty busy workers, for disasters to happen to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.jobs.job_ledger import Ledger
    from tests.support.jobs.slurm_namespace import Site
    from tests.support.jobs.timings import Measured

WORKERS = 20
LEFT = 5


async def busy(site: Site, ledger: Ledger, name: str) -> dict[str, int]:
    """Make a NodeSet with a job on each of its workers, and wait until the operator knows of them."""
    await site.nodeset(name, WORKERS)
    await site.settled(name, WORKERS)
    names = [f"{name}-{number}" for number in range(WORKERS)]
    await site.idle(names)
    jobs = await ledger.start(names)
    await site.seen_busy(*names)
    return jobs


async def scaled_in(
    site: Site, ledger: Ledger, name: str, jobs: dict[str, int], uids: dict[str, str], measured: Measured
) -> None:
    """Check that nothing was lost so far, and that the scale-in that was asked for is done as jobs end."""
    await site.blocked(name, "JobsRunning", WORKERS - LEFT)
    assert site.uids(name) == uids
    ledger.check()
    chosen = site.blocked_pods(name, "JobsRunning")
    await ledger.end(*(jobs[pod] for pod in chosen))
    await site.settled(name, LEFT)
    assert {*site.pods(name)} == {*jobs} - {*chosen}
    for pod in chosen:
        site.outlived(pod, ledger, jobs[pod], measured, "15 of 20 busy workers at once")
    await ledger.settle()
