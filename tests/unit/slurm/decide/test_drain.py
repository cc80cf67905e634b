"""Which nodes drain, since when, and whether they have done so without a break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.decide.drain import (
    OutOfService,
    drain_times,
    lasting_drains,
    looks_drained,
    looks_powered_down,
    out_of_service,
    saves_power,
    work_in_state,
)
from slurm_operator.slurm.model.jobs import NO_JOBS
from slurm_operator.slurm.model.records import BASE_STATES, Node
from tests.support.slurm.views import drained_node, node, number

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
    assert drain_times({"a": unknown}) == {}
    assert lasting_drains(BEFORE, {"a": unknown}) == {}


def test_the_same_drain_is_the_one_with_the_same_moment() -> None:
    """One that was drained anew, or was not seen draining before, does not count."""
    same = drained_node("a", reason_changed_at=number(5))
    anew = drained_node("a", reason_changed_at=number(6))
    other = drained_node("b", reason_changed_at=number(5))
    assert drain_times({"a": draining("MIXED", "DRAIN")}) == BEFORE
    assert lasting_drains(BEFORE, {"a": same}) == BEFORE
    assert lasting_drains(BEFORE, {"a": anew}) == {}
    assert lasting_drains(BEFORE, {}) == {}
    assert lasting_drains(BEFORE, {"a": same, "b": other}) == BEFORE


CLOUD = ("IDLE", "CLOUD", "DYNAMIC_NORM")


def test_nodes_that_drain_or_follow_power_saving_are_found_in_one_pass() -> None:
    """Of a drained node it is known since when; a node that still works is none that looks drained."""
    nodes = {
        one.name: one
        for one in (
            node("idle"),
            node("busy", "MIXED", "DRAIN", alloc=1),
            drained_node("drained", reason_changed_at=number(77)),
            drained_node("unknown"),
            node("down", *CLOUD, "POWERED_DOWN"),
            node("off", *CLOUD, "POWERING_DOWN", "DRAIN", reason_changed_at=number(78)),
        )
    }
    assert out_of_service(nodes) == OutOfService(
        draining=frozenset({"busy"}),
        drained={"drained": 77, "unknown": None, "off": 78},
        powered_down=frozenset({"down", "off"}),
        saving=True,
    )
    assert out_of_service({"idle": nodes["idle"]}) == OutOfService()


WORDS = (
    *sorted(BASE_STATES),
    "DRAIN",
    "UNDRAIN",
    "COMPLETING",
    "CLOUD",
    "DYNAMIC_NORM",
    "POWERED_DOWN",
    "NEW",
)


@given(state=st.lists(st.sampled_from(WORDS), max_size=5, unique=True), alloc=st.sampled_from([0, 1, None]))
def test_nodes_are_sorted_as_each_by_itself(state: list[str], alloc: int | None) -> None:
    """Something speaks against a drain unless the work is certainly gone, whatever the words."""
    one = node("n", *state, alloc=alloc) if state else Node(name="n", alloc_cpus=alloc)
    found = out_of_service({"n": one})
    assert ("n" in found.drained) is looks_drained(one)
    assert ("n" in found.draining) is ("DRAIN" in state and not looks_drained(one))
    assert found.saving is saves_power(one)
    assert ("n" in found.powered_down) is (saves_power(one) and looks_powered_down(one))
    idle = sum(word in BASE_STATES for word in state) == 1 and {"IDLE", "DOWN"} & {*state}
    drained = idle and alloc == 0 and "DRAIN" in state and not {"UNDRAIN", "COMPLETING", "NEW"} & {*state}
    assert (work_in_state(one, NO_JOBS) is None) is bool(drained)
