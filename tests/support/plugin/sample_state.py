"""One state of a cluster as the manager's API reports it: by default all is well."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.plugin.sample_rows import (
    busy,
    cluster,
    job,
    jobs,
    nodeset,
    pending,
    worker,
)

if TYPE_CHECKING:
    from slurm_operator.status_rows import (
        ClusterJobs,
        ClusterRow,
        DecisionRow,
        NodeSetRow,
        WorkerRow,
    )


@dataclass(frozen=True)
class State:
    """One state, and the objects that are explained in it."""

    clusters: tuple[ClusterRow, ...] = (cluster(),)
    nodesets: tuple[NodeSetRow, ...] = (nodeset(),)
    workers: tuple[WorkerRow, ...] = (worker(0), worker(1), busy(2, 42))
    jobs: ClusterJobs = field(
        default_factory=lambda: jobs(job(42), pending(43, "Resources", node_count=2, workers=()))
    )
    decisions: tuple[DecisionRow, ...] = ()
    pod: str = "workers-2"
    job: int = 43
    more: tuple[str, ...] = ()
    """Further commands."""
