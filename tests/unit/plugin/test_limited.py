from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slurm_operator.api import Controller, NodeSet
from slurm_operator.kube.models.kinds import Event, Pod
from slurm_operator.plugin.explanations import explain_pod
from slurm_operator.plugin.limited import Inventory, decision_rows, overview, pod_problem, worker_rows
from slurm_operator.plugin.rendering import render_explanation, render_status
from tests.support.plugin.sample_rows import NOW

if TYPE_CHECKING:
    from slurm_operator.status_rows import WorkerRow

PREFIX = "nodeset.slinky.slurm.net"
T0 = "2026-11-16T11:57:00Z"
WHY = "no operator runs in namespace slinky"


def pod(name: str = "workers-2", *, conditions: tuple[dict[str, str], ...] = (), **changes: Any) -> Pod:
    """Return a worker pod as the API server has it."""
    annotations = changes.pop("annotations", {})
    status = {"phase": "Running", **changes.pop("status", {})}
    ready = {"type": "Ready", "status": "True"}
    body = {
        "metadata": {
            "name": name,
            "namespace": "slurm",
            "creationTimestamp": "2026-11-16T09:00:00Z",
            "labels": {
                "app.kubernetes.io/name": "slurmd",
                "app.kubernetes.io/instance": "workers",
                f"{PREFIX}/pod-protect": "true",
                f"{PREFIX}/scaling-mode": "StatefulSet",
                "slinky.slurm.net/cluster": "slurm",
                "controller.kubernetes.io/hash": "5d4f",
            },
            "annotations": annotations,
            "ownerReferences": [{"kind": "NodeSet", "name": "workers", "controller": True}],
            **changes.pop("metadata", {}),
        },
        "spec": {"nodeName": "node-2", "hostname": name, **changes.pop("spec", {})},
        "status": {**status, "conditions": [ready, *conditions]},
    }
    return msgspec.convert(body, Pod)


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": T0}


BLOCKED = pod(
    conditions=(
        condition("SlurmNodeStateMixed", message="slurm-operator: NodeSet (slurm/workers) scales in"),
        condition("SlurmNodeStateDrain", message="slurm-operator: NodeSet (slurm/workers) scales in"),
        condition("SlurmSafeToDelete", "False", "JobsRunning", "workers-2 is MIXED+DRAIN, job 42 is on it"),
    ),
    annotations={f"{PREFIX}/pod-cordon": "true", f"{PREFIX}/pod-cordon-by": "ScaleIn"},
)
NODESET = msgspec.convert(
    {
        "metadata": {"name": "workers", "namespace": "slurm", "creationTimestamp": "2026-11-14T09:00:00Z"},
        "spec": {"controllerRef": {"name": "slurm"}, "replicas": 2},
        "status": {
            "replicas": 3,
            "readyReplicas": 3,
            "updatedReplicas": 3,
            "desired": 2,
            "nodeSetHash": "5d4f",
            "conditions": [condition("Ready", "False", "Removing", "1 worker is to be removed")],
        },
    },
    NodeSet,
)
CONTROLLER = msgspec.convert(
    {
        "metadata": {"name": "slurm", "namespace": "slurm"},
        "spec": {},
        "status": {"conditions": [condition("SlurmApiReady", "False", "SlurmrestdUnreachable", "refused")]},
    },
    Controller,
)
ALL = Inventory(NOW, (CONTROLLER,), (NODESET,), (BLOCKED, pod("workers-0"), pod("workers-1")))


def row(one: Pod) -> WorkerRow:
    return worker_rows(Inventory(NOW, (CONTROLLER,), (NODESET,), (one,)))[0]


def test_a_blocked_pod_has_the_reason_of_its_condition() -> None:
    """Without the manager, explain gives the reason on the pod, and says that the view is limited."""
    found = row(BLOCKED)
    assert found.blocked is not None
    assert (found.blocked.reason, found.blocked.cause) == ("JobsRunning", "ScaleIn")
    assert (found.state, found.summary, found.drained_by) == (("MIXED", "DRAIN"), "draining", "operator")
    assert (found.slurm_node, found.cluster, found.nodeset) == ("workers-2", "slurm", "workers")
    text = render_explanation(explain_pod(found, None, None, NOW, WHY))
    assert text.startswith(f"Limited view, from conditions and Events only: {WHY}\n")
    assert "JobsRunning: workers-2 is MIXED+DRAIN, job 42 is on it" in text
    assert "2026-11-16 11:57:00Z (3m ago)" in text


