"""Stories that mostly wait for the operator to be sure: they are told beside the other tests, not after them.

Each has a Slurm, a namespace and an operator of its own, so that nothing else notices.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from kubebox.slurm import SlurmBox, SlurmSpec
from slurm_operator.api import wellknown
from slurm_operator.kube.models.kinds import Node, Pod
from tests.support.jobs.busy_workers import LEFT, WORKERS, busy, scaled_in
from tests.support.jobs.forgetful_slurmrestd import ForgetfulSlurmrestd
from tests.support.jobs.slurm_namespace import opened
from tests.support.jobs.timings import MEASURED
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kubebox import Box
    from slurm_operator.kube.client.client import Client
    from tests.support.jobs.slurm_namespace import Site

# An operator that has to be sure takes minutes; the machine may be slow on top of that.
PATIENCE: Final = 420.0
# What every test here is marked with: one event loop for all, and more time than where nothing is started.
REAL: Final = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(2 * PATIENCE)]
# The newest first. What every release must do is tried with all, the rest with the newest.
RELEASES: Final = ("26.05", "24.11")
EVERY_RELEASE: Final = pytest.mark.parametrize("site", RELEASES, indirect=True)
# With the newest in CI, and with all where there is time for it.
EVERY_RELEASE_LONG: Final = pytest.mark.parametrize(
    "site",
    [RELEASES[0], *(pytest.param(one, marks=pytest.mark.long) for one in RELEASES[1:])],
    indirect=True,
)
FORMER: Final = pytest.mark.parametrize("site", RELEASES[1:], indirect=True)
_READS: Final = "nodes|node|jobs|reservations|ping|diag"


@dataclass(frozen=True)
class Teller:
    """What a story needs."""

    kube: Box
    client: Client
    logs: Path
    door: asyncio.Lock
    """Stories begin one after the other, for to begin is work."""

    async def tell(self, name: str) -> None:
        """Tell a story to its end."""
        await STORIES[name](self)

    async def site(
        self, stack: AsyncExitStack, *, forgetful: bool = False
    ) -> tuple[Site, ForgetfulSlurmrestd]:
        """Open a site of the story's own, behind a slurmrestd that can be made to forget."""
        async with self.door:
            slurm = stack.enter_context(await asyncio.to_thread(SlurmBox.up, SlurmSpec(nodes=0)))
            between = await stack.enter_async_context(ForgetfulSlurmrestd(slurm.url))
            url = between.url if forgetful else slurm.url
            site = await stack.enter_async_context(opened(self.kube, self.client, slurm, self.logs, url))
        return site, between


async def an_empty_list_for_a_minute(teller: Teller) -> None:
    """Scale in while a Slurm shows no nodes, which it has again a minute later."""
    async with AsyncExitStack() as stack:
        site, between = await teller.site(stack, forgetful=True)
        ledger = stack.enter_context(site.ledger())
        jobs = await busy(site, ledger, "blank")
        uids = site.uids("blank")
        between.forgetting = True
        await eventually(lambda: between.blanks, "the operator sees the empty list")
        await site.scale("blank", LEFT)
        await site.blocked("blank", "ListSuspicious", WORKERS - LEFT)
        minute = "a minute of empty lists is over"
        await eventually(lambda: between.blanks[-1] - between.blanks[0] > 60, minute, 180)
        assert len(site.blocked_pods("blank", "ListSuspicious")) == WORKERS - LEFT, (
            "not believed to this moment"
        )
        assert site.uids("blank") == uids
        ledger.check()
        between.forgetting = False
        await scaled_in(site, ledger, "blank", jobs, uids, MEASURED)


