"""The figures that this benchmark takes: what each one is, and its goal.

The words are those of the table in docs/project/performance.md, which `--save-baseline` rewrites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bench.report import Figures, Goals

_MOST_REQUESTS, _MOST_LISTS, _MOST_WRITES, _JOB_END = 5.0, 1.0, 2.0, 5.0
_STALL_CPU, _STALL_CLOCK = 50.0, 100.0
_CREATED_RATIO, _READY_RATIO, _PER_WORKER_RATIO = 1.15, 1.5, 1.2


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    workers: int = 1000
    most: int = 5000
    jobs: int = 100
    idle_seconds: float = 60.0
    quiet_seconds: float = 4.0
    plain_runs: int = 2
    """How often the plain client creates the same pods: before the scale-out, and after it."""
    core: int | None = None
    """The core that the operator has for itself; None: it shares all of them."""


def goals(sizes: Sizes) -> Goals:
    """Return the goals; those of memory grow with the number of workers."""
    found: Goals = {
        "scale_out_created_ratio": ("≤", _CREATED_RATIO),
        "scale_out_ready_ratio": ("≤", _READY_RATIO),
        "idle_writes": ("≤", 0.0),
        "scale_in_slurm_requests_until_confirmed": ("≤", _MOST_REQUESTS),
        "scale_in_slurm_lists_per_two_seconds": ("≤", _MOST_LISTS),
        "scale_in_writes_per_pod": ("≤", _MOST_WRITES),
        "job_end_p95_seconds": ("≤", _JOB_END),
    }
    for count in (sizes.workers, sizes.most):
        found[f"rss_mib_{count}"] = ("≤", 100.0 + count * 10 / 1024)
        found[f"stall_cpu_ms_{count}"] = ("≤", _STALL_CPU)
        for meter in ("stall_own_ms", "stall_ms"):
            found[f"{meter}_{count}"] = ("≤", _STALL_CLOCK)
    return found


def words(sizes: Sizes) -> dict[str, str]:
    """Return what to call each figure that people should see, in the order in which they should."""
    return {name.format(sizes=sizes): text.format(sizes=sizes) for name, text in _WORDS.items()}


_WORDS: Final = {
    "scale_out_created_ratio": "scale-out to {sizes.workers}: seconds until all exist ÷ a plain client's",
    "scale_out_ready_ratio": "… seconds until the status says that all are ready ÷ a plain client's",
    "scale_out_created_work_ratio": "… processor time of all processes until all exist ÷ a plain client's",
    "scale_out_ready_work_ratio": "… the same until all are ready",
    "scale_out_created_seconds": "… seconds until all exist",
    "scale_out_ready_seconds": "… seconds until the status says that all are ready",
    "scale_out_writes": "… writes to the API server, until rest",
    "scale_out_slurm_requests": "… requests to Slurm, until rest",
    "scale_out_cpu_seconds": "… CPU-seconds of the operator, until rest",
    "idle_writes": "one idle minute with {sizes.workers}: writes",
    "idle_slurm_requests": "… requests to Slurm",
    "idle_cpu_seconds": "… CPU-seconds",
    "scale_in_slurm_requests_until_confirmed": (
        "scale-in by half, all idle: requests to Slurm from the drain to the first deletion"
    ),
    "scale_in_slurm_lists_per_two_seconds": "… then, lists of nodes in two seconds of deleting",
    "scale_in_slurm_nodes": "… lists of nodes in all",
    "scale_in_slurm_jobs": "… lists of jobs in all",
    "scale_in_slurm_aside": "… beside these, what is asked by the clock: pings, uptime, reservations",
    "scale_in_writes_per_pod": "… writes for each pod beside its deletion",
    "scale_in_seconds": "… seconds until the last pod was told to go",
    "update_seconds": "rolling update of the other half, 25 % at a time: seconds",
    "update_writes": "… writes to the API server",
    "update_cpu_seconds": "… CPU-seconds of the operator",
    "job_end_p50_seconds": "end of a job to the deletion of its pod: median, seconds",
    "job_end_p95_seconds": "… 95th percentile, seconds",
    "rss_mib_{sizes.workers}": "resident memory with {sizes.workers} workers, MiB",
    "rss_mib_{sizes.most}": "resident memory with {sizes.most} workers, MiB",
    "stall_cpu_ms_{sizes.workers}": "longest turn of the event loop, {sizes.workers} workers: ms of CPU time",
    "stall_own_ms_{sizes.workers}": "… ms by the clock, the wait for a core left out",
    "stall_ms_{sizes.workers}": "… ms by the clock, the wait for a core included",
    "stall_cpu_ms_{sizes.most}": "longest turn of the event loop, {sizes.most} workers: ms of CPU time",
    "stall_own_ms_{sizes.most}": "… ms by the clock, the wait for a core left out",
    "stall_ms_{sizes.most}": "… ms by the clock, the wait for a core included",
}

# These should grow in proportion to the workers. `raw_` is what Kubernetes itself takes: it has no goal.
_PROPORTIONAL: Final = {
    "raw_created_seconds": "a plain client: seconds until all exist",
    "raw_ready_seconds": "… seconds until all are ready",
    "scale_out_created_seconds": "scale-out: seconds until all exist",
    "scale_out_ready_seconds": "… seconds until the status says that all are ready",
    "scale_out_writes": "… writes to the API server",
    "scale_out_slurm_requests": "… requests to Slurm",
    "scale_out_cpu_seconds": "… CPU-seconds of the operator",
    "idle_cpu_seconds": "one idle minute: CPU-seconds of the operator",
    "scale_in_seconds": "scale-in by half: seconds until the last pod was told to go",
    "scale_in_writes": "… writes to the API server",
    "scale_in_cpu_seconds": "… CPU-seconds of the operator",
    "update_seconds": "rolling update of the other half: seconds",
    "update_writes": "… writes to the API server",
    "update_cpu_seconds": "… CPU-seconds of the operator",
}


def _per_worker(name: str) -> str:
    return f"{name}_per_worker_ratio"


def per_worker(larger: Figures, smaller: Figures, times: float) -> Figures:
    """Return what each worker costs as a multiple of its cost in a cluster that is `times` smaller.

    A figure that one of them lacks, or that is 0 in the smaller one, has no such ratio.
    """
    return {
        _per_worker(name): larger[name] / times / smaller[name]
        for name in _PROPORTIONAL
        if name in larger and smaller.get(name)
    }


def per_worker_goals() -> Goals:
    """Return the goals of these ratios: linear within a fifth."""
    return {
        _per_worker(name): ("≤", _PER_WORKER_RATIO) for name in _PROPORTIONAL if not name.startswith("raw_")
    }


def per_worker_words(workers: int, compare: int) -> dict[str, str]:
    """Return what to call these ratios."""
    return {
        _per_worker(name): f"{text}: each of {workers} ÷ each of {compare}"
        for name, text in _PROPORTIONAL.items()
    }
