"""Workers whose pods keep ending: each pod that follows comes later than the one before."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import CreatePod, DeletePod, RemovalCause
from slurm_operator.controllers.nodeset.decide.observation import read_worker
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.controllers.nodeset.decide.scale import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    STAYED_UP_SECONDS,
    next_try,
    pause_seconds,
)
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.controllers.nodeset.run.pod_writes import PodWrites
from tests.support.simulation.kubernetes import FIT, LABELS, SimPod, make_node, make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.simulation.world import World
from tests.support.slurm.views import NOW, drained_node, node

FAILURES = wellknown.ANNOTATION_POD_FAILURES
GUARDED = (wellknown.FINALIZER_DRAIN,)


def ended(before: int = 0, *, ago: float = 0.0, lasted: float = 5.0, **fields: Any) -> SimPod:
    """Return a pod that ended some seconds ago, the last of so many in a row."""
    annotations = {FAILURES: str(before)} if before else {}
    end = NOW - ago
    settled = {"phase": "Failed", "ready_since": None, "finished_at": end, "created": end - lasted}
    return pod(0, **(settled | {"annotations": annotations} | fields))


def waits_for(failed: SimPod) -> float:
    """Return in how many seconds a pod that has ended is replaced."""
    decided = plan(observe(failed, slurm=(node("gpu-0"),)))
    if decided.going:
        assert set(decided.going.values()) == {RemovalCause.FINISHED}
        return 0.0
    assert [one.reason for one in decided.waits] == [Reason.BACKING_OFF]
    assert decided.requeue is not None
    return decided.requeue


def test_the_pause_doubles_from_a_second_to_a_quarter_of_an_hour() -> None:
    """1, 2, 4 … seconds, as a kubelet does, and as the reference's bounds are."""
    pauses = [pause_seconds(failures) for failures in range(1, 14)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-3:] == [LONGEST_SECONDS] * 3
    assert (FIRST_SECONDS, LONGEST_SECONDS) == (1.0, 900.0)
    assert pause_seconds(10**9) == LONGEST_SECONDS, "no number makes it slow or wrong"


@pytest.mark.parametrize(("before", "pause"), [(0, 1.0), (1, 2.0), (5, 32.0), (40, 900.0)])
def test_a_worker_that_failed_before_waits_longer(before: int, pause: float) -> None:
    """The pod says how many before it ended, so that a restart of the operator forgets nothing."""
    assert waits_for(ended(before)) == pytest.approx(pause)
    assert waits_for(ended(before, ago=pause + 0.1)) == 0.0


@pytest.mark.parametrize("text", ["x", "-3", "", "1e9", "٣", "9" * 400])
def test_an_annotation_that_is_no_number_counts_for_nothing(text: str) -> None:
    """Whatever a person writes there, the worker is replaced within the longest pause."""
    assert waits_for(ended(annotations={FAILURES: text})) == pytest.approx(1.0)


def test_a_worker_that_stayed_up_starts_from_the_first_pause() -> None:
    """Ten minutes of service make up for all failures before."""
    assert waits_for(ended(9, lasted=STAYED_UP_SECONDS + 1)) == pytest.approx(1.0)
    assert waits_for(ended(9, lasted=STAYED_UP_SECONDS - 1)) == pytest.approx(512.0)


def test_only_the_time_that_slurmd_ran_counts() -> None:
    """A pod that waited an hour for a node and failed at once did not stay up."""
    start = NOW - 3
    assert waits_for(ended(9, lasted=3600, began_at=start)) == pytest.approx(512.0)


def test_a_pod_that_never_started_did_not_stay_up() -> None:
    """A kubelet that refuses a pod leaves no container that ended; its creation counts."""
    refused = ended(3, started=False, finished_at=None, created=NOW - 2)
    assert waits_for(refused) == pytest.approx(6.0)


def test_a_kubelet_whose_clock_is_ahead_does_not_hold_up_its_worker() -> None:
    """An end in the future is none: then the pod's creation counts, by the API server's clock."""
    assert waits_for(ended(2, ago=-3600, created=NOW - 1)) == pytest.approx(3.0)


