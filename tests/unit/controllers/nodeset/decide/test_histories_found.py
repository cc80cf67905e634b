"""Histories that random search has found to go wrong, each shrunk to what matters, and kept for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.controllers.nodeset.decide import messages
from tests.support.simulation import world_events, world_faults
from tests.support.simulation.end_state import live_through
from tests.support.simulation.history_steps import busy, recover

if TYPE_CHECKING:
    from tests.support.simulation.world import World


# --- lists that leave something out


def test_the_history_that_broke_the_build() -> None:
    """A fresh process that sees only half lists does not replace a worker whose job nobody has noted."""
    live_through(
        [
            (world_events.long_time, 0),
            (world_events.start_job, 1),
            (world_faults.crash, 0),
            (world_faults.half_an_answer, 3),
            (world_faults.half_an_answer, 3),
        ]
    )


def test_half_lists_after_a_crash_do_not_restart_a_busy_worker(world: World) -> None:
    """A process that never saw the whole list asks for a node by its name before it believes it absent."""
    world_events.long_time(world, 0)
    busy_unseen = world.slurm.start_job("gpu-1", world.now)
    assert busy_unseen
    world.crash()
    world.slurm.lie = "half"
    contradicted = False
    for _ in range(40):
        world.pass_time(5.0)
        decided = world.reconcile()
        contradicted |= any(
            one.wait.message == messages.list_incomplete(one.slurm_name) for one in decided.blocked
        )
    assert contradicted
    assert not world.pods["gpu-1"].deleting
    recover(world)


@pytest.mark.parametrize("change", ["scale-in", "update", "deletion"])
def test_half_lists_after_a_crash_remove_no_worker_for_any_reason(world: World, change: str) -> None:
    """Whatever the cause of a removal, a node that is only missing from lists keeps it."""
    assert world.slurm.start_job("gpu-1", world.now)
    assert world.slurm.start_job("gpu-2", world.now)
    world.crash()
    world.slurm.lie = "half"
    if change == "scale-in":
        world.replicas = 0
    elif change == "update":
        world.revision, world.max_unavailable = 2, "100%"
    else:
        world.deleting = True
    uids = {world.pods["gpu-1"].uid, world.pods["gpu-2"].uid}
    for _ in range(40):
        world.pass_time(5.0)
        world.reconcile()
    assert uids <= {pod.uid for pod in world.pods.values()}
    recover(world)


def test_a_clock_that_jumps_ahead_does_not_end_forgotten_jobs(world: World) -> None:
    """The deadline of jobs that Slurm lost is over when Slurm's clock says so, too."""
    busy(world, "gpu-0")
    world_faults.slurmctld_loses_state(world, 0)
    world.replicas = 0
    world.skew = 36_000.0
    for _ in range(24):
        world.pass_time(9.0)
        world.reconcile()
    assert list(world.pods) == ["gpu-0"]
    recover(world)


def test_a_clock_that_is_behind_does_not_hide_workers_that_serve(world: World) -> None:
    """Without minReadySeconds a ready worker is available, whatever time it is here."""
    world.skew = -3600.0
    world.reconcile()
    assert world.status["availableReplicas"] == 3


# --- Kubernetes nodes that come, go, and share a name


def test_nodes_that_ask_for_one_name_do_not_stop_an_update(world: World) -> None:
    """A node that can have no worker is not missing one."""
    world_events.change_mode(world, 1)
    world_events.rename_node(world, 1)
    world.settle()
    world_events.new_template(world, 0)
    recover(world)


def test_a_worker_that_waits_for_a_node_that_is_gone_goes(world: World) -> None:
    """Kubernetes collects pods from nodes that are gone, but not those that never came there."""
    world_events.change_mode(world, 1)
    world.reconcile()
    waiting = next(pod for pod in world.pods.values() if pod.target == "node-7")
    del world.nodes["node-7"]
    recover(world)
    assert waiting.name not in world.pods


# --- windows


def test_a_window_that_is_moved_into_the_past_is_given_up(world: World) -> None:
    """Slurm refuses to move a reservation into the past, however often it is asked."""
    world_events.schedule_update(world, 4)
    world.settle()
    assert world.slurm.windows
    world_events.schedule_update(world, 0)
    world.pass_time(12.0)
    world.settle()
    assert not world.slurm.windows


def test_a_window_that_was_given_up_can_be_asked_for_again(world: World) -> None:
    """What was booked once is remembered only as long as somebody wants it."""
    world_events.schedule_update(world, 5)
    wanted = world.window
    world.pass_time(12.0)
    world.reconcile()
    world.pass_time(12.0)
    world.reconcile()
    assert world.slurm.windows
    world.strategy = "OnDelete"
    world.pass_time(12.0)
    world.reconcile()
    world.pass_time(12.0)
    world.reconcile()
    assert not world.slurm.windows
    world.strategy, world.window = "ScheduledUpdate", wanted
    for _ in range(3):
        world.pass_time(12.0)
        world.reconcile()
    assert world.slurm.windows


