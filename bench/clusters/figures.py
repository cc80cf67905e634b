"""The figures that this benchmark takes: what each one is, and its goal."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.report import Figures, Goals

SLOW, HOSTILE, QUIET = 0, 1, 2
"""The numbers of the clusters that are not like the others; those behind them are alike."""
_STALL = 50.0


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    clusters: int = 100
    workers: int = 50
    """Of each cluster."""
    changes: int = 10
    """How often the quiet cluster is scaled out, at rest and beside the rolling updates."""
    pause: float = 3.0
    """Seconds between two of these changes."""
    idle_seconds: float = 60.0
    quiet_seconds: float = 6.0
    """For how long nothing must have been written to call it rest."""
    slow_seconds: float = 3.0
    """How long each reply of the slow cluster takes."""
    roll_seconds: float = 60.0
    """For how long the slow cluster rolls at least before its replies are quick again."""

    @property
    def total(self) -> int:
        """Return the workers of all clusters."""
        return self.clusters * self.workers


def goals(sizes: Sizes) -> Goals:
    """Return the goals, which are those of `bench.nodeset`; a hostile Slurm must not lead to a deletion."""
    return {
        "idle_writes": ("≤", 0.0),
        "hostile_removed": ("≤", 0.0),
        "rss_mib": ("≤", 100.0 + sizes.total * 10 / 1024),
        "stall_cpu_ms": ("≤", _STALL),
    }


def words(sizes: Sizes) -> dict[str, str]:
    """Return what to call the figures in docs/project/performance.md, in the order of the table."""
    return {
        "create_created_seconds": f"{sizes.clusters} clusters of {sizes.workers}: seconds until all workers "
        "exist",
        "create_ready_seconds": "… seconds until every cluster and all workers are ready",
        "create_writes": "… writes to the API server, until rest",
        "create_slurm_requests": "… requests to Slurm, until rest",
        "create_cpu_seconds": "… CPU-seconds of the operator, until rest",
        "idle_writes": "one idle minute, all well-behaved: writes",
        "idle_slurm_requests": "… requests to Slurm",
        "idle_cpu_seconds": "… CPU-seconds",
        "idle_hostile_writes": "one idle minute, one slow and one hostile: writes",
        "idle_hostile_slurm_requests": "… requests to Slurm",
        "idle_hostile_slurm_requests_own": "… of these, to the slow and the hostile one",
        "idle_hostile_cpu_seconds": "… CPU-seconds",
        "change_alone_p50_ms": "`replicas` of the quiet cluster until the pod exists, no other rolls: "
        "median in ms",
        "change_alone_most_ms": "… longest in ms",
        "change_beside_p50_ms": "… while all others roll: median in ms",
        "change_beside_most_ms": "… longest in ms",
        "change_ratio": "… the second median ÷ the first",
        "roll_first_seconds": "rolling update of all but one, 25 % at a time: seconds until the first ends",
        "roll_median_seconds": "… the median",
        "roll_last_seconds": "… the last of the well-behaved",
        "roll_last_by_median": "… the last ÷ the median",
        "roll_slow_per_minute": "… workers of the slow one that are updated in a minute",
        "hostile_removed": "… workers of the hostile one that are removed",
        "roll_recovered_seconds": "… seconds until both have rolled, since they are well-behaved",
        "roll_writes": "… writes to the API server, until rest",
        "roll_slurm_requests": "… requests to Slurm, until rest",
        "roll_cpu_seconds": "… CPU-seconds of the operator, until rest",
        "rss_mib": "resident memory after all, MiB",
        "peak_mib": "most memory, MiB",
        "stall_cpu_ms": "longest turn of the event loop: ms of CPU time",
        "stall_own_ms": "… ms by the clock, the wait for a core left out",
        "stall_ms": "… ms by the clock, the wait for a core included",
    }


def spread(ends: Sequence[float]) -> Figures:
    """Return when the rolling updates of clusters of the same size were over, and how fair that is."""
    median = statistics.median(ends)
    return {
        "roll_first_seconds": min(ends),
        "roll_median_seconds": median,
        "roll_last_seconds": max(ends),
        "roll_last_by_median": max(ends) / median,
    }


def changes(alone: Sequence[float], beside: Sequence[float]) -> Figures:
    """Return how long changes took at rest, and beside the rolling updates of others."""
    found: Figures = {}
    for name, seconds in (("alone", alone), ("beside", beside)):
        found[f"change_{name}_p50_ms"] = statistics.median(seconds) * 1e3
        found[f"change_{name}_most_ms"] = max(seconds) * 1e3
        found[f"change_{name}_count"] = len(seconds)
    return found | {"change_ratio": statistics.median(beside) / statistics.median(alone)}
