"""How events of a watch are gathered: those that trickle wait for each other, those of a burst do not."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import json
import ssl
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client import watch_stream
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.client.tls import add_certificate, tls_context
from slurm_operator.kube.models.kinds import ConfigMap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.kube.certificates import Pki

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
DEADLINE = 30.0


def event(number: int, size: int = 7_800) -> bytes:
    """Return one event as the API server sends it: a line of about that size, in a chunk of its own."""
    metadata = {"name": f"a-{number}", "namespace": "n", "resourceVersion": str(number)}
    body = {"type": "MODIFIED", "object": {"metadata": metadata, "data": {"k": "x" * (size - 150)}}}
    line = json.dumps(body).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as little at a time as the operator does (`process.memory`)."""
    monkeypatch.setattr(asyncio.sslproto.SSLProtocol, "max_size", 32 * 1024)


@asynccontextmanager
async def server(pki: Pki, talk: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[Client]:
    """Serve one watch over TLS as the test says; hand out a client for it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        await talk(writer)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    add_certificate(context, *pki.server, where="the test")
    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    address = listening.sockets[0].getsockname()
    config = ClientConfig(
        server=f"https://127.0.0.1:{address[1]}", ssl=tls_context(ca_data=pki.ca, where="the test")
    )
    try:
        async with Client(config) as client:
            yield client
    finally:
        listening.close()


async def received(client: Client, count: int) -> int:
    """Return how many events arrive, up to a count."""
    found = 0
    async with aclosing(client.watch(ConfigMap, "n", resource_version="1")) as events:
        async for _ in events:
            found += 1
            if found == count:
                break
    return found


async def test_a_burst_does_not_wait_for_the_clock(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 events arrive as fast as they can be read: not one read waits until its time is over."""
    monkeypatch.setattr(watch_stream, "_BATCH_SECONDS", 10 * DEADLINE)
    batch = b"".join(event(number) for number in range(1, 101))

    async def talk(writer: asyncio.StreamWriter) -> None:
        for _ in range(101):  # the last ones wait for more
            writer.write(batch)
            await writer.drain()

    async with asyncio.timeout(DEADLINE), server(pki, talk) as client:
        assert await received(client, 10_000) == 10_000


async def test_the_rest_of_a_burst_waits_a_moment_only(pki: Pki) -> None:
    """Less than a batch is read as well, although the stream stays open and silent."""
    over = asyncio.Event()

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(event(number) for number in range(1, 101)))
        await over.wait()

    async with asyncio.timeout(DEADLINE), server(pki, talk) as client:
        assert await received(client, 100) == 100
        over.set()


async def test_events_that_trickle_are_read_together(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first, which is read at once, events of some milliseconds share one read."""
    monkeypatch.setattr(watch_stream, "_BATCH_SECONDS", 1.0)
    sizes: list[int] = []
    feed = watch_stream.LineSplitter.feed

    def counted(self: watch_stream.LineSplitter, chunk: bytes) -> list[bytes]:
        lines = feed(self, chunk)
        sizes.append(len(lines))
        return lines

    monkeypatch.setattr(watch_stream.LineSplitter, "feed", counted)

    async def talk(writer: asyncio.StreamWriter) -> None:
        for number in range(1, 11):
            writer.write(event(number, 500))
            await asyncio.sleep(0.01)

    async with asyncio.timeout(DEADLINE), server(pki, talk) as client:
        assert await received(client, 10) == 10
    assert sizes == [1, 9]
