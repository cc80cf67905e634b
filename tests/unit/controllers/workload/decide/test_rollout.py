"""How far a workload has come."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails, StatefulSetDetails
from slurm_operator.controllers.workload.decide.rollout import Phase, assess


def deployment(wanted: int | None = 2, generation: int = 3, **status: Any) -> DeploymentDetails:
    body = {
        "metadata": {"name": "d", "generation": generation},
        "spec": {"replicas": wanted},
        "status": {"observedGeneration": 3} | status,
    }
    return msgspec.convert(body, DeploymentDetails)


def stateful_set(wanted: int = 2, **status: Any) -> StatefulSetDetails:
    same = {"observedGeneration": 3, "currentRevision": "a", "updateRevision": "a"}
    body = {
        "metadata": {"name": "s", "generation": 3},
        "spec": {"replicas": wanted},
        "status": same | status,
    }
    return msgspec.convert(body, StatefulSetDetails)


DONE: dict[str, Any] = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "slow"}
QUOTA = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}


@pytest.mark.parametrize(
    ("workload", "phase", "named"),
    [
        (None, Phase.ABSENT, "slurmrestd"),
        (deployment(**DONE), Phase.COMPLETE, "2 of 2 pods"),
        (deployment(generation=4, **DONE), Phase.ROLLING, "Deployment 'd'"),
        (deployment(**DONE | {"updatedReplicas": 1}), Phase.ROLLING, "1 of 2 pods"),
        (deployment(**DONE | {"replicas": 3}), Phase.ROLLING, "1 old pod "),
        (deployment(**DONE | {"availableReplicas": 1}), Phase.ROLLING, "1 of 2 pods"),
        (deployment(**DONE, conditions=[LATE]), Phase.STALLED, "slow"),
        (deployment(conditions=[QUOTA]), Phase.STALLED, "quota"),
        (deployment(0), Phase.COMPLETE, "slurmrestd"),
        (
            deployment(None, replicas=1, updatedReplicas=1, availableReplicas=1),
            Phase.COMPLETE,
            "1 of 1 pods",
        ),
        (stateful_set(**DONE), Phase.COMPLETE, "2 of 2 pods"),
        (stateful_set(**DONE | {"readyReplicas": 1}), Phase.ROLLING, "1 of 2 pods"),
        (
            stateful_set(**DONE | {"updateRevision": "b", "updatedReplicas": 1}),
            Phase.ROLLING,
            "1 of 2 pods",
        ),
        (stateful_set(1, **DONE), Phase.ROLLING, "1 surplus pod "),
    ],
)
def test_rollout(workload: DeploymentDetails | StatefulSetDetails | None, phase: Phase, named: str) -> None:
    """A rollout is complete when `kubectl rollout status` would return, and says before what it waits for."""
    found = assess(workload, "slurmrestd")
    assert found.phase is phase
    assert named in found.message


def test_workload_that_is_being_deleted() -> None:
    """A workload on its way out is never complete, however many of its pods are ready."""
    body = {
        "metadata": {"name": "d", "generation": 3, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 3} | DONE,
    }
    assert assess(msgspec.convert(body, DeploymentDetails), "x").phase is Phase.ROLLING
