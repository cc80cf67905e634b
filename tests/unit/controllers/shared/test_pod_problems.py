"""Whose pods are, and why they do not run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from slurm_operator.controllers.shared.pod_problems import complaint, complaints, instances
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.models.store import Change


def pod(instance: str = "a", app: str = "slurmctld", name: str = "p", **status: Any) -> Pod:
    labels = {"app.kubernetes.io/instance": instance, "app.kubernetes.io/name": app}
    metadata = {"name": name, "namespace": "ns", "labels": labels}
    return msgspec.convert({"metadata": metadata, "status": status}, Pod)


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "state": {"waiting": {"reason": reason, "message": "10s left"}}} | more


SINCE = datetime(2026, 1, 1, tzinfo=UTC)
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes",
    "lastTransitionTime": SINCE.isoformat(),
}


def test_pod_concerns_its_custom_resource() -> None:
    """A pod is mapped by its labels, also by those that it had, and only for its own daemon."""
    owners = instances("slurmctld")
    assert owners(Change(pod("a"), pod("b"))) == [Key("ns", "a"), Key("ns", "b")]
    assert owners(Change(pod("a"), pod("a", app="other"))) == [Key("ns", "a")]
    assert owners(Change(None, pod("a", app="login"))) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, ""),
        ({"containerStatuses": [waiting("ContainerCreating")]}, ""),
        (
            {"containerStatuses": [waiting("ImagePullBackOff")]},
            "'c' ImagePullBackOff",
        ),
        ({"initContainerStatuses": [waiting("ErrImagePull")]}, "'c' ErrImagePull"),
        (
            {"containerStatuses": [waiting("CrashLoopBackOff", restartCount=3)]},
            "'c' log",
        ),
        (
            {"containerStatuses": [{"name": "c", "restartCount": 4, "state": {"running": {}}}]},
            "'c' log",
        ),
        ({"containerStatuses": [{"name": "c", "restartCount": 4, "ready": True}]}, ""),
        ({"conditions": [UNSCHEDULABLE]}, "0/3 nodes"),
    ],
)
def test_complaint(status: dict[str, Any], words: str) -> None:
    """A pod that needs help says why, in words that stay the same from one restart to the next."""
    found = complaint(pod(**status), SINCE)
    assert bool(found) == bool(words)
    assert all(word in found for word in words.split(" "))


def test_patience_with_a_pod_that_waits_for_a_node() -> None:
    """A pod whose volume or node may still be in the making does not complain."""
    waits = pod(conditions=[UNSCHEDULABLE])
    assert complaint(waits, SINCE - timedelta(seconds=1)) == ""
    assert complaint(waits, SINCE) != ""


def test_only_pods_of_the_object_complain() -> None:
    """Pods of others, ready ones and those on their way out say nothing."""
    ill: dict[str, Any] = {"conditions": [UNSCHEDULABLE]}
    healthy: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}]}
    ending = {"name": "x", "labels": pod().metadata.labels, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    gone = msgspec.convert({"metadata": ending, "status": ill}, Pod)
    found = complaints(
        [
            pod(name="p1", **ill),
            pod(name="p0", **ill),
            pod("b", **ill),
            pod(app="login", **ill),
            gone,
            pod(**healthy),
        ],
        "slurmctld",
        "a",
        SINCE,
    )
    assert [one.split(":")[0] for one in found] == ["Pod 'p0'", "Pod 'p1'"]
