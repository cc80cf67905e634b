from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import actions, autoscale
from slurm_operator.controllers.nodeset.decide.actions import Allow, Defer, RemovalCause
from slurm_operator.controllers.nodeset.decide.autoscale import Power
from slurm_operator.controllers.nodeset.decide.deletion import confirm, may_delete
from slurm_operator.controllers.nodeset.decide.observation import FailedResume
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.slurm.decide.node_changes import Drain, ResumeCloud, SetState, decide
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.model.view import Known
from tests.support.simulation.autoscaling import (
    CLOUD,
    DOWN,
    FINALIZER,
    RESUMING,
    SUSPENDING,
    UP,
    record,
    scaled,
    some,
)
from tests.support.simulation.kubernetes import SimPod, make_nodeset, moment
from tests.support.simulation.observations import observe, pod, slurm_state, worker
from tests.support.slurm.views import NOW, job, jobs, node, number, view


@pytest.mark.parametrize(
    ("state", "power"),
    [
        (("IDLE", "DYNAMIC_NORM"), Power.PLAIN),
        (("IDLE", "CLOUD", "POWERED_DOWN"), Power.PLAIN),
        (DOWN, Power.DOWN),
        (("DOWN", *CLOUD, "POWERED_DOWN"), Power.DOWN),
        (("ALLOCATED", *CLOUD, "POWERED_DOWN"), Power.POWERING_UP),
        (("IDLE", *CLOUD, "POWERED_DOWN", "POWER_UP"), Power.POWERING_UP),
        (RESUMING, Power.POWERING_UP),
        (SUSPENDING, Power.POWERING_DOWN),
        (("IDLE", *CLOUD, "POWERING_DOWN", "POWER_UP"), Power.POWERING_DOWN),
        (("MIXED", *CLOUD, "POWER_DOWN"), Power.UP),
        (UP, Power.UP),
    ],
)
def test_the_words_of_slurm_say_what_power_saving_makes_of_a_node(
    state: tuple[str, ...], power: Power
) -> None:
    """A node that waits to be powered down still runs its job; one that is allocated is about to come up."""
    assert autoscale.power_of(node("gpu-0", *state)) is power


def test_pods_are_created_for_nodes_that_power_up_and_for_no_others() -> None:
    """The node of a job gets its pod; one that is powered down gets none, whatever replicas says."""
    seen = scaled(slurm=(record(0, *DOWN), record(1, *RESUMING, alloc=2)))
    assert [one.name for one in some(seen, actions.CreatePod)] == ["gpu-1"]
    assert plan(seen).desired == 1
    assert any(note.reason == "Resuming" for note in plan(seen).notes)


@pytest.mark.parametrize(
    "fields",
    [
        {"view": None},
        {"view": view(record(0, *RESUMING), record(1, *DOWN), listed_at=NOW - 60)},
        {"view": view(record(0, *RESUMING), record(1, *DOWN), suspicion="half is gone")},
        {"since": NOW},
        {"written": {"gpu-0": NOW, "gpu-1": NOW}},
    ],
)
def test_an_unknown_power_state_neither_creates_nor_deletes(fields: dict[str, Any]) -> None:
    """Without a list that counts, no pod is created, none is deleted, and nothing is written to Slurm."""
    shown: dict[str, Any] = (
        {"slurm": (record(0, *RESUMING), record(1, *DOWN))} if "view" not in fields else {}
    )
    seen = scaled(pod(1), low=2, **shown, **fields)
    kinds = {type(one) for one in plan(seen).actions} - {actions.PatchPodStatus, actions.PatchPod}
    assert not kinds
    assert not plan(seen).going


