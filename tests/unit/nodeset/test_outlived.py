"""A NodeSet that is deleted together with the Controller of an external Slurm."""

from __future__ import annotations

from typing import Any

from slurm_operator.controllers.nodeset.observation import Fate
from slurm_operator.slurm.errors import RestUnreachable, WrongCluster
from tests.unit.nodeset.making import pod
from tests.unit.nodeset.test_departure import DRAIN, deleted, leave, released
from tests.unit.slurm.views import NOW, drained_node, node, view

OUTLIVED: Any = {"controller": Fate.OUTLIVED}


def test_while_slurm_answers_the_nodeset_is_drained() -> None:
    """The busy worker keeps the NodeSet, and the drained one goes."""
    decided = leave(
        pod(0), pod(1), slurm=(node("gpu-0", "MIXED", alloc=1), drained_node("gpu-1")), **OUTLIVED
    )
    assert deleted(decided) == ["gpu-1"]
    assert released(decided) == []
    assert decided.holds


def test_when_slurm_has_stopped_answering_the_nodeset_goes() -> None:
    """Nobody is left who could ever say what runs; uninstalling must end."""
    silent = view(node("gpu-0", "MIXED", alloc=1), taken=NOW - 31.0, failure=RestUnreachable("silent"))
    assert released(leave(pod(0, protected=False), view=silent, **OUTLIVED)) == [DRAIN]
    assert released(leave(pod(0, protected=False), view=None, **OUTLIVED)) == [DRAIN]


def test_another_slurm_at_the_same_address_lets_nothing_go() -> None:
    """It answers, and cannot say what runs: the NodeSet waits for the right one, or for a person."""
    other = view(taken=None, failure=WrongCluster("expected", "other"))
    assert released(leave(pod(0, protected=False), view=other, **OUTLIVED)) == []


def test_a_failure_that_is_young_lets_nothing_go() -> None:
    """One request that fails is no silence."""
    failing = view(node("gpu-0", "MIXED", alloc=1), taken=NOW - 5.0, failure=RestUnreachable("cut"))
    assert released(leave(pod(0, protected=False), view=failing, **OUTLIVED)) == []


def test_before_the_first_answer_nothing_goes() -> None:
    """A connection that was made just now has been asked, and has neither answered nor failed."""
    assert released(leave(pod(0, protected=False), view=view(taken=None), **OUTLIVED)) == []
    failed = view(taken=None, failure=RestUnreachable("refused"))
    assert released(leave(pod(0, protected=False), view=failed, **OUTLIVED)) == [DRAIN]