def test_the_conditions_say_when_the_next_try_is() -> None:
    """`Progressing` names the worker, how often it failed and when it is tried again."""
    seen = observe(ended(4))
    said = {one.type: one for one in report(seen, plan(seen)).conditions}
    progressing = said[wellknown.CONDITION_PROGRESSING]
    assert progressing.reason == "BackingOff"
    (wait,) = plan(seen).waits
    assert wait.message == messages.backing_off("gpu-0", 5, next_try(seen.workers[0], seen.wall))
    assert progressing.message.endswith(f"; {wait.message}")


def test_what_was_counted_is_handed_to_the_next_pod() -> None:
    """The deletion says how often, the process keeps it, and the next pod of that name carries it."""
    decided = plan(observe(ended(4, ago=60), slurm=(drained_node("gpu-0"),)))
    (deletion,) = [one for one in decided.actions if isinstance(one, DeletePod)]
    assert (deletion.cause, deletion.failures) == (RemovalCause.FINISHED, 5)
    nodeset = make_nodeset(replicas=1, finalizers=GUARDED)
    (create,) = [
        one
        for one in plan(observe(nodeset=nodeset, failures={"gpu-0": 5})).actions
        if isinstance(one, CreatePod)
    ]
    assert create.failures == 5


def test_a_pod_that_goes_for_another_reason_hands_nothing_on() -> None:
    """An update, or a person who deletes the pod, starts from the first pause."""
    nodeset = make_nodeset(replicas=0, finalizers=GUARDED)
    decided = plan(observe(ended(4), slurm=(drained_node("gpu-0"),), nodeset=nodeset))
    (deletion,) = [one for one in decided.actions if isinstance(one, DeletePod)]
    assert (deletion.cause, deletion.failures) == (RemovalCause.SCALE_IN, 0)


def test_a_worker_of_a_node_backs_off_too() -> None:
    """In DaemonSet mode the pod of a node is counted like a numbered one."""
    nodeset = make_nodeset(scalingMode="DaemonSet", finalizers=GUARDED)
    kube_node = make_node("node-0", labels=LABELS)
    failed = ended(5, mode="DaemonSet", hostname="node-0", index="", target="node-0")
    seen = observe(failed, slurm=(node("node-0"),), nodeset=nodeset, nodes={"node-0": kube_node}, fit=FIT)
    decided = plan(seen)
    assert decided.going == {}
    assert decided.requeue == pytest.approx(32.0)
    empty = observe(nodeset=nodeset, nodes={"node-0": kube_node}, fit=FIT)
    (create,) = [one for one in plan(empty).actions if isinstance(one, CreatePod)]
    again = observe(nodeset=nodeset, nodes={"node-0": kube_node}, fit=FIT, failures={create.name: 6})
    assert [one.failures for one in plan(again).actions if isinstance(one, CreatePod)] == [6]


def test_the_memory_of_workers_that_do_not_come_back_is_dropped() -> None:
    """What no pod has taken over within the longest pause is forgotten."""
    pods = PodWrites()
    pods.failures |= {"gpu-0": (5, 100.0), "gpu-1": (2, 900.0)}
    pods.tidy(100.0 + LONGEST_SECONDS + 1)
    assert pods.failures == {"gpu-1": (2, 900.0)}


def test_a_worker_that_always_fails_is_made_ever_more_rarely() -> None:
    """In an hour of failures there are about a dozen pods, and not two hundred; a restart changes little."""
    world = World(replicas=1)
    world.settle()
    world.now += STAYED_UP_SECONDS
    made = set()
    for second in range(3600):
        for one in world.pods.values():
            made.add(one.uid)
            if one.phase == "Running" and not one.deleting:
                one.phase, one.ready_since, one.finished_at = "Failed", None, world.now
                world.slurm.unregister(one.hostname, one.uid)
                world.touch(one)
        if second % 600 == 599:
            world.crash()
        world.pass_time(1.0)
        world.reconcile_if_called()
    assert 8 <= len(made) <= 20, len(made)
    failures = read_worker(world.nodeset(), next(iter(world.pods.values())).show()).annotations[FAILURES]
    assert int(failures) >= 7