@pytest.mark.parametrize("state", [SUSPENDING, DOWN, ("DOWN", *CLOUD, "POWERED_DOWN")])
def test_the_pod_of_a_node_that_slurm_powers_down_goes_without_a_drain(state: tuple[str, ...]) -> None:
    """It needs the same fresh lists as any deletion, the unchanged pod, and no write to Slurm."""
    seen = scaled(pod(0), slurm=(record(0, *state), record(1, *DOWN)))
    (gone,) = some(seen, actions.DeletePod)
    assert (gone.cause, gone.proof, gone.version) == (RemovalCause.POWERED_DOWN, actions.Proof.LIST, "1")
    assert not some(seen, actions.DrainNodes)
    assert [note.reason for note in plan(seen).notes] == ["PoweringDown"]
    assert confirm(seen, (gone,)) == (gone,)
    later = scaled(pod(0), slurm=(record(0, *UP), record(1, *DOWN)))
    assert confirm(later, (gone,)) == ()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"slurm": (record(0, "MIXED", *CLOUD, "POWERING_DOWN", alloc=1),)}, Reason.JOBS_RUNNING),
        ({"slurm": (record(0, "IDLE", *CLOUD, "POWERING_DOWN", "COMPLETING"),)}, Reason.JOBS_COMPLETING),
        ({"slurm": (record(0, *SUSPENDING, alloc=None),)}, Reason.STATE_UNKNOWN),
        ({"slurm": (record(0, *SUSPENDING, "NEW_WORD"),)}, Reason.STATE_UNKNOWN),
        ({"view": view(record(0, *SUSPENDING), jobs=jobs(job(7, "gpu-0")))}, Reason.JOBS_RUNNING),
        ({"view": view(record(0, *SUSPENDING), jobs_listed_at=None)}, Reason.JOBS_UNKNOWN),
        ({"view": view(record(0, *SUSPENDING), owed=frozenset({"gpu-0"}))}, Reason.JOBS_UNKNOWN),
        ({"view": view(record(0, *SUSPENDING), jobs=jobs(job(7, "gpu-[")))}, Reason.JOBS_UNKNOWN),
    ],
)
def test_the_pod_of_a_node_that_powers_down_stays_while_work_may_be_on_it(
    fields: dict[str, Any], reason: Reason
) -> None:
    """A word that is unknown, a job in either list, or no list of jobs since: the pod stays, undrained."""
    seen = scaled(pod(0), high=1, **fields)
    assert not some(seen, actions.DeletePod)
    assert not some(seen, actions.DrainNodes)
    assert [one.wait.reason for one in plan(seen).blocked] == [reason]


def test_only_dynamic_cloud_nodes_count_as_powered_down() -> None:
    """What an administrator powers down outside of this is no evidence."""
    for state in (("IDLE", "CLOUD", "POWERED_DOWN"), ("IDLE", "DYNAMIC_NORM", "POWERED_DOWN")):
        decision = may_delete(worker(), slurm_state(node("gpu-0", *state)), moment(NOW))
        assert isinstance(decision, Defer)
    assert isinstance(may_delete(worker(), slurm_state(node("gpu-0", *DOWN)), moment(NOW)), Allow)


def test_a_node_that_powers_up_is_never_drained() -> None:
    """Its worker waits to go until the node is up: a drain would requeue the job."""
    seen = scaled(pod(2), slurm=(record(0, *DOWN), record(1, *DOWN), record(2, *RESUMING, alloc=2)))
    assert plan(seen).going == {"uid-2": RemovalCause.SCALE_IN}
    assert not some(seen, actions.DrainNodes)
    cordoned = scaled(
        pod(0, annotations={wellknown.ANNOTATION_POD_CORDON: "true"}),
        high=1,
        slurm=(record(0, *RESUMING, alloc=2),),
    )
    assert not some(cordoned, actions.DrainNodes)
    assert [one.wait.reason for one in plan(cordoned).blocked] == [Reason.POWERING_UP]


def test_at_rest_nothing_is_planned() -> None:
    """Powered-down records without pods, and workers that are up with theirs, need nothing."""
    assert plan(scaled(slurm=(record(0, *DOWN), record(1, *DOWN)))).actions == ()
    assert not some(scaled(pod(0), slurm=(record(0, *UP), record(1, *DOWN))), actions.CreatePod)


