"""What runs beside the passes over a NodeSet, how new Slurm's word must be, and what is tried again when."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from typing import TYPE_CHECKING

import pytest

from slurm_operator.controllers.nodeset.decide.actions import Cause, DeletePod, Proof
from slurm_operator.controllers.nodeset.decide.deletion import Confirmed, counts_until, settling, weigh
from slurm_operator.controllers.nodeset.decide.observation import Asked
from slurm_operator.controllers.nodeset.run.background import Errands, Kind, Refusals
from slurm_operator.controllers.nodeset.run.one_pass import Outcome, Trouble
from slurm_operator.controllers.nodeset.run.state import Memory
from slurm_operator.kube.meta import Key
from slurm_operator.kube.sources import Channel
from slurm_operator.slurm.view import ClusterView
from tests.unit.nodeset.making import observe
from tests.unit.slurm.views import NOW
from tests.virtualtime import virtual_time

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation

KEY = Key("slurm", "gpu")
BY_LIST = DeletePod("gpu-0", "0", "gpu-0", Cause.SCALE_IN, "drained")
BY_NAME = DeletePod("gpu-1", "1", "gpu-1", Cause.SCALE_IN, "gone", proof=Proof.NAME)


def seen(taken: float | None, asked: float | None = None) -> Observation:
    """Return a look at a list that was asked for at a moment, and whether `gpu-1` was asked for by name."""
    answers = {} if asked is None else {"gpu-1": Asked(asked, exists=False)}
    return dataclasses.replace(observe(), view=ClusterView(taken=taken), now=NOW, asked=answers)


# --------------------------------------------------------------------------------------------------- evidence
@pytest.mark.parametrize(
    ("taken", "confirmed", "until"),
    [
        (None, None, None),
        (NOW - 0.4, None, NOW + 2.6),
        (NOW - 1.0, None, None),
        # It took two seconds to arrive, and has arrived just now.
        (NOW - 2.1, Confirmed(NOW - 2.2, NOW - 2.2, NOW - 0.1), NOW + 1.9),
        # It had been asked for before that.
        (NOW - 3.0, Confirmed(NOW - 2.2, NOW - 2.2, NOW - 0.1), None),
        # It arrived, but nobody came in time.
        (NOW - 5.0, Confirmed(NOW - 5.1, NOW - 5.1, NOW - 2.0), None),
    ],
)
def test_how_long_a_list_counts(
    taken: float | None, confirmed: Confirmed | None, until: float | None
) -> None:
    """A list counts for three seconds if it is used within one, or for two after it came as asked for."""
    assert counts_until(seen(taken), confirmed) == (None if until is None else pytest.approx(until))


def test_a_list_without_a_view_counts_for_nothing() -> None:
    """Without a connection there is no evidence."""
    blind = dataclasses.replace(seen(NOW), view=None)
    assert counts_until(blind, Confirmed(NOW - 1, NOW - 1, NOW)) is None
    assert weigh(blind, None, [BY_LIST]).open == (BY_LIST,)


@pytest.mark.parametrize(
    ("asked", "confirmed", "ready"),
    [
        (None, None, ()),
        (NOW - 0.3, None, ()),
        (NOW - 0.3, Confirmed(NOW - 0.4, NOW - 0.4, NOW - 0.1), (BY_NAME,)),
        # Answered, but to an earlier question.
        (NOW - 0.5, Confirmed(NOW - 0.4, NOW - 0.4, NOW - 0.1), ()),
        (NOW - 3.9, Confirmed(NOW - 4.0, NOW - 4.0, NOW - 2.0), ()),
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
    ("changing", "written", "taken", "settles"),
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
    changing: float | None, written: float | None, taken: float | None, *, settles: bool
) -> None:
    """For some seconds the next list is waited for; after that people hear what is waited for."""
    memory = Memory("uid")
    if changing is not None:
        memory.changing["gpu-0"] = changing
    if written is not None:
        memory.written["gpu-0"] = written
    assert settling(seen(taken), memory, "gpu-0") is settles


# --------------------------------------------------------------------------------------------------- refusals
def test_what_was_refused_waits_and_the_rest_does_not() -> None:
    """Only what Slurm did not take is held back, people hear of it, and the pause grows to its end."""
    refusals: Refusals[str] = Refusals(first=5.0, longest=15.0)
    pauses = []
    for _ in range(4):
        refusals.tried(["a", "b"], ["a"], Trouble("Refused", "a"), NOW)
        outcome = Outcome()
        assert refusals.wait(["a", "b"], NOW, outcome) == {"a"}
        pauses += outcome.looks
    assert pauses == [5.0, 10.0, 15.0, 15.0]
    outcome = Outcome()
    refusals.tell(outcome)
    assert [*outcome.troubles] == [Trouble("Refused", "a")]
    assert refusals.wait(["a"], NOW + 15.0, outcome) == frozenset()
    refusals.tried(["a"], [], None, NOW + 15.0)
    assert (refusals.trouble, refusals.retry_at) == (None, 0.0)


def test_what_nobody_wants_any_more_was_not_refused() -> None:
    """A wish that is gone takes its trouble with it; one that is left keeps it."""
    refusals: Refusals[str] = Refusals(first=5.0, longest=5.0)
    refusals.tried(["a", "b"], ["a", "b"], Trouble("Refused", "both"), NOW)
    for left, told in ((["a"], 1), ([], 0)):
        refusals.keep(left)
        outcome = Outcome()
        refusals.tell(outcome)
        assert len(outcome.troubles) == told
    assert refusals.wait(["a"], NOW, Outcome()) == frozenset()


# ---------------------------------------------------------------------------------------------------- errands
class Calls:
    """Errands, and whom they call."""

    def __init__(self) -> None:
        again: Channel[Key] = Channel()
        self.news: list[Key] = []
        again.subscribe(self.news.append)
        self.errands = Errands(again)
        self.answer = asyncio.Event()

    async def errand(self, *, calls: bool = True) -> bool:
        """Wait for an answer."""
        await self.answer.wait()
        return calls

    async def answered(self) -> None:
        """Let all errands have their answer."""
        self.answer.set()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_end_of_an_errand_calls_for_a_pass() -> None:
    """The NodeSet is looked at when its errand has ended, and not before."""
    calls = Calls()
    calls.errands.start(KEY, Kind.STATE, calls.errand())
    calls.errands.start(KEY, Kind.STATE, calls.errand(calls=False))
    await asyncio.sleep(0)
    assert calls.errands.under_way(KEY) == (Kind.STATE, Kind.STATE)
    assert calls.news == []
    await calls.answered()
    assert calls.errands.under_way(KEY) == ()
    assert calls.news == [KEY]


async def test_whoever_waits_for_an_errand_is_called() -> None:
    """What came while an errand was under way is looked at when that is done, whatever came of it."""
    calls = Calls()
    assert not calls.errands.busy(KEY, Kind.FIELDS)
    calls.errands.start(KEY, Kind.FIELDS, calls.errand(calls=False))
    assert calls.errands.busy(KEY, Kind.FIELDS)
    assert not calls.errands.busy(KEY, Kind.ASK)
    await calls.answered()
    assert calls.news == [KEY]


async def test_errands_end_with_their_nodeset() -> None:
    """What is under way for a NodeSet that is gone is given up, and nobody is called."""
    calls = Calls()
    calls.errands.start(KEY, Kind.ASK, calls.errand())
    assert calls.errands.busy(KEY, Kind.ASK)
    await asyncio.sleep(0)
    calls.errands.drop(KEY)
    await calls.answered()
    assert calls.news == []
    calls.errands.start(KEY, Kind.ASK, calls.errand(calls=False))
    await calls.answered()
    assert calls.news == []


async def test_errands_end_with_the_process() -> None:
    """Whoever ends the errands waits until none is left, and none begins after that."""
    calls = Calls()
    ended: list[str] = []

    async def errand() -> bool:
        try:
            await asyncio.sleep(math.inf)
        finally:
            ended.append("ended")
        return True

    running = asyncio.create_task(calls.errands.run())
    calls.errands.start(KEY, Kind.ASK, errand())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    assert ended == ["ended"]
    calls.errands.start(KEY, Kind.ASK, errand())
    assert calls.errands.under_way(KEY) == ()
    assert calls.news == []


@virtual_time
async def test_a_defect_in_an_errand_is_no_end() -> None:
    """An errand that fails for a reason of our own calls for another pass, after a pause."""
    calls = Calls()

    async def errand() -> bool:
        raise ValueError("a defect")

    calls.errands.start(KEY, Kind.ASK, errand())
    await calls.answered()
    assert calls.errands.under_way(KEY) == ()
    assert calls.news == []
    await asyncio.sleep(60.0)
    assert calls.news == [KEY]
