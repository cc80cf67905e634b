"""When the conditions of a pod are written: not while what they say is about to change by our own doing."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import (
    DeletePod,
    DrainNodes,
    PatchPod,
    PatchPodStatus,
    UndrainNodes,
    WriteNodes,
)
from slurm_operator.controllers.nodeset.decide.plan import UNCONFIRMED_SECONDS, plan
from slurm_operator.controllers.nodeset.decide.pod_status import JUST_NOW_SECONDS
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model.jobs import NodeJobs, UnfinishedJobs
from tests.support.simulation.kubernetes import make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, node, view

GUARDED = (wellknown.FINALIZER_DRAIN,)
MARKED = {wellknown.ANNOTATION_POD_CORDON: "true", wellknown.ANNOTATION_POD_CORDON_BY: "ScaleIn"}
SMALLER = make_nodeset(replicas=0, finalizers=GUARDED)


def told(seen: Any) -> dict[str, set[str]]:
    """Return the types of the conditions that are set, by pod."""
    actions = plan(seen).actions
    return {one.name: {c.type for c in one.set} for one in actions if isinstance(one, PatchPodStatus)}


def comments(seen: Any) -> list[str]:
    """Return the Slurm nodes that are given a comment."""
    return [name for one in plan(seen).actions if isinstance(one, WriteNodes) for name in one.changes]


def test_a_pod_that_is_drained_for_the_first_time_is_told_with_the_next_list() -> None:
    """A scale-in writes no conditions together with its first drain, and requeues soon."""
    seen = observe(pod(0), slurm=(node("gpu-0"),), nodeset=SMALLER)
    decided = plan(seen)
    assert [one.names for one in decided.actions if isinstance(one, DrainNodes)] == [("gpu-0",)]
    assert told(seen) == {}
    assert decided.requeue is not None
    assert decided.requeue <= UNCONFIRMED_SECONDS


def test_a_drain_that_has_to_be_asked_for_again_is_visible() -> None:
    """A pod whose drain did not happen at once says that it is blocked, and why."""
    seen = observe(pod(0, annotations=MARKED), slurm=(node("gpu-0"),), nodeset=SMALLER)
    assert [one.names for one in plan(seen).actions if isinstance(one, DrainNodes)] == [("gpu-0",)]
    assert wellknown.POD_CONDITION_SAFE in told(seen)["gpu-0"]


def test_a_pod_that_has_just_become_ready_is_told_after_those_that_are_on_their_way() -> None:
    """While a scale-out goes on nothing is written about pods that work already, unless they have jobs."""
    new = pod(0, ready_since=NOW - 1)
    coming = pod(1, phase="Pending", started=False, ready_since=None, created=NOW - 2)
    seen = observe(new, coming, slurm=(node("gpu-0"),))
    assert told(seen) == {}
    assert comments(seen) == []
    assert plan(seen).requeue == JUST_NOW_SECONDS
    busy = observe(new, coming, slurm=(node("gpu-0", "MIXED", alloc=1),))
    assert "SlurmNodeStateMixed" in told(busy)["gpu-0"]


def test_nobody_waits_for_a_pod_that_does_not_start() -> None:
    """A pod that is not ready after half a minute keeps the others from nothing, nor does the end of all."""
    stuck = pod(1, phase="Pending", started=False, ready_since=None, created=NOW - 60)
    for others in ((stuck,), (pod(1, ready_since=NOW - 1),)):
        seen = observe(pod(0, ready_since=NOW - 1), *others, slurm=(node("gpu-0"),))
        assert "SlurmNodeStateIdle" in told(seen)["gpu-0"]
        assert comments(seen) == ["gpu-0"]
    late = observe(
        pod(0, ready_since=NOW - 11), pod(1, ready_since=None, created=NOW - 2), slurm=(node("gpu-0"),)
    )
    assert "SlurmNodeStateIdle" in told(late)["gpu-0"]


@pytest.mark.parametrize(("seconds", "told_of"), [(29, 0), (31, 1999)])
def test_thousands_of_pods_are_told_after_the_last_of_them_was_created(seconds: int, told_of: int) -> None:
    """Creating them takes a minute, and conditions of the first ones would be in the way of the last ones."""
    names = [f"gpu-{number}" for number in range(1999)]
    ready = [pod(number, ready_since=NOW - seconds) for number in range(1999)]
    coming = pod(1999, phase="Pending", started=False, ready_since=None, created=NOW - 2)
    seen = observe(*ready, coming, slurm=tuple(map(node, names)))
    assert len(told(seen)) == len(comments(seen)) == told_of


def test_a_pod_whose_jobs_are_being_listed_is_not_told() -> None:
    """A node that has just begun to look drained waits for the jobs of the same round, unless these fail."""
    drained = node("gpu-0", "IDLE", "DRAIN", reason=f"{wellknown.REASON_PREFIX}scales in")
    owed = {"owed": frozenset({"gpu-0"})}
    seen = observe(pod(0, annotations=MARKED), view=view(drained, **owed), nodeset=SMALLER)
    assert told(seen) == {}
    failed = view(drained, **owed, jobs_failure=RestUnreachable("cut off"))
    seen = observe(pod(0, annotations=MARKED), view=failed, nodeset=SMALLER)
    assert wellknown.POD_CONDITION_SAFE in told(seen)["gpu-0"]


def test_what_stays_is_looked_after_last() -> None:
    """Labels and deadlines of others keep no drain and no deletion waiting."""
    free = node("gpu-0", "IDLE", "DRAIN", reason=f"{wellknown.REASON_PREFIX}scales in")
    busy = node("gpu-1", "MIXED", alloc=1)
    jobs = UnfinishedJobs(by_node={"gpu-1": NodeJobs(jobs=(7,), end=NOW + 3600)})
    seen = observe(
        *(pod(0, annotations=MARKED), pod(1)),
        nodeset=make_nodeset(replicas=1, finalizers=GUARDED),
        view=view(free, busy, jobs=jobs),
    )
    kinds = [type(one) for one in plan(seen).actions]
    assert kinds.index(DeletePod) < kinds.index(PatchPod)


def test_a_new_pod_under_the_name_of_a_drained_one_is_told_when_the_drain_is_over() -> None:
    """A pod that has just become ready gets its conditions once its node is back in service."""
    drained = node("gpu-0", "IDLE", "DRAIN", reason=f"{wellknown.REASON_PREFIX}update")
    seen = observe(pod(0, ready_since=NOW - 1), slurm=(drained,))
    assert [one.names for one in plan(seen).actions if isinstance(one, UndrainNodes)] == [("gpu-0",)]
    assert told(seen) == {}
    assert "SlurmNodeStateDrain" in told(observe(pod(0), slurm=(drained,)))["gpu-0"]


def test_a_pod_that_has_not_started_does_not_inherit_the_state_of_the_one_before() -> None:
    """What Slurm has under a name before slurmd has started is about another pod."""
    waiting = pod(0, phase="Pending", started=False, ready_since=None)
    assert told(observe(waiting, slurm=(node("gpu-0", "DOWN"),))) == {}