def test_as_many_nodes_as_are_kept_are_powered_up() -> None:
    """Those of the lowest numbers that are free; what is unknown may be up already."""
    lists = (record(0, *DOWN, reason="x"), record(1, *DOWN, "DRAIN"), record(2, *DOWN), record(3, *UP))
    seen = scaled(pod(3), low=3, high=4, slurm=lists)
    assert [one.names for one in some(seen, actions.PowerUpNodes)] == [("gpu-0", "gpu-2")]
    written = dataclasses.replace(seen, written={"gpu-0": NOW, "gpu-2": NOW})
    assert not some(written, actions.PowerUpNodes)


def test_a_node_that_did_not_come_up_in_time_is_resumed_after_a_growing_pause() -> None:
    """Not while its pod is still there, and not for a reason that an administrator gave."""
    late = record(
        0, "DOWN", *CLOUD, "POWERED_DOWN", reason="ResumeTimeout reached", reason_changed_at=number(9)
    )
    assert [one.names for one in some(scaled(slurm=(late,), high=1), actions.ResumeCloudNodes)] == [
        ("gpu-0",)
    ]
    assert not some(scaled(pod(0), slurm=(late,), high=1), actions.ResumeCloudNodes)
    failed = {"gpu-0": FailedResume(5, NOW - 10, 9.0)}
    paused = scaled(slurm=(late,), high=1, resumes=failed)
    assert not some(paused, actions.ResumeCloudNodes)
    assert plan(paused).requeue == 6.0
    again = scaled(slurm=(late,), high=1, resumes={"gpu-0": FailedResume(1, NOW - 10, 9.0)})
    assert [note.reason for note in plan(again).notes] == ["ResumeFailed"]
    foreign = record(0, "DOWN", *CLOUD, "POWERED_DOWN", reason="bad disk")
    assert not some(scaled(slurm=(foreign,), high=1), actions.ResumeCloudNodes)


def test_failures_are_counted_until_the_node_is_up() -> None:
    """One that is listed again is counted once; a node that came up starts from zero."""
    late = record(
        0, "DOWN", *CLOUD, "POWERED_DOWN", reason="ResumeTimeout reached", reason_changed_at=number(9)
    )
    once = autoscale.failed_resumes({}, view(late), ["gpu-0"], 1.0)
    assert autoscale.failed_resumes(once, view(late), ["gpu-0"], 2.0) == once
    later = record(0, *late.state, reason=late.reason, reason_changed_at=number(50))
    assert autoscale.failed_resumes(once, view(later), ["gpu-0"], 3.0)["gpu-0"] == FailedResume(2, 3.0, 50.0)
    assert autoscale.failed_resumes(once, view(record(0, *UP)), ["gpu-0"], 3.0) == {}


def test_a_worker_whose_slurmd_was_not_waited_for_is_resumed_when_it_is_ready() -> None:
    """Slurm takes down a node that registers late, or again; an administrator's reason stays."""
    for reason in ("", "Node unexpectedly rebooted", "ResumeTimeout reached"):
        seen = scaled(pod(0), slurm=(record(0, "DOWN", *CLOUD, reason=reason),), high=1)
        assert [one.names for one in some(seen, actions.ResumeCloudNodes)] == [("gpu-0",)]
        unready = scaled(pod(0, ready_since=None), slurm=(record(0, "DOWN", *CLOUD, reason=reason),), high=1)
        assert not some(unready, actions.ResumeCloudNodes)
    assert not some(
        scaled(pod(0), slurm=(record(0, "DOWN", *CLOUD, reason="bad disk"),), high=1),
        actions.ResumeCloudNodes,
    )


