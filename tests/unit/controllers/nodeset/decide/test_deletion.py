from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import observation
from slurm_operator.controllers.nodeset.decide.actions import (
    Allow,
    Decision,
    Defer,
    DeletePod,
    Proof,
)
from slurm_operator.controllers.nodeset.decide.deletion import (
    confirm,
    may_delete,
    may_reregister,
    may_undrain,
)
from slurm_operator.controllers.nodeset.decide.observation import NodeAnswer
from slurm_operator.controllers.nodeset.decide.plan import UNCONFIRMED_SECONDS, plan
from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
from slurm_operator.kube.models.kinds import Node
from slurm_operator.slurm.decide.node_list_trust import Evidence
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model.view import ClusterView
from tests.support.simulation.kubernetes import make_nodeset, moment
from tests.support.simulation.observations import observe, pod, shown, slurm_state, worker
from tests.support.slurm.views import NOW, drained_node, job, jobs, node, view

LONG_GONE = {"others": Evidence(5, 0.0)}


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (None, Reason.NO_CONNECTION),
        (ClusterView(), Reason.NO_VIEW),
        (ClusterView(failure=RestUnreachable("refused")), Reason.SLURM_UNREACHABLE),
        (view(drained_node("gpu-0"), listed_at=NOW - 60), Reason.VIEW_STALE),
        (view(drained_node("gpu-0"), suspicion="half is gone"), Reason.LIST_SUSPICIOUS),
        (view(drained_node("gpu-0"), jobs_listed_at=None), Reason.JOBS_UNKNOWN),
        (view(drained_node("gpu-0"), jobs=jobs(job(7, "gpu-0"))), Reason.JOBS_RUNNING),
        (view(node("gpu-0", "MIXED", "DRAIN", alloc=1)), Reason.JOBS_RUNNING),
        (view(node("gpu-0", "IDLE", "DRAIN", "COMPLETING")), Reason.JOBS_COMPLETING),
        (view(node("gpu-0")), Reason.DRAIN_PENDING),
        (view(node("gpu-0", "IDLE", "FAIL")), Reason.NODE_FAILING),
        (view(complete=False), Reason.NODE_MISSING),
        (view(complete=False, just_started=True), Reason.CONTROLLER_JUST_STARTED),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"phase": "Pending", "started": False}, {"phase": "Failed"}])
def test_no_pod_on_a_node_goes_unless_slurm_says_that_it_is_free(
    seen: ClusterView | None, reason: Reason, fields: dict[str, Any]
) -> None:
    """Whatever keeps Slurm from saying that a node is drained keeps its pod, and says so."""
    decision = may_delete(worker(**fields), SlurmState(observe(view=seen)), moment(NOW))
    assert isinstance(decision, Defer)
    assert decision.reason is reason


def test_a_drained_node_lets_its_pod_go() -> None:
    """DRAIN, idle, and no job in either list."""
    assert isinstance(may_delete(worker(), slurm_state(drained_node("gpu-0")), moment(NOW)), Allow)


def test_a_pod_that_was_never_scheduled_goes_without_slurm_but_only_unchanged() -> None:
    """Nothing ran where nothing was; the API server checks that this is still so."""
    unscheduled = worker(node="", phase="Pending", started=False)
    decision = may_delete(unscheduled, SlurmState(observe(view=None)), moment(NOW))
    assert isinstance(decision, Allow)
    assert decision.unchanged


@pytest.mark.parametrize("fields", [{"phase": "Pending", "started": False}, {"phase": "Failed"}])
def test_a_pod_without_work_goes_when_slurm_does_not_have_its_node(fields: dict[str, Any]) -> None:
    """A pod that never started, or has ended, needs no drain if there is no node to drain."""
    assert isinstance(may_delete(worker(**fields), slurm_state(**LONG_GONE), moment(NOW)), Allow)


