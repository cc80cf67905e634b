from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api import Cluster, Controller
from slurm_operator.api.cluster import ClusterStatus
from slurm_operator.api.controller import ControllerStatus
from slurm_operator.api.shared import Condition
from slurm_operator.controllers.shared.conditions import (
    condition,
    condition_changed,
    condition_rose,
    same_status,
    set_condition,
    true_since,
)
from slurm_operator.kube.models.meta import ObjectMeta
from slurm_operator.kube.models.store import Change

NOW = datetime(2026, 11, 15, 12, 0, 0, 250_000, tzinfo=UTC)
SECOND = NOW.replace(microsecond=0)
EARLIER = SECOND - timedelta(hours=1)

READY = Condition(type="Ready", status="True", reason="Up", message="it is", last_transition_time=EARLIER)
OTHER = Condition(type="Other", status="False", reason="Down", message="no", last_transition_time=EARLIER)


def test_a_new_condition_begins_now() -> None:
    """A condition that was not there is added after the others and begins now, in whole seconds."""
    new = Condition(type="Ready", status="False", reason="Gone", message="not any more")
    assert set_condition([OTHER], new, NOW) == (
        OTHER,
        msgspec.structs.replace(new, last_transition_time=SECOND),
    )


def test_the_transition_time_moves_only_with_the_status() -> None:
    """Another reason or message keeps the time of the transition, another status moves it."""
    said = msgspec.structs.replace(READY, reason="Better", message="it still is", last_transition_time=None)
    (_, kept) = set_condition([OTHER, READY], said, NOW)
    assert kept == msgspec.structs.replace(said, last_transition_time=EARLIER)
    (moved, _) = set_condition([READY, OTHER], msgspec.structs.replace(said, status="Unknown"), NOW)
    assert moved.last_transition_time == SECOND


CONDITIONS = st.builds(
    Condition,
    type=st.sampled_from(["A", "B", "C"]),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=st.just("R"),
    last_transition_time=st.just(EARLIER),
)


@given(existing=st.lists(CONDITIONS, unique_by=lambda one: one.type), new=CONDITIONS)
def test_others_are_never_touched(existing: list[Condition], new: Condition) -> None:
    """Setting a condition leaves exactly one of its type and every other as and where it was."""
    result = set_condition(existing, new, NOW)
    assert [one for one in result if one.type != new.type] == [
        one for one in existing if one.type != new.type
    ]
    assert [one.status for one in result if one.type == new.type] == [new.status]
    assert set_condition(result, new, NOW + timedelta(days=1)) == result


@pytest.mark.parametrize(
    ("wanted", "same"),
    [
        ({"isReady": True}, True),
        ({"isReady": False}, False),
        ({"isReady": True, "observedGeneration": 3}, True),
        ({"isReady": True, "observedGeneration": 4}, False),
        ({"conditions": [msgspec.to_builtins(READY)]}, True),
        ({"conditions": [msgspec.to_builtins(OTHER)]}, True),
        ({"conditions": [msgspec.to_builtins(msgspec.structs.replace(READY, message="no"))]}, False),
        ({"conditions": [{"type": "New", "status": "True"}]}, False),
        ({}, True),
    ],
)
def test_only_what_is_wanted_counts(wanted: dict[str, Any], same: bool) -> None:  # noqa: FBT001 - a column
    """A status has what is wanted of it whatever else it has."""
    live = ClusterStatus(is_ready=True, observed_generation=3, conditions=(OTHER, READY))
    assert same_status(live, wanted) is same


@pytest.mark.parametrize(("ready", "word"), [(True, "True"), (False, "False"), (None, "Unknown")])
def test_a_condition_names_the_generation_it_is_about(ready: bool | None, word: str) -> None:  # noqa: FBT001 - a column
    """A condition says for which edit of the object it was found; not to know is Unknown."""
    live = Controller(metadata=ObjectMeta(generation=7))
    built = condition("Ready", ready, "R", "m", live)
    assert (built.status, built.observed_generation) == (word, 7)


def controller(*conditions: Condition) -> Controller:
    return Controller(status=ControllerStatus(conditions=conditions))


@pytest.mark.parametrize(
    ("old", "new", "passes"),
    [
        (None, controller(), True),
        (controller(), None, True),
        (controller(OTHER), controller(OTHER), False),
        (controller(OTHER, READY), controller(READY), True),
        (controller(READY), controller(READY, OTHER), True),
        (controller(OTHER), controller(OTHER, READY), False),
    ],
)
def test_the_predicate_sees_one_type(old: Controller | None, new: Controller | None, passes: bool) -> None:  # noqa: FBT001 - a column
    """The predicate lets through additions, deletions and what touched the condition of its type."""
    predicate = condition_changed("Other")
    assert predicate(Change(old, new)) is passes


AGAIN = msgspec.structs.replace(READY, last_transition_time=SECOND)
NOT_READY = msgspec.structs.replace(READY, status="False")


@pytest.mark.parametrize(
    ("old", "new", "passes"),
    [
        (None, controller(), True),
        (controller(), None, True),
        (controller(), controller(READY), True),
        (controller(NOT_READY), controller(AGAIN), True),
        (controller(READY), controller(AGAIN), True),
        (controller(READY), controller(READY, OTHER), False),
        (controller(READY), controller(msgspec.structs.replace(READY, reason="Better")), False),
        (controller(READY), controller(NOT_READY), False),
        (controller(READY), controller(), False),
        (controller(NOT_READY), controller(NOT_READY, OTHER), False),
    ],
)
def test_only_becoming_true_passes(old: Controller | None, new: Controller | None, passes: bool) -> None:  # noqa: FBT001 - a column
    """What becomes True passes, also if it was so before and another change was missed; nothing else does."""
    assert condition_rose("Ready")(Change(old, new)) is passes


def test_since_when_it_is_true() -> None:
    """A condition that is False, or not there, is not True since any moment."""
    found = [true_since(controller(*some), "Ready") for some in ((OTHER, READY), (NOT_READY,), ())]
    assert found == [EARLIER, None, None]


def test_the_predicate_is_for_any_kind() -> None:
    """Every kind has conditions, and the predicate reads them all the same way."""
    ready = Cluster(status=ClusterStatus(conditions=(READY,)))
    assert condition_changed("Ready")(Change(Cluster(), ready))
