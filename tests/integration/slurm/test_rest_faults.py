"""What the client makes of a slurmrestd that misbehaves in every way we could think of."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from slurm_operator.slurm.breaker import Breaker, BreakerTiming
from slurm_operator.slurm.errors import (
    BadReply,
    CircuitOpen,
    ControllerDown,
    NoCommonVersion,
    Refused,
    RestUnreachable,
    SlurmError,
    TokenRefused,
)
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.rest import RestClient, RestTiming
from tests.integration.slurm.hostile import Fault, HostileSlurmrestd, job

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

TOKEN = "eyJhbGciOiJIUzI1NiJ9.t0p-s3cret.signature"  # noqa: S105 - the one that must not show up anywhere
# Short, for hanging requests run into it; good ones that do on a busy machine are asked again, see `soon`.
SHORT = RestTiming(connect=5.0, request=0.3, write=0.3)
PATIENT = BreakerTiming(threshold=10**6)
DRAIN = NodeUpdate(state=("DRAIN",), reason="slurm-operator: test")

FAULTS: dict[Fault, type[SlurmError]] = {
    Fault.ERRORS: Refused,
    Fault.ABSENT_LIST: BadReply,
    Fault.NULL_LIST: BadReply,
    Fault.NO_TIME: BadReply,
    Fault.MALFORMED_ENTRY: BadReply,
    Fault.NAMELESS_ENTRY: BadReply,
    Fault.TRUNCATED: BadReply,
    Fault.GARBAGE: BadReply,
    Fault.WRONG_TYPE: BadReply,
    Fault.NOT_HTTP: BadReply,
    Fault.HUGE: BadReply,
    Fault.HUGE_HEADERS: BadReply,
    Fault.REDIRECT: BadReply,
    Fault.UNAUTHORIZED: TokenRefused,
    Fault.TOKEN_REFUSED: TokenRefused,
    Fault.NOT_FOUND: NoCommonVersion,
    Fault.INTERNAL_ERROR: Refused,
    Fault.BAD_GATEWAY: ControllerDown,
    Fault.CONTROLLER_HANGS: ControllerDown,
    Fault.PROXY_PAGE: RestUnreachable,
    Fault.HANG: RestUnreachable,
    Fault.DRIP: RestUnreachable,
    Fault.CLOSE: RestUnreachable,
    Fault.RESET: RestUnreachable,
    Fault.SHORT_BODY: RestUnreachable,
    Fault.LONG_BODY: BadReply,
    Fault.CUT_CHUNKED: RestUnreachable,
}
# A list that is well-formed and wrong: nothing in the reply itself tells, the view has to.
DECEPTIVE = {Fault.EMPTY, Fault.HALF, Fault.UNKNOWN_WORDS}
HARMLESS = {Fault.POISON}


def reader(server: HostileSlurmrestd, **options: Any) -> RestClient:
    options = {"timing": SHORT, "breaker": Breaker(PATIENT), "max_reply": 2**20, **options}
    return RestClient(server.url, lambda: TOKEN, **options)


async def failure(call: Awaitable[object]) -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        await call
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "s3cret" not in told
    assert caught.value.__cause__ is None
    return caught.value


async def soon(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until it is answered."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except CircuitOpen as error:
                await asyncio.sleep(error.retry_after)
            except RestUnreachable:
                continue


async def gone(server: HostileSlurmrestd, but: int = 0) -> None:
    """Wait until all connections but a few have ended."""
    async with asyncio.timeout(60):
        while server.open_connections > but:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.005)


def populate(server: HostileSlurmrestd) -> None:
    server.add_nodes("n[1-9]")
    server.jobs[1] = job(1, "n1")


def test_every_fault_is_covered() -> None:
    """No fault that the server knows is left out here."""
    assert {*FAULTS} | DECEPTIVE | HARMLESS == {*Fault}


@pytest.mark.parametrize(("fault", "kind"), FAULTS.items())
async def test_a_fault_is_the_error_that_fits_and_passes(
    hostile: HostileSlurmrestd, fault: Fault, kind: type[SlurmError]
) -> None:
    """Each fault of a list is its own error, never a list, and is over when the fault is."""
    populate(hostile)
    async with reader(hostile) as client:
        before = await soon(client.nodes)
        hostile.fault = fault
        for ask in (client.nodes, client.jobs):
            error = await failure(ask())
            assert type(error) is kind
            assert f" of {hostile.url}: " in str(error)
            assert len(str(error)) < 600
        hostile.fault = None
        assert await soon(client.nodes) == before


@pytest.mark.parametrize(("fault", "kind"), FAULTS.items())
async def test_a_fault_at_first_contact_passes(
    hostile: HostileSlurmrestd, fault: Fault, kind: type[SlurmError]
) -> None:
    """A client that meets only faults at first works as soon as they stop."""
    populate(hostile)
    async with reader(hostile) as client:
        hostile.fault = fault
        assert isinstance(await failure(client.nodes()), kind | BadReply | RestUnreachable)
        hostile.fault = None
        listed = await soon(client.nodes)
        assert listed is not None
        assert len(listed.nodes) == 9


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {Fault.NOT_FOUND}))
async def test_a_write_is_never_repeated(hostile: HostileSlurmrestd, fault: Fault) -> None:
    """Whatever becomes of a write, it is sent once, and nothing looks like a success that was none."""
    hostile.add_nodes("n[1-3]")
    async with reader(hostile) as client:
        await soon(client.ping)
        hostile.fault = fault
        outcomes = await asyncio.gather(
            client.update_nodes("n[1-3]", DRAIN),
            client.delete_node("n1"),
            client.reconfigure(),
            return_exceptions=True,
        )
        for what in ("POST nodes", "DELETE node", "GET reconfigure"):
            assert len(hostile.seen(what)) == 1
        hostile.fault = None
        state = hostile.nodes["n2"]["state"]
        assert (outcomes[0] is None) <= ("DRAIN" in state)
        assert all(outcome is None or isinstance(outcome, SlurmError) for outcome in outcomes)


async def test_deceptive_lists_are_what_they_say(hostile: HostileSlurmrestd) -> None:
    """An empty or half list is passed on as it came, with unknown words: judging is the view's task."""
    populate(hostile)
    async with reader(hostile, timing=RestTiming()) as client:
        sizes = {}
        for fault in sorted(DECEPTIVE):
            hostile.fault = fault
            listed = await client.nodes()
            assert listed is not None
            sizes[fault] = len(listed.nodes)
        assert sizes == {Fault.EMPTY: 0, Fault.HALF: 4, Fault.UNKNOWN_WORDS: 9}
        jobs = await client.jobs()
        assert jobs is not None
        assert not jobs.jobs[0].finished