async def a_lost_state(teller: Teller) -> None:
    """Let slurmctld lose its state: idle workers are registered again, one at a time; a busy one stays."""
    async with AsyncExitStack() as stack:
        site, _ = await teller.site(stack)
        ledger = stack.enter_context(site.ledger())
        await site.nodeset("lost", 4, updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
        await site.settled("lost", 4)
        names = [f"lost-{number}" for number in range(4)]
        await site.idle(names)
        jobs = await ledger.start(["lost-0"])
        await site.seen_busy("lost-0")
        uids, since = site.uids("lost"), len(site.workers.sightings)
        await asyncio.to_thread(site.slurm.lose_state)
        restarted = time.time()

        def again() -> bool:
            now = site.uids("lost")
            return all(now.get(name, uids[name]) != uids[name] for name in names[1:])

        await site.until(again, "the idle workers are replaced", "lost", PATIENCE)
        first = min(seen.at for seen in site.workers.sightings[since:] if seen.leaving)
        assert first - restarted >= 60 + 120, (
            "slurmctld's first minute does not count, and then two must agree"
        )
        worst = site.most_out("lost", since)
        assert len(worst) == 1, worst
        await site.idle(names[1:])
        assert site.uids("lost")["lost-0"] == uids["lost-0"], "its job may still run, and does"
        await ledger.end(jobs["lost-0"])
        ledger.check()
        await site.client.delete(Pod, "lost-0", site.namespace)
        await site.settled("lost", 4)
        await site.idle(names)


async def a_node_that_is_gone(teller: Teller) -> None:
    """Delete a Kubernetes node: Kubernetes collects its worker, and Slurm forgets the node if asked to."""
    async with AsyncExitStack() as stack:
        site, _ = await teller.site(stack)
        node_names = [f"{site.namespace}-g{number}" for number in range(2)]
        await site.nodes("gone", node_names)
        await site.nodeset("gone", pool="gone", scalingMode="DaemonSet", pruneSlurmNodeRecords="NodeNotFound")
        await site.settled("gone", 2)
        await site.idle(node_names)
        await site.client.delete(Node, node_names[1])
        await site.settled("gone", 1)

        async def forgotten() -> bool:
            return f"NodeName={node_names[1]} " not in await site.scontrol("show", "nodes")

        await site.until(forgotten, "Slurm forgets the node", "gone", PATIENCE)
        await site.idle(node_names[:1])


async def silence(teller: Teller) -> None:
    """Let workers, one of them busy, be as they should be, and count what the operator sends."""
    async with AsyncExitStack() as stack:
        site, _ = await teller.site(stack)
        ledger = stack.enter_context(site.ledger())
        await site.nodeset("calm", 3)
        await site.settled("calm", 3)
        await site.idle(f"calm-{number}" for number in range(3))
        await ledger.start(["calm-0"])
        await site.seen_busy("calm-0")
        # The list of jobs comes last, and with it what the busy pod says about their end.
        deadline = wellknown.ANNOTATION_POD_DEADLINE
        await eventually(
            lambda: deadline in site.workers.pod("calm-0").metadata.annotations, "the job's end is known"
        )
        last = await _written(site)
        while (now := await _after(site, 2)) != last:
            last = now
        for what in ("update_nodes", 'method="PATCH"'):
            assert any(what in name for name in last), "what is written is counted"
        assert await _after(site, 4) == last
        await ledger.settle()


async def _after(site: Site, rounds: int) -> dict[str, str]:
    """Return what was written once Slurm's nodes have been listed some more times."""
    before = await _lists(site)

    async def listed() -> bool:
        return await _lists(site) >= before + rounds

    await eventually(listed, f"the nodes are listed {rounds} times more", PATIENCE)
    return await _written(site)


async def _lists(site: Site) -> float:
    text = (await site.operator.get("metrics", "/metrics"))[1]
    pattern = r'^slurm_operator_slurm_requests_total{.*operation="nodes".*} (.*)$'
    return sum(map(float, re.findall(pattern, text, re.MULTILINE)))


async def _written(site: Site) -> dict[str, str]:
    """Return how often what was written, to Kubernetes and to Slurm."""
    text = (await site.operator.get("metrics", "/metrics"))[1]
    kube = r'^(rest_client_requests_total{.*method="(?!GET).*}) (.*)$'
    slurm = rf'^(slurm_operator_slurm_requests_total{{.*operation="(?!(?:{_READS})").*}}) (.*)$'
    return dict(re.findall(kube, text, re.MULTILINE) + re.findall(slurm, text, re.MULTILINE))


# The longest first: when it ends, all have ended.
STORIES: Final[dict[str, Callable[[Teller], Awaitable[None]]]] = {
    "a_lost_state": a_lost_state,
    "an_empty_list_for_a_minute": an_empty_list_for_a_minute,
    "a_node_that_is_gone": a_node_that_is_gone,
    "silence": silence,
}
