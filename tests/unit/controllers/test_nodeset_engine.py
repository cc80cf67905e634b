"""The small parts of the NodeSet engine that need no API server."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from slurm_operator.api.shared import Condition
from slurm_operator.controllers.nodeset.run import report
from slurm_operator.controllers.nodeset.run.one_pass import AT_ONCE, Outcome, each, slowly
from slurm_operator.controllers.nodeset.run.state import Memories
from slurm_operator.controllers.nodeset.run.watches import concerns_all
from slurm_operator.kube.errors import Conflict, FencedError, Forbidden, ServerError
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.model import Node
from slurm_operator.slurm.view import ClusterView, NodeChange, ViewUpdate


class Crowd:
    """Counts how many are at work; `fail` is the number of the one that fails."""

    def __init__(self, fail: int = -1) -> None:
        self.fail = fail
        self.begun: list[int] = []
        self.widths: list[int] = []
        self.most = 0
        self._working = 0

    async def work(self, item: int) -> bool:
        """Take two turns of the loop."""
        self.begun.append(item)
        self._working += 1
        self.widths.append(self._working)
        self.most = max(self.most, self._working)
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            self._working -= 1
        return item != self.fail


# ------------------------------------------------------------------------------------------------ many writes
async def test_slow_start_doubles_until_it_is_wide_enough() -> None:
    """The first write is alone, each answer lets two follow, and there are never more than allowed."""
    crowd = Crowd()
    assert await slowly(range(1000), crowd.work) == 1000
    assert crowd.begun == [*range(1000)]
    assert crowd.widths[:3] == [1, 1, 2]
    assert crowd.most == AT_ONCE


async def test_slow_start_ends_with_the_first_failure() -> None:
    """After a failure nothing new is begun; what is under way may end."""
    crowd = Crowd(fail=0)
    assert await slowly(range(1000), crowd.work) == 1
    crowd = Crowd(fail=20)
    begun = await slowly(range(1000), crowd.work)
    assert 21 <= begun < 21 + AT_ONCE


async def test_slow_start_leaves_nobody_behind() -> None:
    """When the pass is cut off, so are the writes that it has under way."""
    ended = []

    async def work(item: int) -> bool:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(item)
        return True

    task = asyncio.create_task(slowly(range(10), work))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [0]


async def test_equal_writes_go_side_by_side() -> None:
    """All items are worked on, as many at a time as are allowed."""
    crowd = Crowd()
    await each(range(200), crowd.work)
    assert sorted(crowd.begun) == [*range(200)]
    assert crowd.most == AT_ONCE


async def test_what_takes_too_long_is_left_for_later() -> None:
    """After its time nothing new is begun, and whoever asked hears that not all is done."""
    crowd = Crowd()
    assert await each(range(200), crowd.work, 0.0) == [*range(200)]
    assert crowd.begun == []
    assert await each(range(200), crowd.work, 3600.0) == []


# ---------------------------------------------------------------------------------------------------- outcome
def test_a_conflict_is_no_trouble_and_asks_for_another_look() -> None:
    """Somebody was faster: nobody needs to hear of it, and the pass is no failure."""
    outcome = Outcome()
    outcome.failed("Pod 'a' could not be changed", Conflict("changed", status=409))
    assert (outcome.troubles, outcome.errors) == ({}, [])
    assert outcome.looks


def test_a_failure_is_a_trouble_that_names_the_object() -> None:
    """A refused write is told with what was wanted and why not, and the pass is tried again."""
    outcome = Outcome()
    error = ServerError("broken", status=500)
    outcome.failed("Pod 'a' could not be created", error)
    assert outcome.errors == [error]
    assert [trouble.message for trouble in outcome.troubles] == [
        "Pod 'a' could not be created: ServerError: broken"
    ]


def test_a_namespace_that_ends_is_no_trouble() -> None:
    """What cannot be made because its namespace goes is tried again in silence."""
    outcome = Outcome()
    details = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
    outcome.failed("Pod 'a'", Forbidden("no", status=403, reason="Forbidden", details=details))
    assert outcome.troubles == {}
    assert outcome.errors


def test_a_lost_lease_ends_everything() -> None:
    """Nothing may be written any more, so the rest of the plan is not even tried."""
    with pytest.raises(FencedError):
        Outcome().failed("Pod 'a'", FencedError("the lease is lost"))


# ------------------------------------------------------------------------------------------------------- view
BEFORE = ClusterView(taken=1.0, complete=True)
CHANGE = NodeChange("n", None, Node(name="n"))


@pytest.mark.parametrize(
    ("changed", "all_of_them"),
    [
        ({}, False),
        ({"suspicion": "half of it is missing"}, True),
        ({"complete": False}, True),
        ({"just_started": True}, True),
        ({"failure": RestUnreachable("away")}, True),
        ({"reservations": {"r": object()}}, True),
    ],
)
async def test_news_of_single_nodes_go_to_their_nodesets_only(
    changed: dict[str, Any], *, all_of_them: bool
) -> None:
    """What changes the outlook on the whole cluster concerns every NodeSet of it; a node alone does not."""
    after = dataclasses.replace(BEFORE, **changed)
    assert concerns_all(ViewUpdate(after, BEFORE, (CHANGE,))) is all_of_them


async def test_an_update_without_nodes_concerns_all() -> None:
    """It says that the view as a whole is another one: older, for example."""
    assert concerns_all(ViewUpdate(BEFORE, BEFORE, ()))


# ------------------------------------------------------------------------------------------ memory and status
def test_another_nodeset_of_the_same_name_starts_with_nothing() -> None:
    """The memory belongs to the UID."""
    memories = Memories()
    first = memories.of("key", "1")
    assert memories.of("key", "1") is first
    assert memories.of("key", "2") is not first
    memories.forget("key")
    assert memories.of("key", "2").workers == {}


def test_troubles_come_before_what_the_plan_complains_of() -> None:
    """The reason is that of the first trouble; the message has them all, and what else is wrong."""
    outcome = Outcome()
    for number in range(5):
        outcome.trouble(f"Reason{number}", f"trouble {number}")
    fine = Condition(type="Degraded", status="False", reason="AsExpected", message="nothing is wrong")
    found = report.degraded(fine, outcome)
    assert (found.status, found.reason) == ("True", "Reason0")
    assert found.message == "trouble 0; trouble 1; trouble 2; and 2 more"
    wrong = Condition(type="Degraded", status="True", reason="PodsFailed", message="1 pods have failed")
    assert report.degraded(wrong, outcome).message.endswith("; 1 pods have failed")
    ready = Condition(type="Ready", status="True", reason="AllAvailable", message="all")
    assert report.degraded(ready, outcome) == ready
    assert report.degraded(fine, Outcome()) == fine
