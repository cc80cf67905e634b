"""The records of an autoscaled NodeSet, also when autoscaling is switched on or off."""

from __future__ import annotations

import dataclasses
import math

import pytest

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import actions, messages
from slurm_operator.controllers.nodeset.decide.actions import RemovalCause
from slurm_operator.controllers.nodeset.decide.name_conflicts import Neighbour
from slurm_operator.controllers.nodeset.decide.node_records import may_have_records
from slurm_operator.controllers.nodeset.decide.observation import ControllerState
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.objects.slurmd_names import Series
from tests.support.simulation.autoscaling import (
    CLOUD,
    DOWN,
    FINALIZER,
    RESUMING,
    SHAPE,
    SUSPENDING,
    UP,
    record,
    scaled,
    some,
)
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import observe, pod, reported
from tests.support.slurm.views import node, number


def test_records_are_created_in_one_request_for_names_without_a_pod() -> None:
    """A worker whose node Slurm lost keeps its name: its job may run on, and a record would look idle."""
    seen = scaled(pod(1), high=4, slurm=(record(0, *DOWN),))
    (made,) = some(seen, actions.CreateRecords)
    assert made.names == ("gpu-2", "gpu-3")
    assert made.line == "NodeName=gpu-[2-3] CPUs=2 Features=gpu RealMemory=1000 State=CLOUD"
    assert not some(scaled(high=4, record=None), actions.CreateRecords)


def test_switching_it_on_replaces_idle_workers_first_and_keeps_busy_ones() -> None:
    """Some at a time, by the usual drain; a busy one is deleted when its job has ended."""
    plain = (node("gpu-0", "MIXED", "DYNAMIC_NORM", alloc=1), node("gpu-1"))
    nodeset = make_nodeset(finalizers=FINALIZER, autoscaling={"maxReplicas": 2})
    seen = observe(pod(0), pod(1), slurm=plain, nodeset=nodeset, record=SHAPE)
    assert plan(seen).going == {"uid-1": RemovalCause.AUTOSCALING}
    assert [one.names for one in some(seen, actions.DrainNodes)] == [("gpu-1",)]
    assert not some(seen, actions.DeletePod)
    assert not some(seen, actions.CreateRecords)
    empty = observe(slurm=(record(0, "DOWN", "DYNAMIC_NORM"),), nodeset=nodeset, record=SHAPE)
    assert [one.name for one in some(empty, actions.DeleteRecord)] == ["gpu-0"]


def test_switching_it_off_deletes_the_records_before_workers_come_back() -> None:
    """Busy and administrators' records stay; without the condition nothing is ours to delete."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    nodeset = make_nodeset(replicas=1, finalizers=FINALIZER, status=said)
    lists = (record(0, *DOWN), record(1, *RESUMING, alloc=1), record(2, *DOWN, "DRAIN", reason="bad disk"))
    seen = observe(slurm=lists, nodeset=nodeset)
    assert [one.name for one in some(seen, actions.DeleteRecord)] == ["gpu-0"]
    assert not some(seen, actions.CreatePod)
    assert any(wait.reason is Reason.RECORD_PENDING for wait in plan(seen).waits)
    never = observe(slurm=lists, nodeset=make_nodeset(replicas=1, finalizers=FINALIZER))
    assert not some(never, actions.DeleteRecord)
    assert [one.name for one in some(never, actions.CreatePod)] == ["gpu-0"]


def test_after_switching_it_off_no_worker_comes_back_to_a_record_of_power_saving() -> None:
    """Not even while Slurm still shows the node as up: its slurmd would register with the old record.

    Then it would be replaced again, and so on as long as pods start faster than records are deleted.
    """
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    nodeset = make_nodeset(replicas=1, finalizers=FINALIZER, status=said)
    ours = record(0, *UP, "DRAIN", reason="slurm-operator: NodeSet (slurm/gpu) updates")
    for shown in (ours, record(0, *UP), record(0, "DOWN", *CLOUD)):
        seen = observe(slurm=(shown,), nodeset=nodeset)
        assert not some(seen, actions.CreatePod)
        assert any(wait.reason is Reason.RECORD_PENDING for wait in plan(seen).waits)
    for kept in (record(0, *UP, "DRAIN", reason="bad disk"), record(0, "FAIL", *CLOUD)):
        assert some(observe(slurm=(kept,), nodeset=nodeset), actions.CreatePod)


def test_a_record_is_not_deleted_while_its_slurmd_may_run() -> None:
    """The cache may lack a pod that runs: the record of a node that is up stays until it is down."""
    for high in (1, 2):
        seen = scaled(slurm=(record(0, *DOWN), record(1, *UP, real_memory=500)), high=high)
        assert not some(seen, actions.DeleteRecord)
    dead = scaled(slurm=(record(0, *DOWN), record(1, "DOWN", *CLOUD)), high=1)
    assert [one.name for one in some(dead, actions.DeleteRecord)] == ["gpu-1"]
    assert not some(scaled(slurm=(node("gpu-0"),), high=1), actions.DeleteRecord)


@pytest.mark.parametrize("state", [DOWN, UP])
def test_a_worker_on_a_node_that_an_administrator_drained_is_not_replaced(state: tuple[str, ...]) -> None:
    """Its record cannot be deleted, so a new pod would be of the wrong kind again, and so on without end."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    nodeset = make_nodeset(replicas=1, finalizers=FINALIZER, status=said)
    drained = record(0, *state, "DRAIN", reason="bad disk")
    assert not plan(observe(pod(0), slurm=(drained,), nodeset=nodeset)).going
    free = record(0, *state)
    assert plan(observe(pod(0), slurm=(free,), nodeset=nodeset)).going == {"uid-0": RemovalCause.AUTOSCALING}


