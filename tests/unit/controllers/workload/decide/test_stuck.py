"""Pods that keep their own replacement from being made."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
from slurm_operator.controllers.workload.decide.stuck import stuck_pods
from slurm_operator.kube.models.kinds import Pod


def stateful_set(observed: int = 2, newest: str = "new") -> StatefulSetDetails:
    status = {"observedGeneration": observed, "updateRevision": newest}
    return msgspec.convert({"metadata": {"uid": "s", "generation": 2}, "status": status}, StatefulSetDetails)


def pod(
    revision: str = "old", owner: str = "s", status: dict[str, Any] | None = None, node: str = "", **meta: Any
) -> Pod:
    metadata = {
        "name": "p",
        "labels": {"controller-revision-hash": revision},
        "ownerReferences": [{"kind": "StatefulSet", "uid": owner, "controller": True}],
    }
    found = {"metadata": metadata | meta, "spec": {"nodeName": node}, "status": status or {}}
    return msgspec.convert(found, Pod)


READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def container(state: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "slurmctld", "started": False, **fields, "state": state}]}


WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}
RUNNING: dict[str, Any] = {"running": {}}
CRASHING = container(WAITING, restartCount=3)


@pytest.mark.parametrize("found", [pod(), pod(status=CRASHING), pod(status=CRASHING, node="n")])
def test_stuck(found: Pod) -> None:
    """A pod of an old version that never came up is in the way."""
    assert stuck_pods(stateful_set(), [found]) == [found]


@pytest.mark.parametrize(
    "found",
    [
        pod("new"),
        pod(owner="another"),
        pod(status=READY),
        pod(status=container(RUNNING, started=True)),
        pod(status=container(RUNNING)),
        pod(status=container(RUNNING, restartCount=3)),
        pod(status=container(None)),
        pod(node="n"),
        pod(deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
)
def test_not_stuck(found: Pod) -> None:
    """A pod that is new, serves, may run, ends already or is of another set is left to Kubernetes."""
    assert stuck_pods(stateful_set(), [found]) == []


def test_nothing_is_deleted_for_a_version_that_nobody_has_looked_at() -> None:
    """Before Kubernetes has seen the newest template, nobody can say which pods are old."""
    assert stuck_pods(stateful_set(observed=1), [pod()]) == []
    assert stuck_pods(stateful_set(newest=""), [pod()]) == []
