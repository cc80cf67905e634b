"""The writer on a slurmrestd that misbehaves: who waits always gets an answer, and it is true."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.decide.node_changes import (
    Comment,
    Done,
    Drain,
    Failed,
    NotSent,
    NotSentReason,
    Outcome,
    Unchanged,
    Undrain,
)
from slurm_operator.slurm.errors import (
    BadReply,
    ControllerDown,
    Refused,
    RestUnreachable,
    SlurmError,
    TokenRefused,
    Unavailable,
)
from slurm_operator.slurm.model.records import NodeUpdate
from slurm_operator.slurm.rest.client import RestTiming
from slurm_operator.slurm.rest.exchange import WithdrawnError
from slurm_operator.slurm.writer.node_writer import WriterTiming
from tests.support.slurm.hostile_client import HANGING
from tests.support.slurm.hostile_replies import refusal
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd
from tests.support.slurm.logged_writer import DEADLINE, Writing, writing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from tests.support.slurm.hostile_replies import Json, Reply

# Only for what hangs: on a busy machine a good request may take longer.
IMPATIENT = RestTiming(connect=0.5, request=0.5, write=0.5)


class Choosy(HostileSlurmrestd):
    """A slurmrestd that refuses every update which names one of some nodes, and changes nothing then."""

    bad: frozenset[str] = frozenset()
    meanwhile: Callable[[], object] | None = None
    """Happens before the next update is carried out."""

    def _update(self, names: Iterable[str], body: Json) -> Reply:
        if self.meanwhile is not None:
            self.meanwhile()
        wanted = [*names]
        if self.bad & {*wanted}:
            return refusal("422 UNPROCESSABLE CONTENT", 2180)
        return super()._update(wanted, body)


@pytest.fixture
async def server() -> AsyncIterator[Choosy]:
    """Hand out a server with a hundred nodes."""
    async with Choosy() as server:
        server.add_nodes("n[000-099]", "IDLE")
        yield server


@pytest.fixture
async def slurm(server: Choosy) -> AsyncIterator[Writing]:
    """Hand out a writer to the server."""
    async with writing(server.url) as slurm:
        yield slurm


def not_sent(outcome: Outcome) -> NotSentReason | None:
    """Return why something was not sent."""
    return outcome.reason if isinstance(outcome, NotSent) else None


def posts(server: HostileSlurmrestd) -> list[tuple[str, Json]]:
    """Return the updates that the server has got: hostlist and the rest."""
    bodies = [seen.body for seen in server.seen("POST nodes")]
    return [(body["name"][0], {key: body[key] for key in body if key != "name"}) for body in bodies]


# --- collecting


async def test_wishes_of_many_become_one_request(server: Choosy, slurm: Writing) -> None:
    """A hundred callers who drain a node each with the same reason make one request."""
    names = [*server.nodes]
    outcomes = await asyncio.gather(*(slurm.writer.drain(name, "why") for name in names))
    assert outcomes == [Done()] * 100
    assert posts(server) == [("n[000-099]", {"state": ["DRAIN"], "reason": "slurm-operator: why"})]


async def test_different_updates_are_sent_apart(server: Choosy, slurm: Writing) -> None:
    """One request for each reason, and each field by itself."""
    await asyncio.gather(
        slurm.writer.write({"n000": Drain("a"), "n001": Drain("b"), "n002": Drain("a")}),
        slurm.writer.write({"n000": Comment("c"), "n001": Comment("c")}),
    )
    expected = [
        ("n[000,002]", {"state": ["DRAIN"], "reason": "slurm-operator: a"}),
        ("n001", {"state": ["DRAIN"], "reason": "slurm-operator: b"}),
        ("n[000-001]", {"comment": "c"}),
    ]
    assert sorted(posts(server), key=str) == sorted(expected, key=str)


async def test_the_last_wish_counts(server: Choosy, slurm: Writing) -> None:
    """Of several wishes for one field of a node only the last is carried out; the others are not *done*."""
    undrain, first, same, last = await asyncio.gather(
        slurm.writer.undrain("n000"),
        slurm.writer.drain("n000", "first"),
        slurm.writer.drain("n000", "last"),
        slurm.writer.drain("n000", "last"),
    )
    assert (same, last) == (Done(), Done())
    assert not_sent(undrain) is not_sent(first) is NotSentReason.SUPERSEDED
    assert [body["reason"] for _, body in posts(server)] == ["slurm-operator: last"]

    drain, undrain = await asyncio.gather(slurm.writer.drain("n001", "x"), slurm.writer.undrain("n001"))
    assert not_sent(drain) is NotSentReason.SUPERSEDED
    assert undrain == Unchanged()
    assert len(posts(server)) == 1


async def test_a_wish_that_was_given_up_takes_no_place(server: Choosy, slurm: Writing) -> None:
    """If whoever wished last does not wait any more, the wish before counts."""
    assert await slurm.writer.drain("n000", "first") == Done()
    waiting = asyncio.create_task(slurm.writer.drain("n000", "second"))
    given_up = asyncio.create_task(slurm.writer.undrain("n000"))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await waiting == Done()
    assert "DRAIN" in server.nodes["n000"]["state"]
    assert server.nodes["n000"]["reason"] == "slurm-operator: second"


async def test_what_was_decided_long_ago_is_decided_again(server: Choosy) -> None:
    """A node that a person drains while this process stands still between two updates stays theirs."""
    at = asyncio.get_running_loop().time

    def person() -> None:
        server.meanwhile = None
        server.nodes.change("n099", state=["IDLE", "DRAIN"], reason="bad disk")
        still = at() + 0.4
        while at() < still:
            pass

    async with writing(server.url, timing=WriterTiming(fresh=3600.0, valid=0.3)) as slurm:
        server.meanwhile = person
        outcomes = await slurm.writer.write({name: Drain(name) for name in server.nodes})
    assert not_sent(outcomes.pop("n099")) is NotSentReason.FOREIGN_REASON
    assert outcomes == dict.fromkeys(outcomes, Done())
    assert server.nodes["n099"]["reason"] == "bad disk"


async def test_a_wish_after_a_write_does_not_trust_the_older_view(server: Choosy, slurm: Writing) -> None:
    """What was written and not listed yet is looked at first: a drain can be taken back at once."""
    for _ in range(3):
        assert await slurm.writer.drain("n000", "why") == Done()
        assert await slurm.writer.undrain("n000") == Done()
    assert await slurm.writer.set_comment("n000", "a") == Done()
    assert await slurm.writer.set_comment("n000", "") == Done()
    assert server.nodes["n000"]["comment"] == ""
    assert "DRAIN" not in server.nodes["n000"]["state"]


async def test_long_lists_are_sent_in_parts(server: Choosy, slurm: Writing) -> None:
    """Names that cannot be folded go in several requests, and none is left out."""
    names = ["".join(chr(97 + int(digit)) for digit in f"{number:050d}") for number in range(1000)]
    for name in names:
        server.nodes.data[name] = {**server.nodes["n000"], "name": name}
    server.nodes.touch()
    await slurm.now()
    outcomes = await slurm.writer.write(dict.fromkeys(names, Drain("why")))
    assert outcomes == dict.fromkeys(names, Done())
    sent = [hostlist for hostlist, _ in posts(server)]
    assert len(sent) == 2
    assert sorted(name for hostlist in sent for name in hostlist.split(",")) == sorted(names)


# --- refusals


async def test_one_bad_node_does_not_keep_the_others(server: Choosy, slurm: Writing) -> None:
    """A refused request is tried again in halves until only the bad node is left."""
    server.bad = frozenset({"n042"})
    outcomes = await slurm.writer.write({name: Drain("why") for name in server.nodes})
    failed = outcomes.pop("n042")
    assert isinstance(failed, Failed)
    assert outcomes == dict.fromkeys(outcomes, Done())
    assert {name for name, node in server.nodes.items() if "DRAIN" not in node["state"]} == {"n042"}
    assert len(posts(server)) <= 1 + 2 * 7


async def test_refusals_come_to_an_end(server: Choosy, slurm: Writing) -> None:
    """When every node is refused, the attempts end after a fixed number of requests."""
    server.bad = frozenset(server.nodes)
    outcomes = await slurm.writer.write({name: Drain("why") for name in server.nodes})
    assert {type(outcome) for outcome in outcomes.values()} == {Failed}
    assert len(posts(server)) <= 33


async def test_results_after_a_partial_refusal_are_true(server: Choosy, slurm: Writing) -> None:
    """What was changed by a refused request is done, what is gone is not sent; nothing is claimed for it."""
    del server.nodes["n050"]
    outcomes = await slurm.writer.write({name: Comment("c") for name in ("n049", "n050", "n051")})
    assert outcomes["n049"] == outcomes["n051"] == Done()
    assert isinstance(outcomes["n050"], NotSent)
    assert outcomes["n050"].reason is NotSentReason.UNKNOWN
    assert len(posts(server)) == 1


# --- faults


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.HANG, RestUnreachable),
        (Fault.DRIP, RestUnreachable),
        (Fault.RESET, RestUnreachable),
        (Fault.CLOSE, RestUnreachable),
        (Fault.BAD_GATEWAY, ControllerDown),
        (Fault.TRUNCATED, BadReply),
        (Fault.WRONG_TYPE, BadReply),
        (Fault.INTERNAL_ERROR, Refused),
    ],
    ids=str,
)
async def test_a_write_without_an_answer_fails(server: Choosy, fault: Fault, error: type[SlurmError]) -> None:
    """Whoever waits for an update that nobody confirms hears that it failed, and may try again."""
    patience = IMPATIENT if fault in HANGING else RestTiming()
    async with writing(server.url, rest_timing=patience) as slurm:
        server.fail(fault, on="nodes")
        outcomes = await slurm.writer.write({"n000": Comment("c"), "n001": Comment("d")})
        for outcome in outcomes.values():
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, error)
        server.fault = None
        async with asyncio.timeout(DEADLINE):
            while isinstance(outcome := await slurm.writer.set_comment("n000", "c"), Failed):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert outcome in {Done(), Unchanged()}
    assert server.nodes["n000"]["comment"] == "c"


async def test_without_a_fresh_view_no_state_is_written(server: Choosy) -> None:
    """If the look before a drain fails, nothing is sent."""
    async with writing(server.url, timing=WriterTiming(refresh=0.2, fresh=0.0)) as slurm:
        server.fail(Fault.HANG, on="nodes")
        outcome = await slurm.writer.drain("n000", "why")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, Unavailable)
    assert posts(server) == []


async def test_a_refused_token_is_not_tried_for_every_group(server: Choosy, slurm: Writing) -> None:
    """After the first answer that concerns all, the other requests are not sent."""
    server.fail(Fault.TOKEN_REFUSED, on="nodes")
    outcomes = await slurm.writer.write({name: Comment(name) for name in server.nodes})
    errors = {type(outcome.error) for outcome in outcomes.values() if isinstance(outcome, Failed)}
    assert len(outcomes) == 100
    assert errors == {TokenRefused}
    assert len(posts(server)) <= 2


async def test_a_batch_has_a_deadline_of_its_own(server: Choosy) -> None:
    """Whatever the deadlines of its requests, nobody waits for a batch longer than it may take."""
    async with writing(server.url, timing=WriterTiming(batch=0.05)) as slurm:
        server.fail(Fault.HANG, on="nodes")
        outcome = await slurm.writer.set_comment("n000", "c")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, RestUnreachable)
    assert "within 0.05 seconds" in str(outcome.error)


# --- waiting


async def test_one_who_gives_up_does_not_take_the_others_along(server: Choosy, slurm: Writing) -> None:
    """Cancelling one waiter leaves the wish and the other waiters alone."""
    first = asyncio.create_task(slurm.writer.drain("n000", "why"))
    second = asyncio.create_task(slurm.writer.drain("n000", "why"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == Done()
    assert first.cancelled()
    assert "DRAIN" in server.nodes["n000"]["state"]


async def test_what_nobody_waits_for_is_not_sent(server: Choosy, slurm: Writing) -> None:
    """A wish that everybody has given up before its batch is closed is dropped."""
    waiter = asyncio.create_task(slurm.writer.drain("n000", "why"))
    await asyncio.sleep(0)
    waiter.cancel()
    assert await slurm.writer.drain("n001", "why") == Done()
    assert [hostlist for hostlist, _ in posts(server)] == ["n001"]


async def test_what_everybody_gives_up_in_the_middle_is_not_sent(server: Choosy) -> None:
    """Of a hundred different updates only those arrive that were on their way when the waiter gave up."""
    async with writing(server.url, timing=WriterTiming(fresh=3600.0, valid=3600.0)) as slurm:
        waiter = asyncio.create_task(slurm.writer.write({name: Drain(name) for name in server.nodes}))
        server.meanwhile = waiter.cancel
        await asyncio.wait({waiter})
        assert waiter.cancelled()
        server.meanwhile = None
        # The next batch begins when that one is over.
        assert await slurm.writer.drain("n099", "after all") == Done()
    reasons = [body["reason"] for _, body in posts(server)]
    assert reasons.pop() == "slurm-operator: after all"
    assert len(reasons) <= 2


async def test_an_update_that_is_not_wanted_in_the_last_moment_does_not_leave(
    server: Choosy, slurm: Writing
) -> None:
    """Who sends it learns that it was withdrawn, and it counts neither as an answer nor as a failure."""
    with pytest.raises(WithdrawnError):
        await slurm.rest.update_nodes("n000", NodeUpdate(comment="c"), lambda: False)
    assert posts(server) == []
    await slurm.rest.update_nodes("n000", NodeUpdate(comment="c"), lambda: True)
    assert posts(server) == [("n000", {"comment": "c"})]


async def test_closing_answers_everybody(server: Choosy, slurm: Writing) -> None:
    """Who waits for an update under way, for the next batch, or comes too late, hears that it was closed."""
    server.fail(Fault.HANG, on="nodes")
    under_way = asyncio.create_task(slurm.writer.write({"n000": Comment("c")}))
    async with asyncio.timeout(DEADLINE):
        while not posts(server):  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.001)
    waiting = asyncio.create_task(slurm.writer.write({"n001": Comment("c"), "n002": Undrain()}))
    await asyncio.sleep(0)
    await slurm.writer.close()
    late = await slurm.writer.write({"n003": Drain("why")})
    for outcome in [*(await under_way).values(), *(await waiting).values(), *late.values()]:
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, Unavailable)
        assert "closed" in str(outcome.error)
    assert await slurm.writer.write({}) == {}
