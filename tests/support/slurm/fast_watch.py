"""A watch on some slurmrestd that is quick to ask, to doubt and to believe, and what it asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurm_operator.slurm.decide.circuit_breaker import Breaker, BreakerTiming
from slurm_operator.slurm.decide.node_list_trust import TrustRules
from slurm_operator.slurm.rest.client import RestClient, RestTiming
from slurm_operator.slurm.watch.watcher import SlurmWatch, WatchTiming

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.slurm.model.view import Answer, ClusterView, DrainAnswer, ViewUpdate
    from slurm_operator.slurm.rest.client import CallInfo, TokenSource

DEADLINE = 90.0
QUICK = WatchTiming(
    busy=0.1,
    rest=0.2,
    doubt=0.1,
    lively=1.0,
    gap=0.02,
    jobs=0.3,
    reservations=1.0,
    ping=0.5,
    uptime=1.0,
    whole=1.2,
    failure_base=0.1,
    failure_cap=0.4,
    stale_after=1.5,
    jobs_stale_after=6.0,
    call=20.0,
    cost=0.0,
)
# Where nothing is broken, a machine that stands still for some seconds must not make the view an old one.
CALM = replace(QUICK, stale_after=60.0, jobs_stale_after=60.0)
# What takes minutes takes seconds here.
EAGER = TrustRules(lists=3, seconds=0.3, wide_lists=6, wide_seconds=1.0, grace=1.5)


@dataclass
class Watching:
    """What a test of the watch works with."""

    rest: RestClient
    watch: SlurmWatch
    requests: list[tuple[str, float, str]] = field(default_factory=list)
    """Operation, the moment it was sent, and the outcome, of every request."""
    updates: list[ViewUpdate] = field(default_factory=list)

    @property
    def view(self) -> ClusterView:
        return self.watch.view

    def answer(self, name: str) -> Answer:
        return self.view.node(name, now())

    def verdict(self, name: str, newer_than: float = float("-inf")) -> DrainAnswer:
        return self.view.drained(name, now(), newer_than)

    def polls(self, since: float) -> int:
        """Return how many lists of nodes were asked for after a moment and answered."""
        good = {"ok", "unchanged"}
        return sum(
            1 for what, sent, outcome in self.requests if what == "nodes" and sent > since and outcome in good
        )

    async def until(self, condition: Callable[[], bool], within: float = DEADLINE) -> None:
        """Wait for a condition that the passing of time or a round of the watch may bring about."""
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110 - staleness comes without an event
                await asyncio.sleep(0.01)

    async def always(self, condition: Callable[[], bool], rounds: int) -> None:
        """Check a condition at every moment until so many more requests for nodes have ended."""
        ended = len([what for what, _, _ in self.requests if what == "nodes"]) + rounds
        async with asyncio.timeout(DEADLINE):
            while len([what for what, _, _ in self.requests if what == "nodes"]) < ended:
                assert condition()
                await asyncio.sleep(0.01)
        assert condition()


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def watching(
    url: str,
    token: TokenSource,
    *,
    timing: WatchTiming = QUICK,
    trust: TrustRules = EAGER,
    request: float = 15.0,
    settled: bool = True,
) -> AsyncIterator[Watching]:
    """Run a watch of a slurmrestd, from the moment when a name it has never seen is absent."""
    requests: list[tuple[str, float, str]] = []

    def observe(info: CallInfo) -> None:
        requests.append((info.operation, now() - info.seconds, info.outcome))

    breaker = Breaker(BreakerTiming(threshold=3, base=0.05, cap=0.2))
    rest_timing = RestTiming(connect=2.0, request=request)
    async with RestClient(url, token, timing=rest_timing, observe=observe, breaker=breaker) as rest:
        watched = Watching(rest, SlurmWatch(rest, timing=timing, trust=trust), requests)
        watched.watch.subscribe(watched.updates.append)
        task = asyncio.create_task(watched.watch.run())
        try:
            if settled:
                await watched.until(lambda: watched.view.complete)
            yield watched
        finally:
            assert not task.done(), "a watch never ends by itself"
            task.cancel()
            await asyncio.wait({task})
