from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.plugin.explain_job import explain_job
from slurm_operator.plugin.pending_reasons import REASONS
from tests.support.plugin.sample_rows import NOW, busy, cluster, job, nodeset, pending, worker

if TYPE_CHECKING:
    from slurm_operator.plugin.explanations import Explanation


def explained(reason: str = "Resources", workers: Any = None, **asked: Any) -> Explanation:
    known = (busy(0, 1), busy(1, 2)) if workers is None else workers
    sets = (nodeset(states={"busy": len(known)}, desired=len(known), ready=len(known), replicas=len(known)),)
    return explain_job(pending(7, reason, **asked), cluster(), sets, known, NOW)


@pytest.mark.parametrize("code", REASONS)
def test_every_reason_is_explained(code: str) -> None:
    """The sentence about the reason and its advice are in the explanation."""
    found = explained(code)
    assert found.why == (f"{code}: {REASONS[code].meaning}",)
    assert REASONS[code].advice in found.next


def test_an_unknown_reason_is_shown_as_it_is() -> None:
    """A reason of a later Slurm is quoted, and the operator's facts stand beside it."""
    found = explained("BrandNew")
    assert "BrandNew" in found.why[0]
    assert found.waits_for


@pytest.mark.parametrize(
    ("workers", "asked", "fact"),
    [
        ((), {}, "No worker of the operator is in partition workers."),
        (None, {"features": "a100&nvlink"}, "No worker in partition workers has the features a100&nvlink."),
        (
            (worker(0, phase="Pending", summary="starting", problem="Unschedulable: 0/3 nodes", state=()),),
            {},
            "Worker workers-0 is Pending: Unschedulable: 0/3 nodes",
        ),
        ((worker(0, summary="starting", state=()),), {}, "1 worker is starting."),
        (
            (worker(0, drained_by="operator", cordoned=True, cordoned_by="ScaleIn"),),
            {},
            (
                "1 node takes no new jobs, drained by the operator: its NodeSet has more workers than "
                "replicas asks for (workers-0)."
            ),
        ),
        (
            (worker(0, drained_by="other", state_reason="memtest", state_reason_by="ann"),),
            {},
            "1 node takes no new jobs, drained by ann, reason 'memtest' (workers-0).",
        ),
        (
            (worker(0, cordoned=True),),
            {},
            (
                "1 node takes no new jobs, drained by a user: the pod is cordoned by its annotation "
                "pod-cordon (workers-0)."
            ),
        ),
        (
            (worker(0, reservation="maint"), worker(1, reservation="maint")),
            {},
            "2 nodes are in reservation maint (workers-0, workers-1).",
        ),
        (None, {}, "NodeSet workers has all 2 workers that replicas asks for, and none is idle."),
    ],
)
def test_what_the_operator_knows_stands_beside_the_reason(
    workers: Any, asked: dict[str, Any], fact: str
) -> None:
    """A pending job is explained with the NodeSets, pods, drains and reservations that concern it."""
    assert fact in explained("Resources", workers, **asked).waits_for


def test_features_that_a_worker_has_are_no_fact() -> None:
    """A request that can be fulfilled, or that is more than a list of features, is not judged."""
    known = (worker(0, features=("workers", "a100")),)
    for asked in ("a100", "a100|h100", "[rack1*2&rack2]", ""):
        assert not [
            one for one in explained("Resources", known, features=asked).waits_for if "features" in one
        ]


def test_facts_about_workers_are_left_out_where_they_do_not_matter() -> None:
    """A job that its user holds does not wait for workers."""
    assert explained("JobHeldUser").waits_for == ()


def test_no_connection_is_a_fact() -> None:
    """Without a connection to Slurm the explanation says so."""
    lost = cluster(connected=False, reason="Refused", message="token")
    found = explain_job(pending(7, "Resources"), lost, (), (), NOW)
    assert found.waits_for[0] == "The operator has no connection to Slurm (Refused): token"


def test_a_running_job_waits_for_nothing() -> None:
    """It has its nodes and its latest end."""
    found = explain_job(job(42), cluster(), (nodeset(),), (busy(2, 42),), NOW)
    assert found.waits_for == found.why == ()
    assert "RUNNING on workers-2" in found.state
    assert any("ends at the latest" in one for one in found.state)


def test_more_workers_are_proposed_where_they_would_help() -> None:
    """The next command scales the NodeSet of the partition by one."""
    assert "kubectl -n slurm scale nodeset workers --replicas=3" in explained().commands


@pytest.mark.parametrize("mode", ["StatefulSet", "DaemonSet"])
def test_workers_of_unknown_state_are_not_called_busy(mode: str) -> None:
    """While the list of nodes is not trusted, none is known to be idle, and none not to be."""
    workers = tuple(worker(number, known="unknown", summary="unknown", state=()) for number in range(2))
    sets = (nodeset(states={"unknown": 2}, desired=2, ready=2, replicas=2, mode=mode),)
    found = explain_job(pending(7, "Resources"), cluster(suspicion="half of it"), sets, workers, NOW)
    assert "NodeSet workers: the states of 2 workers are unknown." in found.waits_for
    assert not any("none is idle" in line for line in found.waits_for)
    assert not any("scale nodeset" in line for line in found.commands)