async def test_a_long_list_is_read_when_it_may_be_long(hostile: HostileSlurmrestd) -> None:
    """Ten megabytes are no problem where they are expected."""
    hostile.add_nodes("n[1-9]")
    async with reader(hostile, max_reply=2**24, timing=RestTiming()) as client:
        hostile.fail(Fault.HUGE, on="nodes")
        listed = await client.nodes()
        assert listed is not None
        assert len(listed.nodes) == 9


async def test_a_read_on_a_kept_connection_that_died_is_asked_again(hostile: HostileSlurmrestd) -> None:
    """A connection that the server closed while it was idle costs nothing but another connection."""
    hostile.add_nodes("n1")
    async with reader(hostile, timing=RestTiming()) as client:
        await client.nodes()
        await client.nodes()
        await client.jobs()
        assert hostile.connections == 1
        for fault in (Fault.CLOSE, Fault.RESET, Fault.CUT_CHUNKED):
            hostile.fail(fault, on="nodes", times=1)
            assert await client.nodes() is not None
        hostile.cut()
        assert await client.nodes() is not None


async def test_what_nobody_asked_for_is_no_answer(hostile: HostileSlurmrestd) -> None:
    """Bytes that arrive on a connection at rest end it, and are not taken for the next answer."""
    hostile.add_nodes("n[1-9]")
    async with reader(hostile, timing=RestTiming()) as client:
        await client.ping()
        hostile.fault = Fault.POISON
        for _ in range(3):
            listed = await client.nodes()
            assert listed is not None
            assert len(listed.nodes) == 9
            await gone(hostile)