def test_a_record_of_another_shape_is_replaced_while_it_is_powered_down() -> None:
    """Not while it is up, and not again if this process has just created it from the same options."""
    old = record(0, *DOWN, real_memory=500)
    seen = scaled(slurm=(old,), high=1)
    assert [one.name for one in some(seen, actions.DeleteRecord)] == ["gpu-0"]
    longer = record(0, *DOWN, suspend_time=number(600))
    assert [one.name for one in some(scaled(slurm=(longer,), high=1), actions.DeleteRecord)] == ["gpu-0"]
    assert not some(scaled(slurm=(old,), high=1, made={"gpu-0": SHAPE.options}), actions.DeleteRecord)
    assert not some(scaled(pod(0), slurm=(record(0, *UP, real_memory=500),), high=1), actions.DeleteRecord)


def test_a_lower_maximum_drains_what_is_above_it_and_deletes_its_record() -> None:
    """A busy worker above the maximum stays until its job has ended."""
    lists = (record(0, *DOWN), record(1, "MIXED", *CLOUD, alloc=1), record(2, *DOWN))
    seen = scaled(pod(1), high=1, slurm=lists)
    assert plan(seen).going == {"uid-1": RemovalCause.SCALE_IN}
    assert [one.names for one in some(seen, actions.DrainNodes)] == [("gpu-1",)]
    assert [one.name for one in some(seen, actions.DeleteRecord)] == ["gpu-2"]


def test_a_nodeset_that_is_deleted_waits_for_its_records() -> None:
    """Slurm would give jobs to nodes that no operator powers up; without Slurm it waits for nothing."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    nodeset = make_nodeset(finalizers=FINALIZER, status=said, autoscaling={"maxReplicas": 1}, deleting=True)
    seen = observe(slurm=(record(0, *DOWN),), nodeset=nodeset, record=SHAPE)
    assert [one.name for one in some(seen, actions.DeleteRecord)] == ["gpu-0"]
    assert not some(seen, actions.RemoveFinalizer)
    assert some(observe(nodeset=nodeset, record=SHAPE), actions.RemoveFinalizer)
    gone = observe(slurm=(record(0, *DOWN),), nodeset=nodeset, controller=ControllerState.GONE)
    assert some(gone, actions.RemoveFinalizer)


def test_a_nodeset_that_is_deleted_does_not_wait_for_a_record_that_is_never_deleted() -> None:
    """An administrator has marked it FAIL, or taken it down: its record alone remembers that."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    nodeset = make_nodeset(finalizers=FINALIZER, status=said, autoscaling={"maxReplicas": 1}, deleting=True)
    for kept in (
        record(0, "IDLE", *CLOUD, "FAIL"),
        record(0, *DOWN, "DRAIN", reason="bad disk"),
        record(0, "DOWN", *CLOUD, reason="bad disk"),
    ):
        seen = observe(slurm=(kept,), nodeset=nodeset, record=SHAPE)
        assert not some(seen, actions.DeleteRecord)
        assert some(seen, actions.RemoveFinalizer)


def test_a_node_that_an_administrator_took_down_is_not_replaced_by_one_that_is_idle() -> None:
    """Its record alone remembers that. Slurm turns the drain of a node that does not come up into DOWN."""
    for reason in ("bad disk", "bad disk : ResumeTimeout reached"):
        taken = record(0, "DOWN", *CLOUD, "POWERED_DOWN", reason=reason, real_memory=500)
        assert not some(scaled(slurm=(taken,), high=1), actions.DeleteRecord)
        plain = record(0, "DOWN", "DYNAMIC_NORM", reason=reason)
        assert not some(scaled(slurm=(plain,), high=1), actions.DeleteRecord)
        assert not plan(scaled(pod(0), slurm=(plain,), high=1)).going
    late = record(0, "DOWN", *CLOUD, "POWERED_DOWN", reason="ResumeTimeout reached", real_memory=500)
    assert some(scaled(slurm=(late,), high=1), actions.DeleteRecord)


