"""Rows of a cluster of three workers as the manager's API sends them; each takes what is different."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from slurm_operator import __version__
from slurm_operator.status_rows import (
    AgeRow,
    AutoscalingRow,
    ClusterJobs,
    ClusterRow,
    ConditionRow,
    DecisionRow,
    JobRow,
    NodeSetRow,
    ObjectRef,
    OperatorRow,
    ScopeRow,
    SlurmctldRow,
    StateCounts,
    WorkerRow,
)

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
OPERATOR = OperatorRow(version=__version__, identity="slurm-operator-0_1", since=NOW - timedelta(hours=5))
EVERYTHING = ScopeRow(all=True)
LISTS = ("jobs", "nodes", "reservations", "slurmctld")


def ago(**given: float) -> datetime:
    """Return a time before now."""
    return NOW - timedelta(**given)


def condition(kind: str, status: str, reason: str, message: str, **since: float) -> ConditionRow:
    """Return a condition, two hours old unless told."""
    return ConditionRow(
        type=kind, status=status, reason=reason, message=message, since=ago(**(since or {"hours": 2}))
    )


def worker(number: int, **given: Any) -> WorkerRow:
    """Return worker number N: idle, in service, unless told otherwise."""
    usual: dict[str, Any] = {
        "namespace": "slurm",
        "nodeset": "workers",
        "cluster": "slurm",
        "pod": f"workers-{number}",
        "phase": "Running",
        "ready": True,
        "created_at": ago(hours=3),
        "kubernetes_node": f"node-{number}",
        "slurm_node": f"workers-{number}",
        "known": "known",
        "state": ("IDLE",),
        "summary": "idle",
        "partitions": ("workers",),
        "features": ("workers",),
        "protected": True,
        "revision": "5d4f",
    }
    return WorkerRow(**{**usual, **given})


def busy(number: int, *jobs: int, **given: Any) -> WorkerRow:
    """Return a worker with jobs, the last of which ends in 50 minutes at the latest."""
    work = {"state": ("MIXED",), "summary": "busy", "jobs": jobs, "job_count": len(jobs)}
    end = {"jobs_end": NOW + timedelta(minutes=50), "jobs_end_known": True}
    return worker(number, **{**work, **end, **given})


def powered_down(number: int, **given: Any) -> WorkerRow:
    """Return a node that Slurm has powered down: it has no pod."""
    usual: dict[str, Any] = {
        "without_pod": True,
        "phase": "",
        "ready": False,
        "created_at": None,
        "kubernetes_node": "",
        "state": ("IDLE", "CLOUD", "POWERED_DOWN", "DYNAMIC_NORM"),
        "summary": "powered-down",
        "power": "powered down",
        "protected": False,
        "revision": "",
    }
    return worker(number, **{**usual, **given})


def powering_up(number: int, **given: Any) -> WorkerRow:
    """Return a worker that Slurm powers up for job 44, whose pod is 40 seconds old and not ready."""
    usual: dict[str, Any] = {
        "without_pod": False,
        "phase": "Pending",
        "created_at": ago(seconds=40),
        "state": ("MIXED", "CLOUD", "NOT_RESPONDING", "POWERING_UP", "DYNAMIC_NORM"),
        "summary": "starting",
        "power": "powering up",
        "jobs": (44,),
        "job_count": 1,
    }
    return powered_down(number, **{**usual, **given})


def late(number: int, **given: Any) -> WorkerRow:
    """Return a node that did not come up in time, one minute ago."""
    usual: dict[str, Any] = {
        "state": ("DOWN", "CLOUD", "POWERED_DOWN", "DYNAMIC_NORM"),
        "summary": "down",
        "state_reason": "ResumeTimeout reached",
        "state_reason_by": "slurm",
        "state_reason_at": ago(minutes=1),
    }
    return powered_down(number, **{**usual, **given})


def scaling(min_replicas: int = 0, max_replicas: int = 4, **nodes: int) -> AutoscalingRow:
    """Return the bounds of a NodeSet that Slurm scales, and its nodes by power state."""
    return AutoscalingRow(
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        idle_seconds=300,
        resume_timeout_seconds=600,
        suspend_timeout_seconds=60,
        nodes=nodes,
    )


def nodeset(**given: Any) -> NodeSetRow:
    """Return a NodeSet of three workers, all in service."""
    usual: dict[str, Any] = {
        "namespace": "slurm",
        "name": "workers",
        "cluster": "slurm",
        "mode": "StatefulSet",
        "replicas": 3,
        "desired": 3,
        "pods": 3,
        "updated": 3,
        "ready": 3,
        "available": 3,
        "protected": 3,
        "states": {"idle": 2, "busy": 1},
        "revision": "5d4f",
        "update_strategy": "RollingUpdate",
        "created_at": ago(days=2, hours=3),
        "conditions": (
            condition("Ready", "True", "AllAvailable", "3 workers available"),
            condition("Progressing", "False", "Settled", "No changes pending"),
            condition("Degraded", "False", "AsExpected", "No problems found"),
        ),
    }
    return NodeSetRow(**{**usual, **given})


def cluster(**given: Any) -> ClusterRow:
    """Return a Slurm cluster that is connected."""
    usual: dict[str, Any] = {
        "namespace": "slurm",
        "name": "slurm",
        "cluster_name": "slurm_slurm",
        "connected": True,
        "reason": "Connected",
        "message": (
            "slurmrestd responds at http://slurm-restapi.slurm:6820, and slurmctld responds through it"
        ),
        "server": "http://slurm-restapi.slurm:6820",
        "slurm_version": "26.05.5",
        "api_version": "v0.0.45",
        "uptime_seconds": 10_800.0,
        "slurmctld": (SlurmctldRow(host="slurm-controller-0", responding=True, primary=True),),
        "views": {name: AgeRow(age=1.2, stale=False) for name in LISTS},
        "nodes": StateCounts(total=3, by_state={"IDLE": 2, "MIXED": 1}),
        "jobs": StateCounts(total=3, by_state={"RUNNING": 1, "PENDING": 1, "COMPLETED": 1}),
        "nodesets": ("workers",),
        "conditions": (condition("Ready", "True", "Available", "slurmctld is running: 1 of 1 pods ready"),),
    }
    return ClusterRow(**{**usual, **given})


def job(number: int, **given: Any) -> JobRow:
    """Return a running job of alice on workers-2."""
    usual: dict[str, Any] = {
        "id": number,
        "name": "train",
        "user": "alice",
        "partition": "workers",
        "state": ("RUNNING",),
        "state_reason": "None",
        "nodes": "workers-2",
        "node_count": 1,
        "cpus": 4,
        "submit_time": ago(minutes=15),
        "start_time": ago(minutes=10),
        "end_time": NOW + timedelta(minutes=50),
        "time_limit_minutes": 60,
        "workers": ("workers-2",),
    }
    return JobRow(**{**usual, **given})


def pending(number: int, reason: str, **given: Any) -> JobRow:
    """Return a pending job of bob."""
    usual: dict[str, Any] = {
        "name": "sweep",
        "user": "bob",
        "state": ("PENDING",),
        "state_reason": reason,
        "nodes": "",
        "submit_time": ago(minutes=4),
        "start_time": None,
        "end_time": None,
        "workers": (),
    }
    return job(number, **{**usual, **given})


def decision(what: str, why: str, name: str = "workers-2", kind: str = "Pod", **given: Any) -> DecisionRow:
    """Return a decision about a worker, three minutes old."""
    usual: dict[str, Any] = {
        "object": ObjectRef(kind=kind, namespace="slurm", name=name),
        "nodeset": "workers",
        "first": ago(minutes=3),
        "at": ago(minutes=3),
        "type": "decision",
        "what": what,
        "why": why,
    }
    return DecisionRow(**{**usual, **given})


def jobs(*rows: JobRow, **given: Any) -> ClusterJobs:
    """Return the jobs of the cluster, with their counts."""
    states: dict[str, int] = {}
    for one in rows:
        states[one.state[0]] = states.get(one.state[0], 0) + 1
    usual: dict[str, Any] = {
        "namespace": "slurm",
        "cluster": "slurm",
        "at": NOW,
        "total": len(rows),
        "matched": len(rows),
        "shown": len(rows),
        "by_state": states,
        "jobs": rows,
    }
    return ClusterJobs(**{**usual, **given})
