"""Nodes that are down although a new slurmd serves them."""

from __future__ import annotations

import pytest

from slurm_operator.controllers.nodeset.decide.actions import DrainNodes, ResumeNodes, UndrainNodes
from slurm_operator.controllers.nodeset.decide.plan import plan
from slurm_operator.slurm.model.records import NoVal
from tests.support.simulation.kubernetes import make_node
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import node

TERMINATING = "slurm-operator: Pod is terminating"


def at(seconds: float) -> NoVal:
    return NoVal(set=True, number=seconds)


LATER = at(200)


def states(
    *words: str,
    reason: str = TERMINATING,
    started: NoVal = LATER,
    cordoned: bool = False,
    ready: bool = True,
) -> list[object]:
    down = node("gpu-0", *words, reason=reason, slurmd_start_time=started, reason_changed_at=at(100))
    worker = pod(0) if ready else pod(0, ready_since=None)
    nodes = {"node-0": make_node("node-0", cordoned=cordoned)}
    decided = plan(observe(worker, slurm=(down,), nodes=nodes))
    return [one for one in decided.actions if isinstance(one, DrainNodes | UndrainNodes | ResumeNodes)]


@pytest.mark.parametrize("reason", [TERMINATING, "Not responding", "(slurm-operator: undrained)"])
def test_a_node_is_resumed_when_its_new_slurmd_has_registered(reason: str) -> None:
    """A replaced worker works again whatever ReturnToService says."""
    assert states("DOWN", reason=reason) == [ResumeNodes(("gpu-0",))]


def test_a_drain_of_ours_ends_with_the_resume() -> None:
    """One write lifts both, so that no reason younger than the slurmd is left."""
    assert states("DOWN", "DRAIN") == [ResumeNodes(("gpu-0",))]


def test_a_slurmd_on_its_way_out_gets_no_work() -> None:
    """The slurmd that took the node down is not taken for a new one."""
    assert states("DOWN", started=at(50)) == []
    assert states("DOWN", started=at(100)) == []
    assert states("DOWN", started=NoVal()) == []


@pytest.mark.parametrize("reason", ["fan broken", "Node unexpectedly rebooted", ""])
def test_what_others_took_down_stays_down(reason: str) -> None:
    """A person, a health check and slurmd itself keep the last word."""
    assert states("DOWN", reason=reason) == []


@pytest.mark.parametrize("flag", ["NOT_RESPONDING", "FAIL", "INVALID_REG"])
def test_a_node_that_does_not_serve_stays_down(flag: str) -> None:
    """Only a slurmd that answers can work."""
    assert states("DOWN", flag) == []


def test_a_pod_that_is_not_ready_gets_no_work() -> None:
    """The kubelet must agree that slurmd serves."""
    assert states("DOWN", ready=False) == []


def test_a_cordon_outweighs_the_return() -> None:
    """A Slurm node on a cordoned Kubernetes node is drained, not resumed."""
    assert [type(one) for one in states("DOWN", cordoned=True)] == [DrainNodes]


def test_a_node_that_is_down_and_silent_is_not_undrained() -> None:
    """The undrain would leave a reason that is younger than the new slurmd, and the node would stay down."""
    ours = "slurm-operator: NodeSet (slurm/gpu) is being deleted"
    # slurmctld that has just read its configuration again does not know when a slurmd was started.
    for state in (("DOWN", "DRAIN", "NOT_RESPONDING"), ("DOWN", "DRAIN")):
        before = plan(observe(pod(0), slurm=(node("gpu-0", *state, reason=ours),)))
        assert not [one for one in before.actions if isinstance(one, UndrainNodes | ResumeNodes)]
    heard = node(
        "gpu-0",
        "DOWN",
        "DRAIN",
        reason=ours,
        slurmd_start_time=at(200),
        reason_changed_at=at(100),
    )
    after = plan(observe(pod(0), slurm=(heard,)))
    assert ResumeNodes(("gpu-0",)) in after.actions
    assert not [one for one in after.actions if isinstance(one, UndrainNodes)]


@pytest.mark.parametrize("started", [at(50), at(100), NoVal()])
def test_a_drain_stays_until_the_new_slurmd_of_a_node_that_is_down_has_registered(started: NoVal) -> None:
    """A pod may be ready before, while slurmctld still shows the slurmd of the pod before as responding.

    An undrain would leave the node down, with a reason that is younger than the slurmd, so for ever.
    """
    assert states("DOWN", "DRAIN", started=started) == []
