"""States in which nothing is wrong: workers go, are drained, wait for a window, or come by themselves."""

from __future__ import annotations

from slurm_operator.status_rows import (
    BlockedCounts,
    BlockedRow,
    RequestRow,
    StateCounts,
)
from tests.support.plugin.sample_rows import (
    ago,
    busy,
    cluster,
    condition,
    decision,
    job,
    jobs,
    late,
    nodeset,
    pending,
    powered_down,
    powering_up,
    scaling,
    worker,
)
from tests.support.plugin.sample_state import State


def scaling_in() -> State:
    """Return a scale-in to two workers while the third runs a job."""
    blocked = BlockedRow(
        action="delete",
        cause="ScaleIn",
        reason="JobsRunning",
        message="workers-2 is MIXED+DRAIN, job 42 is on it",
        next=(
            "It is deleted when its jobs have ended, at the latest at 2026-11-16T12:50:00Z. "
            "To cancel them now: scancel -w workers-2."
        ),
        since=ago(minutes=3),
    )
    drained = busy(
        2,
        42,
        state=("MIXED", "DRAIN"),
        summary="draining",
        state_reason="slurm-operator: NodeSet (slurm/workers) scales in",
        state_reason_by="root",
        state_reason_at=ago(minutes=3),
        drained_by="operator",
        cordoned=True,
        cordoned_by="ScaleIn",
        removal="ScaleIn",
        blocked=blocked,
    )
    return State(
        clusters=(cluster(nodes=StateCounts(total=3, by_state={"IDLE": 2, "MIXED+DRAIN": 1})),),
        nodesets=(
            nodeset(
                replicas=2,
                desired=2,
                states={"idle": 2, "draining": 1},
                blocked=BlockedCounts(total=1, by_reason={"JobsRunning": 1}, oldest_since=ago(minutes=3)),
                conditions=(
                    condition("Ready", "False", "Removing", "1 worker pending removal, 2 wanted", minutes=3),
                    condition(
                        "Progressing",
                        "True",
                        "JobsRunning",
                        "Scaling in: 1 pod; Waiting: 1 JobsRunning",
                        minutes=3,
                    ),
                    condition("Degraded", "False", "AsExpected", "No problems found"),
                ),
            ),
        ),
        workers=(worker(0), worker(1), drained),
        decisions=(
            decision(
                "DeletePod", "JobsRunning: job 42 is on it", type="blocked", count=12, at=ago(seconds=5)
            ),
            decision("DrainNode", "workers-2: NodeSet (slurm/workers) scales in", "workers", "NodeSet"),
        ),
    )


def drain_by_a_person() -> State:
    """Return a node that a person has drained in Slurm."""
    blocked = BlockedRow(
        action="undrain",
        cause="",
        reason="ForeignDrain",
        message=(
            "Node workers-2 was drained by another client with the reason 'memtest by ann' "
            "and stays drained until a user resumes it"
        ),
        next="When the node may work again: scontrol update nodename=workers-2 state=resume.",
        since=ago(hours=1),
    )
    drained = worker(
        2,
        state=("IDLE", "DRAIN"),
        summary="drained",
        state_reason="memtest by ann",
        state_reason_by="ann",
        state_reason_at=ago(hours=1, minutes=5),
        drained_by="other",
        blocked=blocked,
    )
    return State(
        clusters=(cluster(nodes=StateCounts(total=3, by_state={"IDLE": 2, "IDLE+DRAIN": 1})),),
        nodesets=(
            nodeset(
                states={"idle": 2, "drained": 1},
                blocked=BlockedCounts(total=1, by_reason={"ForeignDrain": 1}, oldest_since=ago(hours=1)),
            ),
        ),
        workers=(worker(0), worker(1), drained),
        jobs=jobs(pending(43, "ReqNodeNotAvail, UnavailableNodes:workers-2")),
    )


def maintenance() -> State:
    """Return a maintenance window that is booked in Slurm."""
    name = "SlurmOperatorMaint-workers"
    old = {"current": False, "revision": "4c3e", "reservation": name}
    return State(
        nodesets=(
            nodeset(
                updated=0,
                update_strategy="ScheduledUpdate",
                conditions=(
                    condition("Ready", "False", "Updating", "0 of 3 workers updated to the current revision"),
                    condition("Progressing", "False", "Settled", "No changes pending"),
                    condition("Degraded", "False", "AsExpected", "No problems found"),
                    condition(
                        "ReservationCreated",
                        "True",
                        "Created",
                        "The maintenance window opens at 2026-11-16T13:00:00Z",
                    ),
                ),
            ),
        ),
        workers=(worker(0, **old), worker(1, **old), busy(2, 42, **old)),
        jobs=jobs(job(42), pending(43, "ReqNodeNotAvail, May be reserved for other job")),
    )


def after_migration() -> State:
    """Return a cluster right after the migration from Slinky slurm-operator."""
    return State(
        clusters=(
            cluster(
                conditions=(
                    condition("Ready", "True", "Available", "slurmctld is running: 1 of 1 pods ready"),
                    condition(
                        "Configured",
                        "True",
                        "CorrectionsPending",
                        "slurmctld keeps the configuration of Slinky slurm-operator. The next change that "
                        "restarts it also applies these corrections: AuthType=auth/slurm is removed",
                    ),
                )
            ),
        ),
        workers=(
            worker(0),
            worker(1, request=RequestRow(by="eviction by ann", at=ago(minutes=1))),
            busy(2, 42),
        ),
        pod="workers-1",
        decisions=(
            decision("CorrectionsPending", "2 corrections are pending", "slurm", "Controller", type="event"),
        ),
    )


def autoscaled() -> State:
    """Return a NodeSet that Slurm scales: one worker up, one starting, one that was late, and one down."""
    why = "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    counts = {"powered down": 2, "powering up": 1, "up": 1}
    return State(
        clusters=(
            cluster(
                nodes=StateCounts(
                    total=4, by_state={"DOWN+POWERED_DOWN": 1, "IDLE+POWERED_DOWN": 1, "MIXED": 2}
                )
            ),
        ),
        nodesets=(
            nodeset(
                replicas=1,
                desired=2,
                pods=2,
                ready=1,
                available=1,
                updated=2,
                protected=2,
                states={"busy": 1, "starting": 1, "down": 1, "powered-down": 1},
                autoscaling=scaling(**counts),
                conditions=(
                    condition("Ready", "False", "WorkersUnavailable", "1 of 2 workers available"),
                    condition("Degraded", "False", "AsExpected", "No problems found"),
                    condition(
                        "Autoscaling", "True", "Resuming", "2 powered down, 1 powering up, 1 up", seconds=40
                    ),
                ),
            ),
        ),
        workers=(
            busy(0, 42, state=("MIXED", "CLOUD", "DYNAMIC_NORM"), power="up"),
            powering_up(1, problem=why, protected=True, revision="5d4f"),
            late(2, resume_failures=3, resume_at=ago(seconds=-3)),
            powered_down(3),
        ),
        jobs=jobs(
            job(42, nodes="workers-0", workers=("workers-0",)),
            pending(43, "BeginTime"),
            job(
                44,
                state=("RUNNING", "CONFIGURING", "POWER_UP_NODE"),
                nodes="workers-1",
                start_time=ago(seconds=42),
                workers=("workers-1",),
            ),
        ),
        pod="workers-3",
        job=44,
        more=(
            *("explain node workers-3", "explain node workers-2", "explain node workers-1"),
            *("explain job 43", "explain pod workers-9"),
        ),
    )
