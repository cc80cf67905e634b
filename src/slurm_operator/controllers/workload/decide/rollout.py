"""How far a workload has come, by the rules of `kubectl rollout status`; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails, Workload
from slurm_operator.kube.models.meta import find_condition

if TYPE_CHECKING:
    from slurm_operator.kube.models.workloads import WorkloadStatus


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
        return Rollout(Phase.ABSENT, f"{daemon} is not running yet")
    wanted = 1 if workload.spec.replicas is None else workload.spec.replicas
    status = workload.status
    ready = status.available_replicas if isinstance(workload, DeploymentDetails) else status.ready_replicas
    name = f"{workload.RESOURCE.kind} {workload.metadata.name!r}"
    phase, message = Phase.ROLLING, f"{name}: {_waits(workload, wanted)}"
    if workload.deleting:
        message = f"{name} is being deleted; it will be recreated"
    elif status.observed_generation < workload.metadata.generation:
        message = f"{name}: waiting until Kubernetes has observed the change"
    elif failure := _failure(workload):
        phase, message = Phase.STALLED, f"{name}: {failure}"
    elif not _waits(workload, wanted):
        phase = Phase.COMPLETE
        message = (
            f"{daemon} is running: {ready} of {wanted} pods ready"
            if wanted
            else f"{daemon} is scaled to zero"
        )
    return Rollout(phase, message, ready, wanted)


def _waits(workload: Workload, wanted: int) -> str:
    """Return what a rollout waits for; empty when it is complete."""
    if isinstance(workload, DeploymentDetails):
        return _deployment_waits(workload.status, wanted)
    return _stateful_set_waits(workload.status, wanted)


def _failure(workload: Workload) -> str:
    conditions, (namespace, name) = workload.status.conditions, workload.key
    events = f"see the Events in kubectl -n {namespace} describe {workload.RESOURCE.kind.lower()} {name}"
    progressing = find_condition(conditions, "Progressing")
    if progressing is not None and progressing.reason == "ProgressDeadlineExceeded":
        return progressing.message or f"the rollout makes no progress: {events}"
    refused = find_condition(conditions, "ReplicaFailure")
    if refused is not None and refused.status == "True":
        return refused.message or f"its pods cannot be created: {events}"
    return ""


def _pods(number: int, which: str) -> str:
    return f"{number} {which} pod" if number == 1 else f"{number} {which} pods"


def _deployment_waits(status: WorkloadStatus, wanted: int) -> str:
    if status.updated_replicas < wanted:
        return f"{status.updated_replicas} of {wanted} pods updated"
    if status.replicas > status.updated_replicas:
        return f"waiting for {_pods(status.replicas - status.updated_replicas, 'old')} to terminate"
    if status.available_replicas < status.updated_replicas:
        return f"{status.available_replicas} of {wanted} pods ready"
    return ""


def _stateful_set_waits(status: WorkloadStatus, wanted: int) -> str:
    if status.ready_replicas < wanted:
        return f"{status.ready_replicas} of {wanted} pods ready"
    if status.replicas > wanted:
        return f"waiting for {_pods(status.replicas - wanted, 'surplus')} to terminate"
    if status.update_revision != status.current_revision:
        return f"{status.updated_replicas} of {wanted} pods updated"
    return ""