def test_half_a_list_of_reservations_does_not_leave_one_behind(world: World) -> None:
    """The finalizer waits for Slurm's answer to the deletion, not for a list that lacks the reservation."""
    world_events.schedule_update(world, 5)
    world.settle(rounds=30)
    assert world.slurm.windows
    world.slurm.lie = "half"
    world.pass_time(12.0)
    world_events.delete_nodeset(world, 0)
    for _ in range(20):
        world.pass_time(12.0)
        world.reconcile_if_called()
    recover(world)
    assert not world.slurm.windows


def test_a_nodeset_that_skips_the_drain_leaves_no_window_behind() -> None:
    """Whoever does not wait for jobs still takes the reservation along."""
    live_through(
        [
            (world_events.schedule_update, 4),
            (world_events.skip_drain, 2),
            (world_events.called, 1),
            (world_events.delete_nodeset, 4),
        ]
    )


def test_a_forced_window_that_went_by_in_an_outage_is_not_made_for_ever() -> None:
    """When Slurm is back after the end of the window, nothing is left to make."""
    live_through(
        [
            (world_events.schedule_update, 2),
            (world_faults.slurmctld_loses_state, 0),
            (world_events.long_time, 0),
            (world_events.scale, 2),
            (world_faults.no_connection, 0),
            (world_events.long_time, 0),
            (world_faults.half_lists_for_long, 0),
            (world_faults.slurm_away, 1),
            (world_faults.slurmctld_loses_state, 5),
            (world_faults.half_lists_for_long, 3),
        ]
    )


def test_records_are_pruned_when_slurm_can_be_asked_again() -> None:
    """Without a worker there is no node to hear of: the plan itself asks to be called again."""
    live_through(
        [
            (world_events.change_pruning, 5),
            (world_events.scale, 0),
            (world_events.delete_pod_by_hand, 0),
            (world_events.delete_pod_by_hand, 1),
            (world_events.delete_pod_by_hand, 2),
            (world_faults.no_connection, 0),
            (world_events.long_time, 1),
        ]
    )


def test_nodes_of_workers_that_are_gone_are_not_counted() -> None:
    """Numbers stay through an outage only for workers that are there."""
    live_through(
        [
            (world_events.scale, 1),
            (world_events.long_time, 4),
            (world_faults.no_connection, 4),
            (world_faults.slurmctld_loses_state, 0),
            (world_events.delete_pod_by_hand, 0),
            (world_faults.half_lists_for_long, 5),
            (world_events.scale, 0),
        ]
    )


def test_no_pod_that_no_cache_shows_as_protected_is_left_behind() -> None:
    """Protection that was given back a moment ago keeps a NodeSet that needs no drain."""
    live_through(
        [
            (world_events.skip_drain, 1),
            (world_events.time, 0),
            (world_faults.cache_lags, 0),
            (world_events.skip_drain, 0),
            (world_events.time, 0),
            (world_events.controller_leaves, 0),
            (world_events.time, 0),
        ]
    )


def test_a_disruption_that_a_wrong_clock_took_for_old_is_carried_out_later() -> None:
    """An hour ahead, the operator takes every announcement for expired, until its clock is right."""
    live_through([(world_faults.clock_jumps, 1), (world_events.preempt, 0), (world_events.time, 0)])


def test_a_drain_by_hand_on_a_powered_down_node_outlasts_autoscaling() -> None:
    """After autoscaling is switched off, the pod of such a node is created once and stays."""
    live_through(
        [
            (world_events.autoscale, 5),
            (world_events.suspend_time, 7),
            (world_events.autoscale_no_more, 1),
            (world_events.reconcile_without_news, 3),
            (world_events.drain_by_hand, 2),
        ]
    )
    live_through(
        [
            (world_events.autoscale, 4),
            (world_events.suspend_time, 7),
            (world_events.suspend_time, 1),
            (world_events.drain_by_hand, 5),
            (world_events.autoscale_no_more, 1),
        ]
    )


def test_no_record_is_deleted_under_a_slurmd_that_the_cache_does_not_show() -> None:
    """Its node is up, so that its pod is only missing in the cache."""
    live_through(
        [
            (world_events.autoscale, 2),
            (world_events.suspend_time, 7),
            (world_faults.cache_lags, 2),
            (world_events.autoscale_no_more, 3),
            (world_events.suspend_time, 5),
            (world_events.autoscale, 2),
            (world_faults.pod_keeps_failing, 5),
        ]
    )