async def test_a_read_is_asked_again_only_once(hostile: HostileSlurmrestd) -> None:
    """A server that cuts every connection is not asked for ever."""
    async with reader(hostile, timing=RestTiming()) as client:
        await client.ping()
        hostile.fault = Fault.CLOSE
        await failure(client.nodes())
        assert len(hostile.seen("GET nodes")) == 2


async def test_an_error_tells_whether_the_request_was_sent(hostile: HostileSlurmrestd) -> None:
    """A refused connection has sent nothing; a cut one may have."""
    hostile.add_nodes("n1")
    async with reader(hostile, timing=RestTiming()) as client:
        await client.ping()
        hostile.fault = Fault.CLOSE
        assert (await failure(client.update_nodes("n1", DRAIN))).sent
        hostile.fault = None
        await hostile.stop()
        error = await failure(client.update_nodes("n1", DRAIN))
        assert type(error) is RestUnreachable
        assert "Connection refused" in str(error)
        assert not error.sent
        await hostile.start()
        await client.update_nodes("n1", DRAIN)
        assert "DRAIN" in hostile.nodes["n1"]["state"]


async def test_a_write_that_waits_for_a_version_was_not_sent(hostile: HostileSlurmrestd) -> None:
    """A server that fails at first contact has not seen the write that brought us there."""
    async with reader(hostile) as client:
        for fault in (Fault.CLOSE, Fault.TOKEN_REFUSED, Fault.GARBAGE, Fault.NOT_FOUND):
            hostile.fault = fault
            assert not (await failure(client.update_nodes("n1", DRAIN))).sent
        hostile.fault = Fault.HANG
        error = await failure(client.update_nodes("n1", DRAIN))
        assert type(error) is RestUnreachable
        assert not error.sent
        assert "agreeing on a version" in str(error)


async def test_connections_do_not_pile_up(hostile: HostileSlurmrestd) -> None:
    """Each write has a connection of its own, and only a few are kept."""
    hostile.add_nodes("n1")
    async with reader(hostile, timing=RestTiming(), concurrency=8) as client:
        for _ in range(20):
            await client.update_nodes("n1", DRAIN)
        await asyncio.gather(*(client.nodes() for _ in range(20)))
        assert hostile.connections > 20
        await gone(hostile, but=4)
    await gone(hostile)


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    """A wrong host name is an unreachable slurmrestd, and the message says so."""
    async with RestClient("http://no-such-host.invalid:6820", lambda: TOKEN) as client:
        error = await failure(client.nodes())
        assert type(error) is RestUnreachable
        assert not error.sent


async def test_a_request_waits_for_its_slot_no_longer_than_its_deadline(hostile: HostileSlurmrestd) -> None:
    """Requests beyond the limit wait for a slot, and their deadline counts meanwhile."""
    timing = RestTiming(request=0.3, write=60.0)
    async with reader(hostile, concurrency=2, timing=timing) as client:
        await soon(client.ping)
        hostile.fail(Fault.HANG, on="reconfigure")
        hanging = [asyncio.create_task(client.reconfigure()) for _ in range(2)]
        await hostile.asked("GET reconfigure", 2)
        errors = await asyncio.gather(*(failure(client.nodes()) for _ in range(6)))
        assert hostile.seen("GET nodes") == []
        assert not any(error.sent for error in errors)
        assert all("waiting for a free slot" in str(error) for error in errors)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await soon(client.nodes)


async def test_cancelled_requests_leave_nothing_behind(hostile: HostileSlurmrestd) -> None:
    """Whoever gives up a request gives its slot back, and its connection is not used again."""
    hostile.add_nodes("n1")
    async with reader(hostile, concurrency=1, timing=RestTiming()) as client:
        await client.ping()
        hostile.fail(Fault.HANG, on="nodes", times=3)
        for count in (1, 2, 3):
            task = asyncio.create_task(client.nodes())
            await hostile.asked("GET nodes", count)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await client.nodes() is not None


