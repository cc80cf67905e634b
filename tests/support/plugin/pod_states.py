"""States in which a pod cannot be created, or does not start."""

from __future__ import annotations

from slurm_operator.status_rows import (
    StateCounts,
    WaitRow,
)
from tests.support.plugin.sample_rows import (
    ago,
    busy,
    cluster,
    condition,
    job,
    jobs,
    nodeset,
    pending,
    worker,
)
from tests.support.plugin.sample_state import State


def name_conflict() -> State:
    """Return a NodeSet whose worker would have the name of another NodeSet's."""
    wait = WaitRow(
        reason="NameTaken",
        message=(
            "Slurm node name 'workers-0' belongs to older NodeSet batch: "
            "change spec.template.spec.hostname of one of the two"
        ),
        next="Rename one of the workers: two have the same name in Slurm.",
    )
    return State(
        nodesets=(
            nodeset(
                pods=0,
                ready=0,
                updated=0,
                available=0,
                protected=0,
                states={},
                waits=(wait,),
                conditions=(
                    condition("Ready", "False", "WorkersUnavailable", "0 of 3 workers available"),
                    condition("Degraded", "True", "NameTaken", wait.message),
                ),
            ),
        ),
        workers=(),
        jobs=jobs(pending(43, "Resources")),
        pod="",
    )


def unschedulable() -> State:
    """Return a worker that fits on no node."""
    text = "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."
    why = "no node fits: 0/3 nodes are available: 3 Insufficient cpu."
    stuck = worker(
        2,
        phase="Pending",
        ready=False,
        kubernetes_node="",
        known="absent",
        state=(),
        summary="starting",
        problem=text,
        created_at=ago(minutes=6),
        partitions=(),
        features=(),
    )
    return State(
        clusters=(cluster(nodes=StateCounts(total=2, by_state={"ALLOCATED": 2})),),
        nodesets=(
            nodeset(
                ready=2,
                available=2,
                states={"busy": 2, "starting": 1},
                conditions=(
                    condition("Ready", "False", "WorkersUnavailable", "2 of 3 workers available"),
                    condition("Degraded", "True", "PodsFailing", f"Not running: 1 pod (workers-2): {why}"),
                ),
            ),
        ),
        workers=(busy(0, 40), busy(1, 41), stuck),
        jobs=jobs(job(40, workers=("workers-0",), nodes="workers-0"), pending(43, "Resources")),
    )


def missing_image() -> State:
    """Return a worker whose image cannot be pulled."""
    why = "container 'slurmd' cannot start: ImagePullBackOff"
    text = "ImagePullBackOff (container slurmd): Back-off pulling image registry.example/slurmd:1"
    stuck = worker(
        2,
        phase="Pending",
        ready=False,
        known="absent",
        state=(),
        summary="starting",
        problem=text,
        created_at=ago(minutes=9, seconds=5),
    )
    return State(
        nodesets=(
            nodeset(
                ready=2,
                available=2,
                states={"idle": 2, "starting": 1},
                conditions=(
                    condition("Ready", "False", "WorkersUnavailable", "2 of 3 workers available"),
                    condition("Degraded", "True", "PodsFailing", f"Not running: 1 pod (workers-2): {why}"),
                ),
            ),
        ),
        workers=(worker(0), worker(1), stuck),
        jobs=jobs(pending(43, "PartitionNodeLimit", node_count=3)),
    )