def test_the_overview_has_counts_and_says_that_it_is_limited() -> None:
    """Status shows conditions, states and blocked workers, and no jobs, which are not known."""
    view = overview(ALL, WHY)
    assert view.blocked_total == 1
    assert view.nodesets[0].blocked.by_reason == {"JobsRunning": 1}
    assert view.clusters[0].nodes.by_state == {"MIXED+DRAIN": 1, "UNKNOWN": 2}
    text = render_status(view)
    assert "Limited view" in text
    assert "not connected for 3m (SlurmrestdUnreachable): refused" in text
    assert "jobs " not in text


@pytest.mark.parametrize(
    ("given", "summary"),
    [
        (pod(), "unknown"),
        (pod(conditions=(condition("SlurmNodeStateIdle"),)), "idle"),
        (pod(conditions=(condition("SlurmNodeStateAllocated"),)), "busy"),
        (pod(conditions=(condition("SlurmNodeStateDown"), condition("SlurmNodeStateDrain"))), "down"),
        (pod(conditions=(condition("SlurmNodeStateIdle"), condition("SlurmNodeStateDrain"))), "drained"),
        (pod(conditions=(condition("SlurmNodeStateIdle", "False"),)), "unknown"),
        (pod(metadata={"deletionTimestamp": T0}), "terminating"),
    ],
)
def test_summary(given: Pod, summary: str) -> None:
    """One word says what a worker does; without a condition of Slurm it is unknown, never idle."""
    assert row(given).summary == summary


def test_a_drain_without_a_reason_follows_the_cordon() -> None:
    """While the operator has the pod cordoned, nothing advises to undo the drain in Slurm."""
    states = (condition("SlurmNodeStateIdle"), condition("SlurmNodeStateDrain"))
    ours = pod(
        conditions=states, annotations={f"{PREFIX}/pod-cordon": "true", f"{PREFIX}/pod-cordon-by": "ScaleIn"}
    )
    assert row(ours).drained_by == "operator"
    assert row(pod(conditions=states, annotations={})).drained_by == "other"


def test_a_drain_by_a_person_is_not_the_operators() -> None:
    """Only a reason with the operator's prefix is its own."""
    idle, drain = condition("SlurmNodeStateIdle", message="memtest"), condition("SlurmNodeStateDrain")
    assert row(pod(conditions=(idle, drain))).drained_by == "other"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (pod(), ""),
        (
            pod(conditions=(condition("PodScheduled", "False", "Unschedulable", "0/3 nodes"),)),
            "Unschedulable: 0/3 nodes",
        ),
        (
            pod(
                status={
                    "containerStatuses": [
                        {
                            "name": "slurmd",
                            "state": {"waiting": {"reason": "ErrImagePull", "message": "denied"}},
                        }
                    ]
                }
            ),
            "ErrImagePull (container slurmd): denied",
        ),
        (
            pod(
                status={
                    "containerStatuses": [
                        {"name": "slurmd", "state": {"waiting": {"reason": "ContainerCreating"}}}
                    ]
                }
            ),
            "",
        ),
        (pod(status={"phase": "Failed", "reason": "Evicted"}), "Evicted: the pod has failed"),
    ],
)
def test_why_a_pod_does_not_run(given: Pod, told: str) -> None:
    """The scheduler's or the kubelet's words are shown; a pod that only starts has no problem."""
    assert pod_problem(given) == told


def test_events_of_the_operator_are_its_history() -> None:
    """Events about our kinds are listed, the newest first; those of others are not."""

    def event(reason: str, at: str, api: str = "slinky.slurm.net/v1beta1", **changes: Any) -> Event:
        regarding = {"apiVersion": api, "kind": "NodeSet", "namespace": "slurm", "name": "workers"}
        return msgspec.convert(
            {
                "eventTime": at,
                "reason": reason,
                "note": "n",
                "type": "Normal",
                "regarding": regarding,
                **changes,
            },
            Event,
        )

    series = {"count": 4, "lastObservedTime": "2026-11-16T11:59:00Z"}
    rows = decision_rows(
        (
            event("Created", "2026-11-16T11:00:00Z", series=series, type="Warning"),
            event("Scaled", "2026-11-16T11:58:00Z"),
            event("Pulled", "2026-11-16T11:59:30Z", api="v1"),
        )
    )
    assert [(one.what, one.count, one.warning) for one in rows] == [
        ("Created", 4, True),
        ("Scaled", 1, False),
    ]
