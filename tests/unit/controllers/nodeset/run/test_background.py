"""What runs beside the reconciles of a NodeSet, how new its view must be, and what is retried when."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from typing import TYPE_CHECKING

import pytest

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import DeletePod, Proof, RemovalCause
from slurm_operator.controllers.nodeset.decide.deletion import Confirmed, counts_until, settling, weigh
from slurm_operator.controllers.nodeset.decide.observation import NodeAnswer
from slurm_operator.controllers.nodeset.run.background import (
    AT_ONCE,
    BackgroundTasks,
    Refusals,
    TaskKind,
    each,
    slowly,
)
from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
from slurm_operator.controllers.nodeset.run.slurm_nodes import NodeWrites, in_parts
from slurm_operator.controllers.shared.problems import NodeSetProblem
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.sources import Channel
from slurm_operator.slurm.model.view import ClusterView
from tests.support.simulation.observations import observe
from tests.support.slurm.views import NOW
from tests.support.virtual_time import virtual_time

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation

KEY = Key("slurm", "gpu")
BY_LIST = DeletePod("gpu-0", "0", "gpu-0", RemovalCause.SCALE_IN, "drained")
BY_NAME = DeletePod("gpu-1", "1", "gpu-1", RemovalCause.SCALE_IN, "gone", proof=Proof.NAME)


def seen(
    listed_at: float | None, asked: float | None = None, answered_at: float | None = None
) -> Observation:
    """Return an observation of a list that was requested at a moment, with or without `gpu-1` by name."""
    answers = {} if asked is None else {"gpu-1": NodeAnswer(asked, exists=False)}
    view = ClusterView(listed_at=listed_at, answered_at=answered_at)
    return dataclasses.replace(observe(), view=view, now=NOW, asked=answers)


# --------------------------------------------------------------------------------------------------- evidence
@pytest.mark.parametrize(
    ("listed_at", "answered_at", "until"),
    [
        (None, None, None),
        (NOW - 0.4, None, NOW + 2.6),
        (NOW - 0.4, NOW - 0.2, NOW + 2.6),
        # The round that asked for it is not over.
        (NOW - 1.0, None, None),
        # It took two seconds to arrive, and has arrived just now.
        (NOW - 2.1, NOW - 0.1, NOW + 1.9),
        (NOW - 15.1, NOW - 0.1, NOW + 1.9),
        # It took too long.
        (NOW - 15.2, NOW - 0.1, None),
        # It arrived, but was not used in time.
        (NOW - 2.5, NOW - 2.0, None),
        (NOW - 5.0, NOW - 2.0, None),
    ],
)
def test_how_long_a_list_counts(
    listed_at: float | None, answered_at: float | None, until: float | None
) -> None:
    """A list counts for three seconds if it is used within one, or for two after it came."""
    found = counts_until(seen(listed_at, answered_at=answered_at))
    assert found == (None if until is None else pytest.approx(until))


def test_a_list_without_a_view_counts_for_nothing() -> None:
    """Without a connection there is no evidence."""
    blind = dataclasses.replace(seen(NOW), view=None)
    assert counts_until(blind) is None
    assert weigh(blind, None, [BY_LIST]).open == (BY_LIST,)


@pytest.mark.parametrize(
    ("asked", "confirmed", "ready"),
    [
        (None, None, ()),
        (NOW - 0.3, None, ()),
        (NOW - 0.3, Confirmed(NOW - 0.4, NOW - 0.1), (BY_NAME,)),
        # Answered, but to an earlier question.
        (NOW - 0.5, Confirmed(NOW - 0.4, NOW - 0.1), ()),
        (NOW - 3.9, Confirmed(NOW - 4.0, NOW - 2.0), ()),
    ],
)
def test_where_a_list_is_not_enough(
    asked: float | None, confirmed: Confirmed | None, ready: tuple[DeletePod, ...]
) -> None:
    """A node that is not listed must have been asked for by its name as lately as the list."""
    weighed = weigh(seen(NOW - 0.2, asked), confirmed, [BY_LIST, BY_NAME])
    assert weighed.ready == (BY_LIST, *ready)
    assert {*weighed.ready, *weighed.open} == {BY_LIST, BY_NAME}


@pytest.mark.parametrize(
    ("changing", "written", "listed_at", "settles"),
    [
        (None, None, NOW - 1, False),
        (NOW - 1, None, NOW - 0.5, True),
        (NOW - 60, None, NOW - 0.5, False),
        (None, NOW - 1, NOW - 2, True),
        (None, NOW - 1, NOW - 0.5, False),
        (None, NOW - 60, NOW - 61, False),
        (None, NOW - 1, None, True),
    ],
)
def test_what_a_pod_would_say_of_a_node_that_is_being_moved(
    changing: float | None, written: float | None, listed_at: float | None, *, settles: bool
) -> None:
    """For some seconds the next list is waited for; after that people hear what is waited for."""
    nodes = NodeWrites()
    if changing is not None:
        nodes.changing["gpu-0"] = changing
    if written is not None:
        nodes.written["gpu-0"] = written
    assert settling(seen(listed_at), nodes, "gpu-0") is settles


# --------------------------------------------------------------------------------------------------- refusals
def test_what_was_refused_waits_and_the_rest_does_not() -> None:
    """Only what Slurm did not take is delayed, an Event reports it, and the pause grows to its end."""
    refusals: Refusals[str] = Refusals(first=5.0, longest=15.0)
    pauses = []
    for _ in range(4):
        refusals.tried(["a", "b"], ["a"], NodeSetProblem(Reason.SLURM_REFUSED, "a"), NOW)
        outcome = ReconcileOutcome()
        assert refusals.wait(["a", "b"], NOW, outcome) == {"a"}
        pauses += outcome.requeues
    assert pauses == [5.0, 10.0, 15.0, 15.0]
    outcome = ReconcileOutcome()
    refusals.tell(outcome)
    assert [*outcome.troubles] == [NodeSetProblem(Reason.SLURM_REFUSED, "a")]
    assert refusals.wait(["a"], NOW + 15.0, outcome) == frozenset()
    refusals.tried(["a"], [], None, NOW + 15.0)
    assert (refusals.trouble, refusals.retry_at) == (None, 0.0)


def test_what_nobody_wants_any_more_was_not_refused() -> None:
    """A wish that is gone takes its trouble with it; one that is left keeps it."""
    refusals: Refusals[str] = Refusals(first=5.0, longest=5.0)
    refusals.tried(["a", "b"], ["a", "b"], NodeSetProblem(Reason.SLURM_REFUSED, "both"), NOW)
    for left, told in ((["a"], 1), ([], 0)):
        refusals.keep(left)
        outcome = ReconcileOutcome()
        refusals.tell(outcome)
        assert len(outcome.troubles) == told
    assert refusals.wait(["a"], NOW, ReconcileOutcome()) == frozenset()


# ------------------------------------------------------------------------------------------- background tasks
class Calls:
    """Background tasks, and whom they notify."""

    def __init__(self) -> None:
        again: Channel[Key] = Channel()
        self.news: list[Key] = []
        again.subscribe(self.news.append)
        self.background = BackgroundTasks(again)
        self.answer = asyncio.Event()

    async def background_task(self, *, calls: bool = True) -> bool:
        """Wait for an answer."""
        await self.answer.wait()
        return calls

    async def answered(self) -> None:
        """Let all background tasks have their answer."""
        self.answer.set()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_end_of_an_errand_calls_for_a_pass() -> None:
    """The NodeSet is looked at when its background task has ended, and not before."""
    calls = Calls()
    calls.background.start(KEY, TaskKind.STATE, calls.background_task())
    calls.background.start(KEY, TaskKind.STATE, calls.background_task(calls=False))
    await asyncio.sleep(0)
    assert calls.background.under_way(KEY) == (TaskKind.STATE, TaskKind.STATE)
    assert calls.news == []
    await calls.answered()
    assert calls.background.under_way(KEY) == ()
    assert calls.news == [KEY]


async def test_whoever_waits_for_an_errand_is_called() -> None:
    """What came while a background task was under way is looked at when that is done, whatever came of it."""
    calls = Calls()
    assert not calls.background.busy(KEY, TaskKind.FIELDS)
    calls.background.start(KEY, TaskKind.FIELDS, calls.background_task(calls=False))
    assert calls.background.busy(KEY, TaskKind.FIELDS)
    assert not calls.background.busy(KEY, TaskKind.ASK)
    await calls.answered()
    assert calls.news == [KEY]


async def test_errands_end_with_their_nodeset() -> None:
    """What is under way for a NodeSet that is gone is given up, and nobody is called."""
    calls = Calls()
    calls.background.start(KEY, TaskKind.ASK, calls.background_task())
    assert calls.background.busy(KEY, TaskKind.ASK)
    await asyncio.sleep(0)
    calls.background.drop(KEY)
    await calls.answered()
    assert calls.news == []
    calls.background.start(KEY, TaskKind.ASK, calls.background_task(calls=False))
    await calls.answered()
    assert calls.news == []


async def test_errands_end_with_the_process() -> None:
    """Whoever ends the background tasks waits until none is left, and none begins after that."""
    calls = Calls()
    ended: list[str] = []

    async def background_task() -> bool:
        try:
            await asyncio.sleep(math.inf)
        finally:
            ended.append("ended")
        return True

    running = asyncio.create_task(calls.background.run())
    calls.background.start(KEY, TaskKind.ASK, background_task())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    assert ended == ["ended"]
    calls.background.start(KEY, TaskKind.ASK, background_task())
    assert calls.background.under_way(KEY) == ()
    assert calls.news == []


@virtual_time
async def test_a_defect_in_an_errand_is_no_end() -> None:
    """A background task that fails for a reason of our own requests another reconcile, after a pause."""
    calls = Calls()

    async def background_task() -> bool:
        raise ValueError("a defect")

    calls.background.start(KEY, TaskKind.ASK, background_task())
    await calls.answered()
    assert calls.background.under_way(KEY) == ()
    assert calls.news == []
    await asyncio.sleep(60.0)
    assert calls.news == [KEY]


# ------------------------------------------------------------------------------------------------ many writes
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
    """When the reconcile is cancelled, so are the writes that it has under way."""
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


def test_the_fields_of_thousands_of_nodes_are_written_in_parts() -> None:
    """Each part has so many nodes of each field, in their order, until all were written."""
    comments, features = dict.fromkeys("abcde", "comment"), dict.fromkeys("ab", "features")
    assert [*in_parts([comments, features], 2)] == [
        [{"a": "comment", "b": "comment"}, {"a": "features", "b": "features"}],
        [{"c": "comment", "d": "comment"}],
        [{"e": "comment"}],
    ]
    assert [*in_parts([], 2)] == []
