"""Histories that would have gone wrong with a slightly different plan: each one is why a rule exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from tests.support.simulation import world_events, world_faults
from tests.support.simulation.history_steps import busy, recover

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from tests.support.simulation.world import World


def reasons(decided: Plan) -> set[Reason]:
    return {one.wait.reason for one in decided.blocked}


# --- the four disasters


def test_a_restart_while_slurm_is_away_and_then_a_scale_in_kills_nothing(world: World) -> None:
    """An operator that has never seen Slurm deletes no pod that may run jobs."""
    busy(world, "gpu-0", "gpu-1", "gpu-2")
    world.slurm.reachable = False
    world.crash()
    world.replicas = 0
    for _ in range(30):
        world_events.time(world, 5)
    assert len(world.pods) == 3
    assert reasons(world.reconcile()) == {Reason.SLURM_UNREACHABLE}
    recover(world)


def test_a_scale_in_without_a_connection_kills_nothing(world: World) -> None:
    """Without a connection to Slurm nobody can say what runs, so every pod stays, and says why."""
    busy(world, "gpu-0", "gpu-1", "gpu-2")
    world.connected = False
    world.replicas = 0
    world_events.long_time(world, 5)
    assert len(world.pods) == 3
    assert reasons(world.reconcile()) == {Reason.NO_CONNECTION}
    recover(world)


def test_an_empty_list_for_a_minute_kills_nothing(world: World) -> None:
    """A slurmctld that answers with no nodes has lost them, not their jobs."""
    busy(world, "gpu-0", "gpu-1", "gpu-2")
    world.slurm.lie = "empty"
    world.replicas = 0
    for _ in range(12):
        world_events.time(world, 0)
        world.pass_time(4.0)
    assert len(world.pods) == 3
    assert reasons(world.reconcile()) == {Reason.LIST_SUSPICIOUS}
    recover(world)


def test_an_update_without_a_connection_kills_nothing(world: World) -> None:
    """A rolling update waits for Slurm with the pods that it has chosen, and chooses no others."""
    busy(world, "gpu-0", "gpu-1", "gpu-2")
    world.connected = False
    world.revision += 1
    world_events.long_time(world, 5)
    marks = [pod for pod in world.pods.values() if wellknown.ANNOTATION_POD_CORDON_BY in pod.annotations]
    assert len(world.pods) == 3
    assert len(marks) == 1
    recover(world)


# --- old views


def test_a_view_from_before_our_undrain_deletes_nothing(world: World) -> None:
    """After a node was given back, only a list that was asked for later can say that it is drained."""
    world.replicas = 2
    world.reconcile()
    world.pass_time(2.0)
    world.replicas = 3
    world.reconcile()
    world.reconcile()
    assert world.slurm.start_job("gpu-2", world.now)
    world.replicas = 0
    decided = world.reconcile()
    blocked = {one.pod: one.wait.reason for one in decided.blocked}
    assert blocked["gpu-2"] is Reason.DRAIN_PENDING
    recover(world)


def test_a_view_from_before_this_process_led_deletes_nothing(world: World) -> None:
    """A standby's own lists do not count: the leader before it may have undrained since."""
    world.replicas = 2
    world.reconcile()
    world.pass_time(2.0)
    world.operator.since = world.now
    blocked = {one.pod: one.wait.reason for one in world.reconcile().blocked}
    assert blocked == {"gpu-2": Reason.DRAIN_PENDING}


def test_a_person_who_resumes_a_node_just_before_its_deletion_keeps_the_pod(world: World) -> None:
    """A deletion is confirmed by a list that was asked for after it was planned."""
    world.replicas = 2
    world.reconcile()
    world.pass_time(2.0)
    world.slurm.person_resumes("gpu-2")
    assert world.slurm.start_job("gpu-2", world.now)
    world.reconcile()
    assert not world.pods["gpu-2"].deleting
    recover(world)


# --- old caches


def test_a_cordon_that_the_cache_does_not_show_is_not_taken_away(world: World) -> None:
    """What a person has cordoned since the pod was last seen stays cordoned."""
    world.replicas = 2
    world.reconcile()
    world.lagging = True
    world.replicas = 3
    world.reconcile()
    assert wellknown.ANNOTATION_POD_CORDON not in world.pods["gpu-2"].annotations
    world_events.cordon_pod(world, 2)
    world.reconcile()
    assert world.pods["gpu-2"].annotations[wellknown.ANNOTATION_POD_CORDON] == "true"
    recover(world)
    assert world.slurm.records["gpu-2"].drain


def test_a_pod_that_the_cache_shows_unscheduled_is_deleted_only_if_it_still_is(world: World) -> None:
    """A pod may be running by the time it is deleted for never having been scheduled."""
    world.replicas = 4
    world.reconcile()
    world.lagging = True
    for _ in range(3):
        world.pass_time(2.0)
    assert world.slurm.start_job("gpu-3", world.now)
    world.replicas = 3
    world.reconcile()
    assert not world.pods["gpu-3"].deleting
    recover(world)


# --- a Slurm that forgot


