"""What happens to a fenced write between the fence and the wire, seen from the other end."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.client.connector import Attempt, Connector, FencedRequest, attempt_in_context
from slurm_operator.kube.client.tls import add_certificate, tls_context
from slurm_operator.kube.errors import ConnectionFailed, DeadlineExceeded, FencedError, Overdue
from slurm_operator.kube.models.kinds import ConfigMap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.kube.certificates import Pki

pytestmark = pytest.mark.event_loops

BODY = {"metadata": {"name": "a", "namespace": "n"}}
DEADLINE = 30.0


class Recorder:
    """A server that takes every write and remembers its query."""

    def __init__(self) -> None:
        self.timeouts: list[str | None] = []

    async def take(self, request: web.Request) -> web.Response:
        self.timeouts.append(request.query.get("timeout"))
        return web.json_response(BODY)


@asynccontextmanager
async def recorder() -> AsyncIterator[tuple[Recorder, ClientConfig]]:
    kept = Recorder()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", kept.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield kept, ClientConfig(server=f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


@asynccontextmanager
async def peer(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], pki: Pki | None = None
) -> AsyncIterator[ClientConfig]:
    """Run a server that does with each connection what the test says, over TLS if it has a certificate."""
    served = trusted = None
    if pki is not None:
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.maximum_version = ssl.TLSVersion.TLSv1_2  # which sends nothing between handshake and answer
        add_certificate(served, *pki.server, where="the test")
        trusted = tls_context(ca_data=pki.ca, where="the test")
    talks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.create_task(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):  # clients come and go as they like
            await talk(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=served)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield ClientConfig(server=f"{'http' if pki is None else 'https'}://{address}", ssl=trusted)
    finally:
        server.close()
        await asyncio.gather(*talks)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side has finished."""
    while data := await reader.read(65536):
        writer.write(data)


class Fence:
    """Gives its answers one by one, the last one for ever; None means that it is shut."""

    def __init__(self, *answers: float | None) -> None:
        self.answers = [*answers]
        self.given_up: list[float] = []

    def unanswered(self, seconds: float, /) -> None:
        self.given_up.append(seconds)

    def __call__(self) -> float:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise FencedError("the lease is lost")
        return answer


async def test_a_fence_that_shuts_before_the_bytes_leave_stops_them() -> None:
    """A lease lost between connecting and writing is a FencedError, and the server gets nothing."""
    fence = Fence(10.0, None)
    async with recorder() as (server, config), Client(config, fence=fence) as client:
        with pytest.raises(FencedError, match="the lease is lost"):
            await client.create(ConfigMap, BODY)
        assert server.timeouts == []
    assert fence.given_up == []


async def test_a_write_that_became_too_late_is_not_sent_and_tried_again() -> None:
    """When too little of the promised time is left at the moment of writing, the write begins again."""
    async with recorder() as (server, config), Client(config, fence=Fence(10.0, 7.4, 4.0, 3.1)) as client:
        await client.create(ConfigMap, BODY)
        assert server.timeouts == ["2000ms"]


async def test_a_write_that_stays_too_late_is_known_to_be_unsent() -> None:
    """However often it was tried: what never left is reported as not sent."""
    answers = [10.0, 1.0] * 1000
    async with recorder() as (server, config), Client(config, fence=Fence(*answers)) as client:
        with pytest.raises(ConnectionFailed, match="too little time") as caught:
            await client.create(ConfigMap, BODY, timeout=0.5)
        assert not caught.value.sent
        assert server.timeouts == []


async def test_an_unfenced_request_gets_the_long_patience_back() -> None:
    """On one kept connection a fenced write has a quarter of its time to be acknowledged, a read a minute."""
    async with (
        recorder() as (_, config),
        aiohttp.ClientSession(connector=Connector(), request_class=FencedRequest) as session,
    ):
        seen: list[tuple[int, int]] = []
        for attempt, method in ((Attempt(Fence(8.0)), "POST"), (Attempt(), "GET")):
            attempt_in_context.set(attempt)
            async with session.request(method, config.server, data=b"x" if method == "POST" else None):
                assert attempt._transport is not None
                used = attempt._transport.get_extra_info("socket")
                milliseconds = used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                seen.append((used.getsockname()[1], milliseconds))
        (first, fenced), (second, unfenced) = seen
        assert first == second
        assert (fenced, unfenced) == (2000, 60_000)


