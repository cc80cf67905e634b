"""Connections that break before, during or after the handshake: who tries again, and who must not."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.client import Client, RequestInfo
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.errors import (
    ConnectionFailed,
    TlsError,
)
from slurm_operator.kube.models.kinds import ConfigMap
from tests.support.kube.scripted_server import BODY, OK, Answer, Request, Server, cut_body, reset, respond

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.mark.parametrize("fault", [reset, cut_body])
async def test_broken_answers_repeat_reads_only(server: Server, client: Client, fault: Answer) -> None:
    """A connection that breaks before the answer is whole costs a read a retry, and a write its certainty."""
    server.script = [fault, fault, fault, OK]
    assert (await client.get(ConfigMap, "a", "n")).data == {"k": "v"}
    for write in (
        lambda: client.create(ConfigMap, BODY),
        lambda: client.apply(ConfigMap, BODY),
        lambda: client.delete(ConfigMap, "a", "n"),
    ):
        server.requests.clear()
        server.script = [fault, OK]
        with pytest.raises(
            ConnectionFailed, match=r"ConfigMap n/a: the connection to \S+ broke: [a-zHTP ]+ \(\w+\)$"
        ) as caught:
            await write()
        assert caught.value.sent
        assert len(server.requests) == 1


async def test_delete_on_a_kept_connection_goes_out_once(server: Server, client: Client) -> None:
    """A kept connection that breaks under a DELETE does not make the library send it again."""
    server.script = [OK, reset, OK]
    await client.get(ConfigMap, "a", "n")
    with pytest.raises(ConnectionFailed) as caught:
        await client.delete(ConfigMap, "a", "n")
    assert caught.value.sent
    assert [request.method for request in server.requests] == ["GET", "DELETE"]


async def test_failed_attempt_leaves_other_calls_alone(server: Server) -> None:
    """A connection that went back to the pool is out of reach of its former user's later failures."""
    pooled, failed = asyncio.Event(), asyncio.Event()

    def observe(info: RequestInfo) -> None:
        {"429": pooled, "<error>": failed}.get(info.code, asyncio.Event()).set()

    async def no_more_connections(request: Request, writer: asyncio.StreamWriter) -> None:
        server.refuse()
        await respond(429, b"", retry_after="0")(request, writer)

    async def after_the_failure(request: Request, writer: asyncio.StreamWriter) -> None:
        await failed.wait()
        await OK(request, writer)

    server.script = [no_more_connections, after_the_failure]
    async with Client(server.config(), observe=observe) as client:
        first = asyncio.ensure_future(client.create(ConfigMap, BODY))
        await pooled.wait()
        await client.get(ConfigMap, "a", "n")
        await first
    assert [request.method for request in server.requests] == ["POST", "GET", "POST"]


@asynccontextmanager
async def answering_bytes(answer: bytes) -> AsyncIterator[tuple[ClientConfig, list[bytes]]]:
    """Serve one answer to whatever comes, then hang up; yield a TLS configuration for it and what came."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield ClientConfig(server=url, ssl=ssl.create_default_context()), heard


async def test_handshake_cut_short_is_tried_again() -> None:
    """A server that goes away during the TLS handshake may come back: a read asks it again."""
    async with answering_bytes(b"") as (config, heard), Client(config, timeout=2.0) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.get(ConfigMap, "a", "n")
    assert not isinstance(caught.value, TlsError)
    assert not caught.value.sent
    assert len(heard) > 1


async def test_tls_against_plain_http_fails_at_once() -> None:
    """A server that speaks no TLS is told apart from one that is away, without waiting for the deadline."""
    plain = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with answering_bytes(plain) as (config, heard), Client(config, timeout=3600.0) as client:
        with pytest.raises(TlsError, match=r"get ConfigMap n/a: TLS with 127\.0\.0\.1:\d+ failed: "):
            await client.get(ConfigMap, "a", "n")
    assert len(heard) == 1


async def test_failed_attempts_are_observed(server: Server) -> None:
    """Attempts without an answer are counted as such, each on its own."""
    seen: list[RequestInfo] = []
    server.script = [reset, reset, reset, respond(503, b""), OK]
    async with Client(server.config(), observe=seen.append) as client:
        await client.get(ConfigMap, "a", "n")
    codes = [info.code for info in seen]
    assert codes[-2:] == ["503", "200"]
    assert set(codes[:-2]) == {"<error>"}
