"""How far a workload has come, by the rules of `kubectl rollout status`; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from slurm_operator.controllers.workload.models import Deployment, Workload
from slurm_operator.kube.parts import find_condition

if TYPE_CHECKING:
    from slurm_operator.kube.workloads import WorkloadStatus


class Phase(StrEnum):
    """Where a rollout is."""

    COMPLETE = "Complete"
    ROLLING = "RollingOut"
    STALLED = "Stalled"
    ABSENT = "NotCreated"


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is known of a workload, and a sentence about it."""

    phase: Phase
    message: str
    ready: int = 0
    wanted: int = 0


def assess(workload: Workload | None, daemon: str) -> Rollout:
    """Return the state of a workload's rollout; `daemon` is the name of its daemon in messages."""
    if workload is None:
        return Rollout(Phase.ABSENT, f"{daemon} does not run yet")
    wanted = 1 if workload.spec.replicas is None else workload.spec.replicas
    status = workload.status
    ready = status.available_replicas if isinstance(workload, Deployment) else status.ready_replicas
    name = f"{workload.RESOURCE.kind} {workload.metadata.name!r}"
    phase, message = Phase.ROLLING, f"{name}: {_waits(workload, wanted)}"
    if workload.deleting:
        message = f"{name} is being deleted; a new one follows"
    elif status.observed_generation < workload.metadata.generation:
        message = f"{name} has not been looked at by Kubernetes yet"
    elif failure := _failure(status):
        phase, message = Phase.STALLED, f"{name}: {failure}"
    elif not _waits(workload, wanted):
        phase = Phase.COMPLETE
        message = (
            f"{daemon} runs: {ready} of {wanted} pods are ready" if wanted else f"{daemon} is scaled to zero"
        )
    return Rollout(phase, message, ready, wanted)


def _waits(workload: Workload, wanted: int) -> str:
    """Say what a rollout waits for; empty when it is complete."""
    if isinstance(workload, Deployment):
        return _deployment_waits(workload.status, wanted)
    return _stateful_set_waits(workload.status, wanted)


def _failure(status: WorkloadStatus) -> str:
    progressing = find_condition(status.conditions, "Progressing")
    if progressing is not None and progressing.reason == "ProgressDeadlineExceeded":
        return progressing.message or "it makes no progress; look at its pods"
    refused = find_condition(status.conditions, "ReplicaFailure")
    if refused is not None and refused.status == "True":
        return refused.message or "its pods cannot be created"
    return ""


def _deployment_waits(status: WorkloadStatus, wanted: int) -> str:
    if status.updated_replicas < wanted:
        return f"{status.updated_replicas} of {wanted} pods are new"
    if status.replicas > status.updated_replicas:
        return f"{status.replicas - status.updated_replicas} old pods have yet to end"
    if status.available_replicas < status.updated_replicas:
        return f"{status.available_replicas} of {wanted} pods are ready"
    return ""


def _stateful_set_waits(status: WorkloadStatus, wanted: int) -> str:
    if status.ready_replicas < wanted:
        return f"{status.ready_replicas} of {wanted} pods are ready"
    if status.replicas > wanted:
        return f"{status.replicas - wanted} pods too many have yet to end"
    if status.update_revision != status.current_revision:
        return f"{status.updated_replicas} of {wanted} pods are new"
    return ""
