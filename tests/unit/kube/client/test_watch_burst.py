"""How events of a watch are gathered: those that trickle wait for each other, those of a burst do not.

No test waits for time to pass: where only time could end a wait, there is so much of it that the test fails.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.calls import collection_call
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.client.tls import add_certificate, tls_context
from slurm_operator.kube.client.transport import Transport
from slurm_operator.kube.client.watch_stream import Batching, LineSplitter
from slurm_operator.kube.models.kinds import ConfigMap

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from tests.support.kube.certificates import Pki

pytestmark = pytest.mark.event_loops

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DEADLINE = 30.0
TOO_LONG = 10 * DEADLINE


def event(number: int, size: int = 7_800) -> bytes:
    """Return one event as the API server sends it: a line of about that size, in a chunk of its own."""
    metadata = {"name": f"a-{number}", "namespace": "n", "resourceVersion": str(number)}
    body = {"type": "MODIFIED", "object": {"metadata": metadata, "data": {"k": "x" * (size - 150)}}}
    line = json.dumps(body).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


@asynccontextmanager
async def server(
    pki: Pki, talk: Callable[[asyncio.StreamWriter], Awaitable[None]]
) -> AsyncIterator[ClientConfig]:
    """Serve one watch over TLS as the test says; hand out the way to it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        await talk(writer)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    add_certificate(context, *pki.server, where="the test")
    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    address = listening.sockets[0].getsockname()
    try:
        yield ClientConfig(
            server=f"https://127.0.0.1:{address[1]}", ssl=tls_context(ca_data=pki.ca, where="the test")
        )
    finally:
        listening.close()


@asynccontextmanager
async def reading(config: ClientConfig, batching: Batching) -> AsyncIterator[AsyncIterator[int]]:
    """Open a watch that gathers like that; hand out how many events each read brings."""
    call = collection_call("watch", ConfigMap, "n", {"watch": "true"})
    transport = Transport(config, user_agent="test", max_in_flight=1, fence=None, observe=None)
    await transport.open()
    try:
        async with transport.stream(call, timeout=DEADLINE, idle=TOO_LONG, batching=batching) as piece:

            async def counts() -> AsyncGenerator[int, None]:
                splitter = LineSplitter(call.what)
                while chunk := await piece():
                    yield len(splitter.feed(chunk))

            async with aclosing(counts()) as found:
                yield found
    finally:
        await transport.close()


async def test_a_burst_does_not_wait_for_the_clock(pki: Pki) -> None:
    """10,000 events arrive as fast as they can be read: not one read waits until its time is over.

    Every read brings less than a batch, as in the operator: asyncio reads 256 KiB at most here.
    """
    batch = b"".join(event(number) for number in range(1, 101))

    async def talk(writer: asyncio.StreamWriter) -> None:
        for _ in range(102):  # the last ones, less than a batch, wait for more
            writer.write(batch)
            await writer.drain()

    async with (
        asyncio.timeout(DEADLINE),
        server(pki, talk) as config,
        reading(config, Batching(TOO_LONG, 2**19)) as counts,
    ):
        found = 0
        async for count in counts:
            found += count
            if found >= 10_000:
                break
    assert found >= 10_000


async def test_the_rest_of_a_burst_waits_a_moment_only(pki: Pki) -> None:
    """Less than a batch is read as well, although the stream stays open and silent."""
    over = asyncio.Event()

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(event(number) for number in range(1, 101)))
        await over.wait()

    async with asyncio.timeout(DEADLINE), server(pki, talk) as config, Client(config) as client:
        found = 0
        async with aclosing(client.watch(ConfigMap, "n", resource_version="1")) as events:
            async for _ in events:
                found += 1
                if found == 100:
                    break
        over.set()
    assert found == 100


async def test_events_that_trickle_are_read_together(pki: Pki) -> None:
    """After the first, which is read at once, events that come one by one share a read."""
    first = asyncio.Event()

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(event(1, 500))
        await first.wait()
        for number in range(2, 11):
            writer.write(event(number, 500))
            await asyncio.sleep(0.01)
        writer.write(END)
        # TLS would wait for the goodbye of the other side, which reads nothing before the end.
        writer.transport.abort()

    async with (
        asyncio.timeout(DEADLINE),
        server(pki, talk) as config,
        reading(config, Batching(TOO_LONG)) as counts,
    ):
        seen = []
        async for count in counts:
            seen.append(count)
            first.set()
    assert seen == [1, 9]