def test_a_running_pod_that_slurm_never_had_goes_after_a_while() -> None:
    """A slurmd that has not registered for minutes has no jobs."""
    assert isinstance(may_delete(worker(), slurm_state(**LONG_GONE), moment(NOW)), Allow)
    young = may_delete(worker(ready_since=NOW - 10), slurm_state(**LONG_GONE), moment(NOW))
    assert isinstance(young, Defer)
    assert young.reason is Reason.NODE_ABSENT


def test_lists_alone_do_not_prove_that_a_running_pod_has_no_node() -> None:
    """A drained node needs fresh lists, an absent one also Slurm's word about this very node."""
    drained = may_delete(worker(), slurm_state(drained_node("gpu-0")), moment(NOW))
    absent = may_delete(worker(), slurm_state(**LONG_GONE), moment(NOW))
    assert isinstance(drained, Allow)
    assert isinstance(absent, Allow)
    assert (drained.proof, absent.proof) == (Proof.LIST, Proof.NAME)


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({}, 0),
        ({"gpu-0": NodeAnswer(NOW - 1, exists=True)}, 0),
        ({"gpu-0": NodeAnswer(NOW - 31, exists=False)}, 0),
        ({"gpu-1": NodeAnswer(NOW - 1, exists=False)}, 0),
        ({"gpu-0": NodeAnswer(NOW - 1, exists=False)}, 1),
    ],
)
def test_a_pod_whose_node_is_absent_goes_only_when_slurm_denies_the_node_by_name(
    asked: dict[str, NodeAnswer], sent: int
) -> None:
    """Not asked, asked too long ago, asked for another one, and there after all: the pod stays."""
    nodeset = make_nodeset(replicas=0, finalizers=(wellknown.FINALIZER_DRAIN,))
    gone = view(**LONG_GONE)
    unasked = observe(pod(0), view=gone, nodeset=nodeset)
    decided = plan(unasked)
    (deletion,) = (one for one in decided.actions if isinstance(one, DeletePod))
    assert deletion.proof is Proof.NAME
    assert decided.requeue == UNCONFIRMED_SECONDS
    seen = observe(pod(0), view=gone, nodeset=nodeset, asked=asked)
    assert len(confirm(seen, (deletion,))) == sent


def test_a_node_that_is_there_by_name_holds_its_pod_and_says_so() -> None:
    """That list and name disagree is told, and not asked about again at once."""
    seen = SlurmState(observe(view=view(**LONG_GONE), asked={"gpu-0": NodeAnswer(NOW - 5, exists=True)}))
    decision = may_delete(worker(), seen, moment(NOW))
    assert isinstance(decision, Defer)
    assert decision.reason is Reason.LIST_SUSPICIOUS


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"jobs": jobs(job(7, "gpu-0"))}, Reason.JOBS_RUNNING),
        ({"jobs": jobs(job(7, "gpu-[")), "jobs_listed_at": NOW - 1}, Reason.JOBS_UNKNOWN),
        ({"jobs_listed_at": None}, Reason.JOBS_UNKNOWN),
        ({"jobs_listed_at": NOW - 500}, Reason.JOBS_UNKNOWN),
    ],
)
def test_jobs_keep_a_pod_whose_node_is_not_listed(fields: dict[str, Any], reason: Reason) -> None:
    """A list of jobs that names the node, cannot be read, or is not there, speaks for the pod."""
    decision = may_delete(worker(), slurm_state(**LONG_GONE, **fields), moment(NOW))
    assert isinstance(decision, Defer)
    assert decision.reason is reason


def test_absence_is_measured_by_a_clock_that_nobody_sets() -> None:
    """Lists of a short time do not make a node long gone, however old the pod looks."""
    lately = slurm_state(others=Evidence(50, NOW - 100))
    decision = may_delete(worker(), lately, moment(NOW + 100_000))
    assert isinstance(decision, Defer)
    assert decision.reason is Reason.NODE_ABSENT


