"""Since when nodes drain, and whether they have done so without a break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.decide.drain import drain_times, lasting_drains
from tests.support.slurm.views import drained_node, node, number

if TYPE_CHECKING:
    from slurm_operator.slurm.model.records import Node

BEFORE = {"a": 5.0}


def draining(*state: str, since: float = 5) -> Node:
    return node("a", *state, alloc=2, reason_changed_at=number(since))


@pytest.mark.parametrize(
    "unknown",
    [
        node("a", "MIXED", alloc=2, reason_changed_at=number(5)),
        draining("MIXED", "DRAIN", "UNDRAIN"),
        draining("MIXED", "DRAIN", since=0),
        node("a", "MIXED", "DRAIN", alloc=2),
    ],
    ids=["no drain", "the drain is being taken back", "no moment", "no reason"],
)
def test_a_drain_without_a_moment_is_not_known(unknown: Node) -> None:
    assert drain_times({"a": unknown}, ["a", "gone"]) == {}
    assert lasting_drains(BEFORE, {"a": unknown}) == {}


def test_the_same_drain_is_the_one_with_the_same_moment() -> None:
    """One that was drained anew, or was not seen draining before, does not count."""
    same = drained_node("a", reason_changed_at=number(5))
    anew = drained_node("a", reason_changed_at=number(6))
    other = drained_node("b", reason_changed_at=number(5))
    assert drain_times({"a": draining("MIXED", "DRAIN")}, ["a"]) == BEFORE
    assert lasting_drains(BEFORE, {"a": same}) == BEFORE
    assert lasting_drains(BEFORE, {"a": anew}) == {}
    assert lasting_drains(BEFORE, {}) == {}
    assert lasting_drains(BEFORE, {"a": same, "b": other}) == BEFORE
