"""What is measured, one method each, in this order.

"At rest" means that neither the API server nor any Slurm has been written to for a few seconds. Times end
with what a user sees: the pod, or what the status says.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.clusters.figures import HOSTILE, QUIET, SLOW, changes, spread
from bench.load import in_parallel
from bench.nodeset.phases import until_rest

if TYPE_CHECKING:
    from bench.clusters.figures import Sizes
    from bench.clusters.stage import SlurmCluster, Stage
    from bench.nodeset.operator import Operator, Reading
    from bench.report import Figures

# For hostile clusters there may be no rest.
_SETTLE_SECONDS: Final = 90.0


@dataclass(frozen=True)
class Moment:
    """What the operator had done by one moment."""

    reading: Reading
    requests: list[int]
    """To the Slurm of each cluster."""

    def since(self, before: Moment, name: str) -> Figures:
        """Return what it did since an earlier moment."""
        return {
            f"{name}_writes": self.reading.since(before.reading).total(),
            f"{name}_slurm_requests": sum(self.requests) - sum(before.requests),
            f"{name}_slurm_requests_own": sum(self.requests[:QUIET]) - sum(before.requests[:QUIET]),
            f"{name}_cpu_seconds": self.reading.cpu - before.reading.cpu,
        }


class Run:
    """The clusters, the operator, and what is done to them."""

    def __init__(self, stage: Stage, operator: Operator, sizes: Sizes) -> None:
        self._stage = stage
        self._operator = operator
        self._sizes = sizes
        self._quiet = stage.clusters[QUIET]
        self._alike = stage.clusters[QUIET + 1 :]
        self._alone: list[float] = []

    # --- moments

    async def _now(self) -> Moment:
        return Moment(await self._operator.reading(), (await self._stage.slurm.counts())["requests"])

    async def _rest(self) -> Moment:
        await until_rest(self._written, lambda: self._sizes.quiet_seconds)
        return await self._now()

    async def _written(self) -> tuple[int, int]:
        reading = await self._operator.reading()
        return reading.writes.total(), sum((await self._stage.slurm.counts())["writes"])

    # --- phases

    async def create(self) -> Figures:
        """Create all clusters at once, and wait until all are ready."""
        before, started, clusters = await self._now(), time.monotonic(), self._stage.clusters
        await self._stage.create(self._sizes.workers)
        total = self._sizes.total
        created = await self._stage.until(
            lambda: sum(len(cluster.staying) for cluster in clusters) == total, "all workers exist"
        )
        ready = await self._stage.until(
            lambda: all(cluster.ready for cluster in clusters), "all clusters are ready"
        )
        after = await self._rest()
        return {
            "create_created_seconds": created - started,
            "create_ready_seconds": ready - started,
            **after.since(before, "create"),
        }

    async def idle(self, name: str = "idle") -> Figures:
        """Do nothing for a while; figures are those of one minute."""
        before = await self._now()
        await asyncio.sleep(self._sizes.idle_seconds)
        found = (await self._now()).since(before, name)
        return {figure: value * 60.0 / self._sizes.idle_seconds for figure, value in found.items()}

    async def idle_hostile(self) -> Figures:
        """Make two clusters slow and hostile, wait until the status says so, and do nothing for a while."""
        await self._stage.slurm.hostile(hostile=True)
        hostile = self._stage.clusters[HOSTILE]
        await self._stage.until(lambda: not hostile.connected, "the hostile cluster is reported")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rest(), _SETTLE_SECONDS)
        return await self.idle("idle_hostile")

    async def alone(self) -> Figures:
        """Scale out the quiet cluster again and again while no other changes."""
        for _ in range(self._sizes.changes):
            self._alone.append(await self._scale_out(self._quiet))
            await asyncio.sleep(self._sizes.pause)
        return {}

    async def roll(self) -> Figures:
        """Update all clusters but the quiet one, which is scaled out meanwhile."""
        before = await self._now()
        hostile, slow = self._stage.clusters[HOSTILE], self._stage.clusters[SLOW]
        removed, started = hostile.removed, time.monotonic()
        rolling = {one.namespace: one for one in self._stage.clusters if one is not self._quiet}
        for cluster in rolling.values():
            cluster.begin_update()
        image = {"image": "example.org/slurmd:2"}
        await in_parallel([*rolling], lambda name: self._stage.change(rolling[name], slurmd=image))
        beside: list[float] = []
        while not beside or (len(beside) < self._sizes.changes and not self._rolled()):
            beside.append(await self._scale_out(self._quiet))
            await asyncio.sleep(self._sizes.pause)
        await self._stage.until(self._rolled, "the rolling updates of well-behaved clusters are over")
        await asyncio.sleep(max(0.0, started + self._sizes.roll_seconds - time.monotonic()))
        removed, updated, calmed = hostile.removed - removed, slow.updated, time.monotonic()
        await self._stage.slurm.hostile(hostile=False)
        recovered = await self._stage.until(
            lambda: slow.rolled is not None and hostile.rolled is not None, "those of the other two are over"
        )
        after = await self._rest()
        return {
            **changes(self._alone, beside),
            **spread([cluster.rolled - started for cluster in self._alike if cluster.rolled]),
            "roll_slow_per_minute": updated * 60.0 / (min(slow.rolled or calmed, calmed) - started),
            "hostile_removed": removed,
            "roll_recovered_seconds": recovered - calmed,
            **after.since(before, "roll"),
        }

    def _rolled(self) -> bool:
        return all(cluster.rolled is not None for cluster in self._alike)

    async def _scale_out(self, cluster: SlurmCluster) -> float:
        """Ask for one more worker, and return how many seconds it took until its pod existed."""
        replicas = len(cluster.staying) + 1
        started = await self._stage.change(cluster, replicas=replicas)
        created = await self._stage.until(lambda: len(cluster.staying) == replicas, "there is one more")
        return created - started

    async def totals(self) -> Figures:
        """Return memory and the longest turns since the start."""
        reading = await self._operator.reading()
        return {
            "rss_mib": reading.resident_mib,
            "peak_mib": self._operator.peak_mib,
            "stall_cpu_ms": reading.busiest_stall * 1e3,
            "stall_own_ms": reading.own_stall * 1e3,
            "stall_ms": reading.longest_stall * 1e3,
            "clusters": self._sizes.clusters,
            "workers": self._sizes.total,
        }
