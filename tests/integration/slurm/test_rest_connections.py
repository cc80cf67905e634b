"""What becomes of connections and slots: kept, broken, given up, or spoiled by bytes nobody asked for."""

from __future__ import annotations

import asyncio
import gc
import traceback
import warnings

import pytest

from slurm_operator.slurm.decode.refusals import Reply
from slurm_operator.slurm.errors import RestUnreachable
from slurm_operator.slurm.rest.client import RestClient, RestTiming
from slurm_operator.slurm.rest.exchange import _LOOKUPS
from tests.support.slurm.hostile_client import DRAIN, TOKEN, failure, gone, reader, soon
from tests.support.slurm.hostile_server import Fault, HostileSlurmrestd

pytestmark = pytest.mark.event_loops


async def test_a_read_on_a_kept_connection_that_died_is_asked_again(hostile: HostileSlurmrestd) -> None:
    """A connection that the server closed while it was idle costs nothing but another connection."""
    hostile.add_nodes("n1")
    async with reader(hostile) as client:
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
    async with reader(hostile) as client:
        await client.ping()
        hostile.fault = Fault.POISON
        for _ in range(3):
            listed = await client.nodes()
            assert listed is not None
            assert len(listed.nodes) == 9
            await gone(hostile)


async def test_what_came_before_a_question_is_no_answer_to_it(hostile: HostileSlurmrestd) -> None:
    """A false list that waits on a kept connection, not yet read, is not taken for the one asked for next."""
    hostile.add_nodes("n[1-9]")
    false = b'{"nodes": [], "last_update": {"set": true, "infinite": false, "number": 1}}'
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(false)}\r\n\r\n"
    async with reader(hostile) as client:
        for _ in range(3):
            listed = await client.nodes()
            assert listed is not None
            assert len(listed.nodes) == 9
            assert hostile.open_connections > 0
            hostile.whisper(head.encode() + false)


async def test_a_read_is_asked_again_only_once(hostile: HostileSlurmrestd) -> None:
    """A server that cuts every connection is not asked for ever."""
    async with reader(hostile) as client:
        await client.ping()
        hostile.fault = Fault.CLOSE
        await failure(client.nodes())
        assert len(hostile.seen("GET nodes")) == 2


async def test_an_error_tells_whether_the_request_was_sent(hostile: HostileSlurmrestd) -> None:
    """A refused connection has sent nothing; a cut one may have."""
    hostile.add_nodes("n1")
    async with reader(hostile) as client:
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
    async with reader(hostile, Fault.HANG) as client:
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
    async with reader(hostile, concurrency=8) as client:
        for _ in range(20):
            await client.update_nodes("n1", DRAIN)
        await asyncio.gather(*(client.nodes() for _ in range(20)))
        assert hostile.connections > 20
        await gone(hostile, but=4)
    await gone(hostile)


async def test_connections_of_a_burst_are_not_kept_for_ever(hostile: HostileSlurmrestd) -> None:
    """While one connection is used again and again, those that are not are closed after a while."""
    hostile.add_nodes("n1")
    async with reader(hostile, timing=RestTiming(keep_idle=0.5)) as client:
        await asyncio.gather(*(client.nodes() for _ in range(20)))
        assert hostile.open_connections > 1
        async with asyncio.timeout(30):
            while hostile.open_connections > 1:
                await asyncio.sleep(0.1)
                await client.nodes()
        before = hostile.connections
        await client.nodes()
        assert hostile.connections == before


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
    async with reader(hostile, concurrency=1) as client:
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
    client = reader(hostile)
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


async def test_a_client_that_is_closed_while_it_connects_sends_nothing(hostile: HostileSlurmrestd) -> None:
    """A connection that is there only after the client was closed carries no request."""
    client = reader(hostile)
    connecting = asyncio.create_task(failure(client.nodes()))
    await asyncio.sleep(0)
    await client.close()
    error = await connecting
    assert "closed" in str(error)
    assert not error.sent
    await gone(hostile)
    assert hostile.log == []


async def test_an_error_does_not_keep_the_answer(hostile: HostileSlurmrestd) -> None:
    """Whoever keeps an error for long keeps neither the answer, which may be huge, nor the token with it."""
    async with reader(hostile) as client:
        await client.ping()
        for fault in (Fault.TRUNCATED, Fault.BAD_GATEWAY, Fault.HUGE):
            hostile.fault = fault
            error = await failure(client.nodes())
            for frame, _ in traceback.walk_tb(error.__traceback__):
                assert not any(isinstance(value, Reply) for value in frame.f_locals.values())
                assert not any(
                    TOKEN in value.values() for value in frame.f_locals.values() if isinstance(value, dict)
                )


async def test_a_read_given_up_while_it_connects_leaves_no_socket(hostile: HostileSlurmrestd) -> None:
    """Wherever on its way to the server a request is cancelled, its socket is closed."""
    hostile.add_nodes("n1")
    async with reader(hostile) as warm:
        await warm.nodes()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for steps in range(20):
            async with reader(hostile) as client:
                asking = asyncio.create_task(client.nodes())
                for _ in range(steps):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait({asking})
            await gone(hostile)
            gc.collect()
    assert [str(one.message) for one in said if one.category is ResourceWarning] == []


async def test_a_connection_is_opened_kept_and_ended(hostile: HostileSlurmrestd) -> None:
    """Requests are sent on one connection, which ends with its client."""
    hostile.add_nodes("n[1-3]")
    async with reader(hostile) as client:
        for _ in range(3):
            assert await client.nodes() is not None
        assert hostile.connections == 1
    await gone(hostile)


async def test_a_name_is_looked_up_by_one_thread_at_most(hostile: HostileSlurmrestd) -> None:
    """However many requests wait for a name, one lookup is under way, and all use what it finds."""
    url = hostile.url.replace("127.0.0.1", "localhost")
    before = _LOOKUPS._work_queue.qsize()
    async with RestClient(url, lambda: TOKEN) as client:
        await asyncio.gather(*(client.ping() for _ in range(4)))
        transport = client._transport
        waiting = [asyncio.ensure_future(transport._addresses()) for _ in range(50)]
        await asyncio.sleep(0)
        assert _LOOKUPS._work_queue.qsize() <= before + 1
        for one in waiting[:40]:
            one.cancel()
        found = await asyncio.gather(*waiting[40:])
        assert all("127.0.0.1" in addresses for addresses in found)
