"""A name in Slurm belongs to the workers of one NodeSet, and is inherited when they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api import NodeSet, wellknown
from tests.support.jobs.background_scenarios import REAL
from tests.support.jobs.slurm_namespace import POOL

if TYPE_CHECKING:
    from tests.support.jobs.job_ledger import Ledger
    from tests.support.jobs.slurm_namespace import Site

pytestmark = REAL


async def test_two_nodesets_of_one_name(site: Site, ledger: Ledger) -> None:
    """The younger of two NodeSets has none of the other's names, and gets each when its worker is gone."""
    template: dict[str, Any] = {"spec": {"hostname": "twin-", "nodeSelector": {POOL: site.namespace}}}
    await site.nodeset("older", 2, template=template)
    await site.settled("older", 2)
    await site.idle(["twin-0", "twin-1"])
    jobs = await ledger.start(["twin-0"])
    await site.seen_busy("older-0")
    await site.nodeset("younger", 3, template=template)
    await site.left("younger", "younger-2")

    async def said() -> bool:
        found = await site.condition("younger", wellknown.CONDITION_DEGRADED)
        return found is not None and found.reason == "NameTaken" and "NodeSet older" in found.message

    await site.until(said, "the younger one says whose the names are", "younger")
    await site.idle(["twin-2"])
    await site.client.delete(NodeSet, "older", site.namespace)
    await site.left("younger", "younger-1", "younger-2")
    await site.blocked("older", "JobsRunning", 1)
    await site.idle(["twin-1"])
    await ledger.end(jobs["twin-0"])
    await site.settled("younger", 3)
    await site.idle(["twin-0", "twin-1", "twin-2"])
    await ledger.settle()
