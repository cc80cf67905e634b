"""When the client stops asking a slurmrestd that does not answer, and when it asks again."""

from __future__ import annotations

import asyncio

import pytest

from slurm_operator.slurm.decide.circuit_breaker import Breaker, BreakerTiming
from slurm_operator.slurm.errors import CircuitOpen, ControllerDown
from tests.support.slurm.hostile_client import failure, reader, soon
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.BAD_GATEWAY, Fault.CLOSE, Fault.PROXY_PAGE])
async def test_the_breaker_opens_after_several_failures(hostile: HostileSlurmrestd, fault: Fault) -> None:
    """After three failures in a row the next request fails without being sent, and says why."""
    async with reader(hostile, fault, breaker=Breaker(BreakerTiming(base=3600.0, cap=3600.0))) as client:
        await soon(client.ping)
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
    async with reader(hostile, concurrency=1, breaker=strict) as client:
        await client.ping()
        hostile.fault = Fault.BAD_GATEWAY
        errors = await asyncio.gather(*(failure(client.nodes()) for _ in range(5)))
        assert [type(error) for error in errors] == [ControllerDown] + [CircuitOpen] * 4
        assert len(hostile.seen("GET nodes")) == 1


async def test_the_breaker_lets_one_probe_through(hostile: HostileSlurmrestd) -> None:
    """When the pause is over, one of many requests is sent, and its success lets all others through."""
    async with reader(hostile, Fault.HANG, breaker=Breaker(BreakerTiming(base=0.001, cap=0.001))) as client:
        await soon(client.ping)
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
    async with reader(hostile, breaker=Breaker()) as client:
        hostile.fault = fault
        for _ in range(5):
            assert not isinstance(await failure(client.nodes()), CircuitOpen)


async def test_a_ping_without_response_is_no_success(hostile: HostileSlurmrestd) -> None:
    """slurmrestd that answers a ping while slurmctld is down does not close the circuit."""
    async with reader(hostile, breaker=Breaker(BreakerTiming(base=3600.0, cap=3600.0))) as client:
        hostile.pings = [{"hostname": "box", "responding": False}]
        hostile.fail(Fault.BAD_GATEWAY, on="nodes")
        for _ in range(2):
            await failure(client.nodes())
            assert not (await client.ping())[0].responding
        assert isinstance(await failure(client.nodes()), ControllerDown)
        assert isinstance(await failure(client.ping()), CircuitOpen)


async def test_a_probe_that_was_given_up_makes_room_for_the_next(hostile: HostileSlurmrestd) -> None:
    """Whoever cancels the one request that was to find out leaves the finding out to the next."""
    async with reader(hostile, breaker=Breaker(BreakerTiming(threshold=1, base=0.001, cap=0.001))) as client:
        await client.ping()
        hostile.fail(Fault.CLOSE, on="jobs")
        await failure(client.jobs())
        hostile.fail(Fault.HANG, on="nodes", times=1)
        await asyncio.sleep(0.002)
        probe = asyncio.create_task(client.nodes())
        await hostile.asked("GET nodes")
        assert isinstance(await failure(client.nodes()), CircuitOpen)
        probe.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probe
        assert await client.nodes() is not None