@pytest.mark.parametrize("deadline", [None, observation.NO_DEADLINE, "soon", "2026-01-01T00:16:41Z"])
@pytest.mark.parametrize("rule", ["delete", "reregister"])
def test_a_pod_that_slurm_lost_with_jobs_stays(deadline: str | None, rule: str) -> None:
    """A deadline that is missing, infinite, unreadable or yet to come keeps a busy pod that Slurm forgot."""
    annotations = {} if deadline is None else {wellknown.ANNOTATION_POD_DEADLINE: deadline}
    lost = worker(conditions=shown("Mixed"), annotations=annotations)
    seen = slurm_state(**LONG_GONE)
    if rule == "delete":
        decision = may_delete(lost, seen, moment(NOW))
    else:
        decision = may_reregister(lost, seen, moment(NOW), 0)
    assert isinstance(decision, Defer)
    assert decision.reason is Reason.LOST_WHILE_BUSY


def test_a_pod_that_slurm_lost_goes_when_its_jobs_must_be_over() -> None:
    """After the latest end of its jobs a forgotten pod is like any other."""
    past = {wellknown.ANNOTATION_POD_DEADLINE: "2026-01-01T00:16:39Z"}
    lost = worker(conditions=shown("Mixed"), annotations=past)
    assert isinstance(may_delete(lost, slurm_state(**LONG_GONE), moment(NOW)), Allow)


def test_what_this_process_last_saw_busy_stays() -> None:
    """A node that vanished while busy keeps its pod even if that was not yet written on the pod."""
    absent = {"gpu-0": Evidence(9, 0.0, node("gpu-0", "MIXED", alloc=1))}
    decision = may_delete(worker(), slurm_state(absent=absent), moment(NOW))
    assert isinstance(decision, Defer)
    assert decision.reason is Reason.LOST_WHILE_BUSY


def test_only_a_drain_of_the_operator_is_taken_back() -> None:
    """A drain without our prefix is somebody's, and stays."""
    ours = node("gpu-0", "IDLE", "DRAIN", reason="slurm-operator: NodeSet (slurm/gpu) scales in")
    theirs = node("gpu-0", "IDLE", "DRAIN", reason="bad disk")
    assert isinstance(may_undrain(worker(), slurm_state(ours)), Allow)
    blocked = may_undrain(worker(), slurm_state(theirs))
    assert isinstance(blocked, Defer)
    assert blocked.reason is Reason.FOREIGN_DRAIN


def test_a_node_takes_work_again_only_when_its_pod_is_ready() -> None:
    """An undrained node without a slurmd would get jobs that fail."""
    ours = node("gpu-0", "IDLE", "DRAIN", reason="slurm-operator: NodeSet (slurm/gpu) updates")
    blocked = may_undrain(worker(ready_since=None), slurm_state(ours))
    assert isinstance(blocked, Defer)
    assert blocked.reason is Reason.NOT_READY


def test_a_healthy_pod_is_not_replaced_before_it_is_available() -> None:
    """minReadySeconds count for registration, too."""
    known = worker(conditions=shown("Idle"))
    assert isinstance(may_reregister(known, slurm_state(**LONG_GONE), moment(NOW), 60), Allow)
    assert isinstance(may_reregister(known, slurm_state(**LONG_GONE), moment(NOW), 100_000), Defer)


def test_protection_says_nothing_about_what_ran() -> None:
    """When slurmctld has lost its state, idle workers register again although they are protected."""
    idle = worker(conditions=shown("Idle"))
    assert idle.protected
    assert isinstance(may_reregister(idle, slurm_state(**LONG_GONE), moment(NOW), 0), Allow)
    assert isinstance(may_delete(idle, slurm_state(**LONG_GONE), moment(NOW)), Allow)


def test_a_worker_that_slurm_never_listed_is_not_replaced_for_being_absent() -> None:
    """That a node is absent proves nothing about a worker whose node was never seen."""
    blocked = may_reregister(worker(), slurm_state(**LONG_GONE), moment(NOW), 0)
    assert isinstance(blocked, Defer)
    assert blocked.reason is Reason.NEVER_REGISTERED