def test_a_drain_of_ours_on_a_node_without_a_pod_is_taken_back() -> None:
    """The worker for which it was drained is gone; the drain of an administrator stays."""
    ours = record(0, *DOWN, "DRAIN", reason="slurm-operator: NodeSet (slurm/gpu) updates")
    assert [one.names for one in some(scaled(slurm=(ours,), high=1), actions.UndrainNodes)] == [("gpu-0",)]
    foreign = record(0, *DOWN, "DRAIN", reason="bad disk")
    assert plan(scaled(slurm=(foreign,), high=1)).actions == ()


@pytest.mark.parametrize("fields", [{"lacks": "too old"}, {"external": True}])
def test_what_cannot_be_autoscaled_stays_as_it_is_and_says_why(fields: dict[str, Any]) -> None:
    """Slurm 24.11 creates no records, and an external slurmctld is configured elsewhere."""
    seen = scaled(pod(0), pod(4), slurm=(node("gpu-0"), node("gpu-4")), **fields)
    decided = plan(seen)
    assert not decided.going
    assert not some(seen, actions.CreateRecords)
    assert [wait.reason for wait in decided.waits] == [Reason.AUTOSCALING_UNSUPPORTED]
    said = {one.type: one for one in report(seen, decided).conditions}
    assert (said["Degraded"].status, said["Degraded"].reason) == ("True", "AutoscalingUnsupported")
    assert said["Autoscaling"].status == "False"


def test_the_condition_counts_the_power_states() -> None:
    """Once per state; while Slurm cannot be queried it stays as it was."""
    seen = scaled(
        pod(1), high=4, slurm=(record(0, *DOWN), record(1, *UP), record(2, *RESUMING), record(3, *DOWN))
    )
    said = {one.type: one for one in report(seen, plan(seen)).conditions}
    assert (said["Autoscaling"].reason, said["Autoscaling"].status) == ("Resuming", "True")
    assert said["Autoscaling"].message == "2 powered down, 1 powering up, 1 up"
    blind = dataclasses.replace(seen, view=None)
    assert "Autoscaling" in {one.type for one in report(blind, plan(blind)).conditions}
    new = dataclasses.replace(scaled(high=4, status={}), view=None)
    assert "Autoscaling" not in {one.type for one in report(new, plan(new)).conditions}


def test_what_is_sent_is_decided_on_the_newest_list() -> None:
    """A power-up goes only to a node that is powered down, a resume only to one that Slurm took down."""
    prefix = wellknown.REASON_PREFIX
    assert decide(SetState("POWER_UP"), Known(record(0, *DOWN), NOW), prefix) == NodeUpdate(
        state=("POWER_UP",)
    )
    assert not isinstance(decide(SetState("POWER_UP"), Known(record(0, *UP), NOW), prefix), NodeUpdate)
    late = record(0, "DOWN", *CLOUD, reason="ResumeTimeout reached")
    assert decide(ResumeCloud(), Known(late, NOW), prefix) == NodeUpdate(state=("RESUME",))
    for other in (
        record(0, *UP),
        record(0, "DOWN", "DYNAMIC_NORM"),
        record(0, "DOWN", *CLOUD, reason="bad disk"),
    ):
        assert not isinstance(decide(ResumeCloud(), Known(other, NOW), prefix), NodeUpdate)


def test_the_cordon_of_a_user_keeps_its_pod_when_slurm_powers_the_node_down() -> None:
    """Slurm also powers down drained nodes; without the pod the drain would be taken back as one of ours."""
    drained = record(0, *DOWN, "DRAIN", reason="slurm-operator: a user cordoned the pod")
    mine = pod(0, annotations={wellknown.ANNOTATION_POD_CORDON: "true"})
    seen = scaled(mine, high=1, slurm=(drained,))
    assert not plan(seen).going
    assert not some(seen, actions.DeletePod)
    assert not some(seen, actions.UndrainNodes)
    by_operator = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "NodeCordon"}
    assert some(scaled(pod(0, annotations=by_operator), high=1, slurm=(drained,)), actions.DeletePod)