def test_records_of_another_nodeset_are_left_alone() -> None:
    """gpu-10 may be number 10 of the prefix gpu-, or number 0 of gpu-1, whose nodes have the feature, too."""
    other = Neighbour("gpu-1", "uid-other", older=False, numbers=Series("gpu-1", 0, 3), fit=None)
    theirs = node("gpu-10", *DOWN, cpus=2, real_memory=1000, features=("gpu", "gpu-1"))
    seen = scaled(slurm=(record(0, *DOWN), theirs), high=1, neighbours=(other,))
    assert not some(seen, actions.DeleteRecord)
    assert some(dataclasses.replace(seen, neighbours=()), actions.DeleteRecord)
    mine = scaled(
        slurm=(record(0, *DOWN, real_memory=500),),
        high=1,
        neighbours=(dataclasses.replace(other, numbers=Series("gpu-", 0, 3)),),
    )
    assert some(mine, actions.DeleteRecord)


def test_after_switching_it_off_what_is_powered_down_does_not_wait_for_its_turn() -> None:
    """Its pod takes no work any more, and is in the way of a power-up; others are replaced one by one."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    one = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    nodeset = make_nodeset(replicas=4, finalizers=FINALIZER, status=said, updateStrategy=one)
    lists = (record(0, *UP), record(1, *UP), record(2, *SUSPENDING), record(3, *DOWN))
    seen = observe(pod(0), pod(1), pod(2), pod(3), slurm=lists, nodeset=nodeset)
    assert {*plan(seen).going} == {"uid-1", "uid-2", "uid-3"}
    assert [one.name for one in some(seen, actions.DeletePod)] == ["gpu-2", "gpu-3"]


def test_records_are_created_only_once_the_status_says_so() -> None:
    """What the status does not say, no later process would delete after autoscaling is switched off."""
    seen = scaled(high=1, slurm=(node("other-0"),), status={})
    assert not some(seen, actions.CreateRecords)
    assert plan(seen).requeue == pytest.approx(0.05)
    assert "Autoscaling" in {one.type for one in reported(seen).conditions}
    assert some(scaled(high=1, slurm=(node("other-0"),)), actions.CreateRecords)


def test_records_that_no_list_shows_so_far_are_not_forgotten() -> None:
    """Switched off or deleted a moment after records were created, it waits for a list that shows them."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    off = make_nodeset(replicas=1, finalizers=FINALIZER, status=said)
    deleted = make_nodeset(finalizers=FINALIZER, status=said, autoscaling={"maxReplicas": 1}, deleting=True)
    early = observe(slurm=(node("other-0"),), nodeset=off)
    assert early.view is not None
    at = early.view.listed_at
    assert at is not None
    for created, known in ((at - 1, True), (at, False), (at + 1, False), (math.inf, False)):
        seen = observe(slurm=(node("other-0"),), nodeset=off, records_created=created)
        assert bool(some(seen, actions.CreatePod)) == known
        assert any(one.reason is Reason.RECORD_PENDING for one in plan(seen).waits) != known
        assert (plan(seen).requeue is not None) != known, "that the list shows nothing new is no event"
        assert ("Autoscaling" in {one.type for one in reported(seen).conditions}) != known
        leaving = observe(slurm=(node("other-0"),), nodeset=deleted, records_created=created)
        assert bool(some(leaving, actions.RemoveFinalizer)) == known


def test_no_worker_comes_back_before_slurm_has_listed_its_records() -> None:
    """After a restart no record is known at first, and a slurmd would register with an old one."""
    said = {"conditions": [{"type": "Autoscaling", "status": "False", "reason": "Leaving"}]}
    off = make_nodeset(replicas=1, finalizers=FINALIZER, status=said)
    seen = dataclasses.replace(observe(nodeset=off), view=None)
    assert not some(seen, actions.CreatePod)
    (wait,) = (one for one in plan(seen).waits if one.reason is Reason.RECORD_PENDING)
    assert wait.message != messages.records_first(1), "no record is known, so none is being deleted"


def test_records_are_created_for_the_nodeset_that_was_planned_for() -> None:
    """Not for one that was changed, replaced or deleted since, or whose status does not say so."""
    said = {"conditions": [{"type": "Autoscaling", "status": "True", "reason": "Active"}]}
    now = make_nodeset(autoscaling={"maxReplicas": 1}, status=said)
    uid, generation = now.metadata.uid, now.metadata.generation
    assert may_have_records(now, uid, generation)
    assert not may_have_records(now, uid, generation - 1)
    assert not may_have_records(now, "another", generation)
    assert not may_have_records(make_nodeset(autoscaling={"maxReplicas": 1}), uid, generation)
    leaving = make_nodeset(autoscaling={"maxReplicas": 1}, status=said, deleting=True)
    assert not may_have_records(leaving, leaving.metadata.uid, leaving.metadata.generation)