def test_a_worker_whose_name_was_guessed_is_not_deleted_for_being_absent() -> None:
    """Whoever asks: Slurm may have its node, and its jobs, under another name."""
    guessed = may_delete(worker(stated=False), slurm_state(**LONG_GONE), moment(NOW))
    assert isinstance(guessed, Defer)
    assert guessed.reason is Reason.NEVER_REGISTERED
    assert isinstance(may_delete(worker(), slurm_state(**LONG_GONE), moment(NOW)), Allow)
    left_over = worker(stated=False, conditions=shown("Down", "NotResponding"))
    assert isinstance(may_delete(left_over, slurm_state(**LONG_GONE), moment(NOW)), Defer)
    last = {"gpu-0": Evidence(9, 0.0, node("gpu-0", "DOWN", "NOT_RESPONDING"))}
    assert isinstance(may_delete(worker(stated=False), slurm_state(absent=last), moment(NOW)), Defer)
    seen_once = worker(stated=False, conditions=shown("Idle"))
    assert isinstance(may_delete(seen_once, slurm_state(**LONG_GONE), moment(NOW)), Allow)


def test_a_node_takes_work_again_only_when_its_pod_is_protected() -> None:
    """First the API server confirms the label, then the drain is taken back."""
    ours = node("gpu-0", "IDLE", "DRAIN", reason="slurm-operator: NodeSet (slurm/gpu) scales in")
    blocked = may_undrain(worker(protected=False), slurm_state(ours))
    assert isinstance(blocked, Defer)
    assert blocked.reason is Reason.NOT_READY
    off = observe(slurm=(ours,), nodeset=make_nodeset(workloadDisruptionProtection=False))
    assert isinstance(may_undrain(worker(protected=False), SlurmState(off)), Allow)


def test_a_worker_on_a_node_that_is_out_of_service_goes_at_once() -> None:
    """Not while that node is ready: then somebody is wrong, and its jobs may run."""
    taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]

    def decide(ready: str) -> Decision:
        body = {
            "metadata": {"name": "node-0"},
            "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }
        nodes = {"node-0": msgspec.convert(body, Node)}
        return may_delete(worker(), SlurmState(observe(view=None, nodes=nodes)), moment(NOW))

    assert isinstance(decide("True"), Defer)
    for lost in ("Unknown", "False"):
        allowed = decide(lost)
        assert isinstance(allowed, Allow)
        assert allowed.proof is Proof.NONE


def test_sentences_do_not_change_by_themselves() -> None:
    """A worker that stays blocked has the same message a minute later: nothing is written as time passes."""
    old = view(drained_node("gpu-0"), listed_at=NOW - 60)
    first, second = (
        may_delete(worker(), SlurmState(observe(view=old, now=now)), moment(now)) for now in (NOW, NOW + 60)
    )
    assert first == second


def test_a_view_from_before_the_last_write_does_not_count() -> None:
    """Neither what was asked before our own write, nor before this process led."""
    for fields in ({"written": {"gpu-0": NOW - 0.5}}, {"since": NOW - 0.5}):
        seen = SlurmState(observe(view=view(drained_node("gpu-0")), **fields))
        decision = may_delete(worker(), seen, moment(NOW))
        assert isinstance(decision, Defer)
        assert decision.reason is Reason.DRAIN_PENDING
    assert math.isinf(observe().since)


@pytest.mark.parametrize("slurm", [view(drained_node("gpu-0")), view(**LONG_GONE)], ids=["drained", "absent"])
def test_no_cluster_decides_about_a_worker_of_another_one(slurm: ClusterView) -> None:
    """What a Controller says of a name is no ground to delete a pod that has joined another cluster."""
    leaving = make_nodeset(replicas=0, finalizers=(wellknown.FINALIZER_DRAIN,))
    for controller, goes in (("slurm", True), ("former", False)):
        there = pod(0, labels={wellknown.LABEL_CLUSTER: controller})
        decided = plan(observe(there, nodeset=leaving, view=slurm))
        assert any(isinstance(one, DeletePod) for one in decided.actions) is goes
        assert [one.wait.reason for one in decided.blocked] == ([] if goes else [Reason.NO_CONNECTION])