def test_a_node_whose_pod_is_still_there_is_not_powered_up() -> None:
    """Slurm waits for a slurmd that was started after the power-up: the old pod would only be in the way."""
    for left in (pod(0), pod(0, deleting=True)):
        assert not some(scaled(left, low=1, high=1, slurm=(record(0, *DOWN),)), actions.PowerUpNodes)
    other = scaled(pod(0), low=1, slurm=(record(0, *DOWN), record(1, *DOWN)))
    assert [one.names for one in some(other, actions.PowerUpNodes)] == [("gpu-1",)]


def test_a_node_that_was_just_given_to_a_job_is_not_drained() -> None:
    """It is powered down for some seconds still; the power-up follows, and a drain would requeue the job."""
    given = record(0, "MIXED", *CLOUD, "POWERED_DOWN", alloc=2)
    cordon = {wellknown.ANNOTATION_POD_CORDON: "true"}
    assert not some(scaled(pod(0, annotations=cordon), high=1, slurm=(given,)), actions.DrainNodes)
    assert not isinstance(decide(Drain("x"), Known(given, NOW), wellknown.REASON_PREFIX), NodeUpdate)


def test_a_node_that_is_up_is_drained_although_a_power_up_was_asked_for() -> None:
    """Slurm keeps the flag of a request that came while the node powered up already, as long as it is up."""
    up = record(0, "IDLE", *CLOUD, "POWER_UP")
    cordon = {wellknown.ANNOTATION_POD_CORDON: "true"}
    assert some(scaled(pod(0, annotations=cordon), high=1, slurm=(up,)), actions.DrainNodes)
    assert isinstance(decide(Drain("x"), Known(up, NOW), wellknown.REASON_PREFIX), NodeUpdate)
    drained = record(0, "IDLE", *CLOUD, "POWER_UP", "DRAIN", reason=f"{wellknown.REASON_PREFIX}x")
    leaving = scaled(pod(0), high=0, slurm=(drained,))
    assert some(leaving, actions.DeletePod)
    for off in ("POWERED_DOWN", "POWERING_DOWN", "NOT_RESPONDING"):
        asked = record(0, "IDLE", *CLOUD, off, "POWER_UP")
        assert not isinstance(decide(Drain("x"), Known(asked, NOW), wellknown.REASON_PREFIX), NodeUpdate)


def waiting(number: int, /, **fields: Any) -> SimPod:
    """Return a pod that waits for a Kubernetes node."""
    return pod(number, node="", phase="Pending", started=False, ready_since=None, **fields)


def test_the_pod_for_which_a_job_waits_is_kept_until_its_node_is_up() -> None:
    """Whatever no longer wants it: without it Slurm gives up, and a job that is not requeued fails."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    off = make_nodeset(replicas=0, finalizers=FINALIZER, status=said)
    wrong_kind = make_nodeset(replicas=2, finalizers=FINALIZER, status=said)
    leaving = make_nodeset(finalizers=FINALIZER, status=said, autoscaling={"maxReplicas": 2}, deleting=True)
    for state in (RESUMING, ("MIXED", *CLOUD, "POWERED_DOWN")):
        slurm = (record(0, *DOWN), record(1, *state, alloc=2))
        for seen in (
            scaled(waiting(1), high=1, slurm=slurm),
            *(observe(waiting(1), slurm=slurm, nodeset=one) for one in (off, wrong_kind, leaving)),
        ):
            assert not some(seen, actions.DeletePod)
            assert not some(seen, actions.DrainNodes)
            assert [one.wait.reason for one in plan(seen).blocked] == [Reason.POWERING_UP]
    blind = scaled(waiting(1), high=1, view=None)
    assert not some(blind, actions.DeletePod)
    late = (record(0, *DOWN), record(1, "DOWN", *CLOUD, "POWERED_DOWN", reason="ResumeTimeout reached"))
    assert some(scaled(waiting(1), high=1, slurm=late), actions.DeletePod)
    replaced = scaled(waiting(1, revision="r0"), slurm=(record(0, *DOWN), record(1, *RESUMING, alloc=2)))
    assert some(replaced, actions.DeletePod)
