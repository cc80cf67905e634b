"""What one reconcile sees of its workers and of their nodes in Slurm."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import Defer
from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
from tests.support.simulation.observations import observe, pod, worker
from tests.support.slurm.views import NOW, node

CORDON = {wellknown.ANNOTATION_POD_CORDON: wellknown.TRUE}


def test_what_follows_from_a_worker_follows_from_its_copy() -> None:
    """No copy of a worker with other values keeps what followed from the former ones."""
    plain = worker()
    assert (plain.active, plain.cordoned, plain.protected, plain.healthy) == (True, False, True, True)
    assert replace(plain, annotations=CORDON).cordoned
    assert not replace(plain, labels={}).protected
    assert not replace(plain, phase="Pending").healthy
    deleted = replace(plain, deleting=True)
    assert (deleted.active, deleted.healthy) == (False, False)


@pytest.mark.parametrize(
    ("since", "written", "certain"),
    [
        (-math.inf, {}, True),
        (-math.inf, {"gpu-1": math.inf}, True),
        (-math.inf, {"gpu-0": math.inf}, False),
        (-math.inf, {"gpu-0": NOW}, False),
        (-math.inf, {"gpu-0": NOW - 3600}, True),
        (NOW, {}, False),
    ],
)
def test_a_node_is_certain_once_a_list_is_newer_than_what_was_written(
    since: float, written: dict[str, float], *, certain: bool
) -> None:
    """A list from before a write to the node, or from before this process led, says nothing about it."""
    slurm = SlurmState(observe(pod(0), slurm=(node("gpu-0"),), since=since, written=written))
    assert (slurm.node("gpu-0") is not None) is certain
    assert (slurm.blind("gpu-0") is None) is certain
    assert slurm.node("gpu-7") is None


def test_nothing_is_certain_about_a_node_that_may_be_of_another_worker() -> None:
    """A worker of another cluster may have the name of a node that is listed here."""
    elsewhere = pod(0, labels={wellknown.LABEL_CLUSTER: "other"})
    slurm = SlurmState(observe(elsewhere, pod(1), slurm=(node("gpu-0"), node("gpu-1"))))
    assert slurm.node("gpu-0") is None
    assert isinstance(slurm.blind("gpu-0"), Defer)
    assert slurm.node("gpu-1") is not None