def test_a_busy_worker_that_slurm_forgot_stays_until_its_jobs_are_over(world: World) -> None:
    """Jobs outlive the slurmctld that forgot them, and the pod remembers until when."""
    busy(world, "gpu-0")
    world_faults.slurmctld_loses_state(world, 0)
    world.replicas = 0
    lost = False
    for _ in range(24):
        world.pass_time(9.0)
        lost |= Reason.LOST_WHILE_BUSY in reasons(world.reconcile())
    assert lost
    assert list(world.pods) == ["gpu-0"]
    world.slurm.work.clear()
    world.settle()
    assert not world.pods


def test_a_worker_that_has_just_started_is_given_time_to_register(world: World) -> None:
    """Slurm not having a node says nothing about a slurmd that has just come up."""
    world.slurm.up = False
    world.replicas = 4
    world.reconcile()
    world.pass_time(1.0)
    world.pass_time(1.0)
    world.pods["gpu-3"].registered = True
    world.slurm.up = True
    for _ in range(10):
        world.pass_time(5.0)
    world.replicas = 0
    blocked = {one.pod: one.wait.reason for one in world.reconcile().blocked}
    assert blocked["gpu-3"] is Reason.NODE_ABSENT
    world.replicas = 4
    assert not world.pods["gpu-3"].deleting
    recover(world)
    assert world.pods["gpu-3"].uid != "uid-4"


def test_all_workers_that_slurm_forgot_come_back_a_few_at_a_time(world: World) -> None:
    """Registration is repaired within maxUnavailable, not at once."""
    world_faults.slurmctld_loses_state(world, 0)
    most = 0
    for _ in range(60):
        world.pass_time(10.0)
        world.reconcile()
        most = max(most, sum(pod.deleting or pod.ready_since is None for pod in world.pods.values()))
    assert most == 1
    recover(world)


# --- people


def test_a_cordon_of_a_person_drains_and_stays_through_updates_and_restarts(world: World) -> None:
    """Who cordons a pod by annotation is obeyed until the annotation is removed by hand."""
    world_events.cordon_pod(world, 1)
    world.settle()
    assert world.slurm.records["gpu-1"].drain
    world.crash()
    world.settle()
    assert world.slurm.records["gpu-1"].drain
    world_events.uncordon_pod(world, 1)
    world.settle()
    assert not world.slurm.records["gpu-1"].drain


def test_a_cordon_of_the_go_operator_is_taken_over_and_undone(world: World) -> None:
    """What the Go operator wrote into Slurm tells its cordons from those of people."""
    pod = world.pods["gpu-1"]
    pod.annotations[wellknown.ANNOTATION_POD_CORDON] = "true"
    world.touch(pod)
    record = world.slurm.records["gpu-1"]
    record.drain = True
    record.reason = "slurm-operator: Pod (slurm/gpu-1) is pending termination for scale-in"
    world.settle()
    assert wellknown.ANNOTATION_POD_CORDON not in pod.annotations
    assert not record.drain


def test_a_drained_node_of_a_person_is_updated_and_stays_drained(world: World) -> None:
    """A drain by hand does not keep a pod from being replaced, and the new pod stays drained."""
    world.slurm.person_drains("gpu-0")
    world.revision += 1
    recover(world)
    assert world.slurm.records["gpu-0"].persons


# --- silence


def test_nothing_is_written_while_slurm_is_away(world: World) -> None:
    """An outage is told once, and not again with each reconcile."""
    busy(world, "gpu-0")
    world.replicas = 1
    world.slurm.reachable = False
    world_events.long_time(world, 0)
    writes = world.writes
    world_events.long_time(world, 5)
    assert world.writes == writes


def test_scaling_out_does_not_wait_for_slurm(world: World) -> None:
    """Pods are created without asking Slurm anything."""
    world.connected = False
    world.replicas = 5
    world.reconcile()
    assert len(world.pods) == 5


def test_an_idle_worker_goes_with_one_write_beside_its_deletion(world: World) -> None:
    """A scale-in of idle workers costs a drain and a status for all, a cordon per pod and the deletion."""
    world.replicas = 0
    before = world.writes
    world.reconcile()
    assert world.writes - before <= 3 + 2
    world.pass_time(2.0)
    before = world.writes
    world.reconcile()
    assert world.writes - before <= 3 + 1


def test_a_busy_worker_says_what_it_waits_for_with_the_next_list(world: World) -> None:
    """What is spared at the first moment of a drain is written as soon as the drain shows."""
    busy(world, "gpu-0")
    world.replicas = 0
    world.reconcile()
    assert wellknown.POD_CONDITION_SAFE not in world.pods["gpu-0"].conditions
    world.pass_time(2.0)
    world.reconcile()
    said = world.pods["gpu-0"].conditions[wellknown.POD_CONDITION_SAFE]
    assert (said.status, said.reason) == ("False", "JobsRunning")
    recover(world)


def test_a_drain_that_slurm_does_not_take_is_told(world: World) -> None:
    """Only the first attempt is waited for in silence."""
    busy(world, "gpu-0")
    world.partial = True
    world.replicas = 0
    for _ in range(3):
        world.reconcile()
        world.pass_time(2.0)
    drained = [one.name for one in world.slurm.records.values() if one.drain]
    assert "gpu-2" not in drained
    assert wellknown.POD_CONDITION_SAFE in world.pods["gpu-2"].conditions
    recover(world)