async def test_a_closed_client_says_so(hostile: HostileSlurmrestd) -> None:
    """Requests under way when a client is closed, and later ones, are unavailable."""
    client = reader(hostile, timing=RestTiming())
    await client.ping()
    hostile.fault = Fault.HANG
    waiting = asyncio.create_task(failure(client.nodes()))
    await hostile.asked("GET nodes")
    await client.close()
    assert type(await waiting) is RestUnreachable
    error = await failure(client.nodes())
    assert type(error) is RestUnreachable
    assert "closed" in str(error)
    assert not error.sent


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.BAD_GATEWAY, Fault.CLOSE, Fault.PROXY_PAGE])
async def test_the_breaker_opens_after_several_failures(hostile: HostileSlurmrestd, fault: Fault) -> None:
    """After three failures in a row the next request fails without being sent, and says why."""
    async with reader(hostile, breaker=Breaker(BreakerTiming(base=3600.0, cap=3600.0))) as client:
        await client.ping()
        hostile.fault = fault
        failed = await asyncio.gather(*(failure(client.nodes()) for _ in range(3)))
        sent = len(hostile.log)
        error = await failure(client.nodes())
        assert isinstance(error, CircuitOpen)
        assert not error.sent
        assert 0 < error.retry_after <= 3600
        assert str(failed[0]) in str(error)
        assert len(hostile.log) == sent
        hostile.fault = None
        client.breaker.reset()
        assert await soon(client.nodes) is not None


async def test_who_waited_for_a_slot_is_told_that_the_circuit_has_opened(hostile: HostileSlurmrestd) -> None:
    """A request that waits for its slot while the circuit opens is not sent."""
    strict = Breaker(BreakerTiming(threshold=1, base=3600.0, cap=3600.0))
    async with reader(hostile, timing=RestTiming(), concurrency=1, breaker=strict) as client:
        await client.ping()
        hostile.fault = Fault.BAD_GATEWAY
        errors = await asyncio.gather(*(failure(client.nodes()) for _ in range(5)))
        assert [type(error) for error in errors] == [ControllerDown] + [CircuitOpen] * 4
        assert len(hostile.seen("GET nodes")) == 1


async def test_the_breaker_lets_one_probe_through(hostile: HostileSlurmrestd) -> None:
    """When the pause is over, one of many requests is sent, and its success lets all others through."""
    async with reader(hostile, breaker=Breaker(BreakerTiming(base=0.001, cap=0.001))) as client:
        await client.ping()
        hostile.fault = Fault.CLOSE
        for _ in range(3):
            await failure(client.jobs())
        hostile.fault = Fault.HANG
        hostile.log.clear()
        await asyncio.sleep(0.002)
        errors = await asyncio.gather(*(failure(client.nodes()) for _ in range(20)))
        assert len(hostile.log) == 1
        assert sum(isinstance(error, CircuitOpen) for error in errors) == 19
        hostile.fault = None
        await soon(client.nodes)
        await asyncio.gather(*(soon(client.nodes) for _ in range(20)))


@pytest.mark.parametrize("fault", [Fault.TOKEN_REFUSED, Fault.ERRORS, Fault.TRUNCATED, Fault.NOT_FOUND])
async def test_an_answer_of_any_kind_keeps_the_breaker_closed(
    hostile: HostileSlurmrestd, fault: Fault
) -> None:
    """A server that answers is not left alone, whatever it answers."""
    async with reader(hostile, timing=RestTiming(), breaker=Breaker()) as client:
        hostile.fault = fault
        for _ in range(5):
            assert not isinstance(await failure(client.nodes()), CircuitOpen)


async def test_a_ping_without_response_is_no_success(hostile: HostileSlurmrestd) -> None:
    """slurmrestd that answers a ping while slurmctld is down does not close the circuit."""
    async with reader(
        hostile, timing=RestTiming(), breaker=Breaker(BreakerTiming(base=3600.0, cap=3600.0))
    ) as client:
        hostile.pings = [{"hostname": "box", "responding": False}]
        hostile.fail(Fault.BAD_GATEWAY, on="nodes")
        for _ in range(2):
            await failure(client.nodes())
            assert not (await client.ping())[0].responding
        assert isinstance(await failure(client.nodes()), ControllerDown)
        assert isinstance(await failure(client.ping()), CircuitOpen)