async def test_bytes_that_nobody_acknowledges_are_dropped_by_the_kernel() -> None:
    """A fenced write that does not get through breaks by itself, long before the deadline of the call."""

    # Nobody accepts, so the other end takes what fits into its small buffer and not a byte more.
    body = {**BODY, "data": {"k": "x" * 900_000}}
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        config = ClientConfig(server=f"http://127.0.0.1:{deaf.getsockname()[1]}")
        async with Client(config, fence=Fence(1.0)) as client:
            with pytest.raises(ConnectionFailed, match="timed out") as caught:
                await client.create(ConfigMap, body, timeout=DEADLINE)
            assert not isinstance(caught.value, DeadlineExceeded)


@pytest.mark.parametrize("fenced", [True, False])
async def test_a_fenced_write_that_is_given_up_resets_the_connection(*, fenced: bool) -> None:
    """Abandoning a fenced write throws away what is on its way and is noted; any other just ends."""
    arrived, end = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        try:
            while await reader.read(65536):
                pass
            end.set_result("end")
        except ConnectionResetError:
            end.set_result("reset")

    fence = Fence(60.0)
    async with peer(listen) as config, Client(config, fence=fence) as client:
        write = asyncio.create_task(client.raw("POST", "/x", body=b"{}", fenced=fenced))
        async with asyncio.timeout(DEADLINE):
            await arrived.wait()
            write.cancel()
            assert await end == ("reset" if fenced else "end")
    assert fence.given_up == ([45.0] if fenced else [])


@pytest.mark.parametrize("fenced", [True, False])
async def test_a_write_that_is_given_up_ends_its_connection_below_tls(pki: Pki, *, fenced: bool) -> None:
    """Over TLS, too, the connection is gone at once, and that of a fenced write is reset.

    Whether TLS says goodbye before makes no difference, so TCP is watched, by a relay. It passes no answer
    on after the request: bytes that nobody reads would reset the connection as well.
    """
    backs: list[asyncio.Task[None]] = []
    arrived, end = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await pump(reader, writer)

    async with peer(listen, pki) as behind:
        target = URL(behind.server)

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            back_reader, back_writer = await asyncio.open_connection(target.host, target.port)
            backs.append(asyncio.create_task(pump(back_reader, writer)))
            try:
                await pump(reader, back_writer)
                end.set_result("end")
            except ConnectionResetError:
                end.set_result("reset")
            back_writer.transport.abort()

        fence = Fence(60.0)
        async with peer(relay) as front:
            config = replace(behind, server=front.server.replace("http:", "https:"))
            async with asyncio.timeout(DEADLINE), Client(config, fence=fence) as client:
                write = asyncio.create_task(client.raw("POST", "/x", body=b"{}", fenced=fenced))
                await arrived.wait()
                for back in backs:
                    back.cancel()
                await asyncio.wait(backs)
                write.cancel()
                assert await end == ("reset" if fenced else "end")
    assert fence.given_up == ([45.0] if fenced else [])


async def test_a_write_whose_time_is_over_is_not_sent() -> None:
    """What may not be sent after a moment is not sent then, although there would be time for the answer."""
    loop = asyncio.get_running_loop()
    async with recorder() as (server, config), Client(config, fence=Fence(10.0)) as client:
        with pytest.raises(Overdue, match="delete ConfigMap n/a: not sent") as caught:
            await client.delete(ConfigMap, "a", "n", timeout=DEADLINE, not_after=loop.time())
        assert not caught.value.sent
        assert server.timeouts == []


async def test_a_write_that_may_wait_is_over_by_its_deadline_and_within_the_lease() -> None:
    """Of the time until its own deadline and the time of the lease, the server gets half of the shorter."""
    later = asyncio.get_running_loop().time() + DEADLINE
    async with recorder() as (server, config):
        async with Client(config, fence=Fence(10.0)) as client:
            await client.delete(ConfigMap, "a", "n", timeout=2 * DEADLINE, not_after=later)
        async with Client(config) as client:
            await client.delete(ConfigMap, "a", "n", timeout=2 * DEADLINE, not_after=later)
        fenced, own = (int((one or "").removesuffix("ms")) for one in server.timeouts)
        assert fenced == 5000
        assert fenced < own <= 1000 * DEADLINE


async def test_a_lease_that_is_lost_also_stops_a_write_that_may_wait() -> None:
    """The fence of the process is asked too, and hears of a write that was given up."""

    async def break_off(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    later = asyncio.get_running_loop().time() + DEADLINE
    async with peer(break_off) as config:
        async with Client(config, fence=Fence(None)) as client:
            with pytest.raises(FencedError):
                await client.delete(ConfigMap, "a", "n", timeout=DEADLINE, not_after=later)
        fence = Fence(8.0)
        async with Client(config, fence=fence) as client:
            with pytest.raises(ConnectionFailed) as caught:
                await client.delete(ConfigMap, "a", "n", timeout=DEADLINE, not_after=later)
            assert caught.value.sent
        assert fence.given_up == [6.0]
