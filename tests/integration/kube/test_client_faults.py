"""Faults that a real API server cannot be made to show, from a small server on loopback."""

from __future__ import annotations

import asyncio
import ssl
import traceback
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.auth import TokenFile, bearer_token
from slurm_operator.kube.client import Client, RequestInfo
from slurm_operator.kube.config import ClientConfig
from slurm_operator.kube.errors import (
    ApiError,
    ConnectionFailed,
    DeadlineExceeded,
    DecodeError,
    FencedError,
    Invalid,
    ServerError,
    TlsError,
    TooManyRequests,
    Unauthorized,
)
from slurm_operator.kube.execplugin import ExecPlugin, ExecSpec
from slurm_operator.kube.models import ConfigMap, Secret
from tests.integration.kube.faults import silent_server
from tests.integration.kube.scripted import (
    BODY,
    GOOD,
    OK,
    Answer,
    Request,
    Server,
    cut_body,
    hang,
    reset,
    respond,
    serving,
    status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Hand out a scripted server."""
    async with serving() as scripted:
        yield scripted


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """Hand out a client of the scripted server."""
    async with Client(server.config()) as opened:
        yield opened


# ---------------------------------------------------------------------------------------------- asked to wait


async def test_429_with_retry_after_is_obeyed_by_reads_and_writes(server: Server, client: Client) -> None:
    """An overloaded server that says when to return gets the same request again, a write included."""
    server.script = [respond(429, b"slow down", retry_after="0", content_type="text/plain"), OK]
    assert (await client.get(ConfigMap, "a", "n")).data == {"k": "v"}
    server.requests.clear()
    assert (await client.create(ConfigMap, BODY)).data == {"k": "v"}
    assert [request.method for request in server.requests] == ["POST", "POST"]


async def test_429_without_retry_after_is_not_obeyed_by_writes(server: Server, client: Client) -> None:
    """Without a time to return, a write's 429 belongs to the caller."""
    server.script = [respond(429, status(429, "TooManyRequests")), OK]
    with pytest.raises(TooManyRequests):
        await client.create(ConfigMap, BODY)
    assert len(server.requests) == 1


async def test_429_beyond_the_deadline_returns_at_once(server: Server, client: Client) -> None:
    """A wait that the deadline does not allow is not begun; the caller learns how long it would be."""
    server.script = [respond(429, status(429, "TooManyRequests"), retry_after="86400")]
    with pytest.raises(TooManyRequests) as caught:
        await client.get(ConfigMap, "a", "n", timeout=3600.0)
    assert caught.value.retry_after == 86400.0
    assert len(server.requests) == 1


async def test_fence_is_asked_before_every_attempt(server: Server) -> None:
    """A lease lost while a write waits for its second attempt stops that attempt."""
    asked = 0

    def fence() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise FencedError("the lease is lost")

    server.script = [respond(429, b"", retry_after="0"), OK]
    async with Client(server.config(), fence=fence) as client:
        with pytest.raises(FencedError):
            await client.create(ConfigMap, BODY)
    assert len(server.requests) == 1


# ----------------------------------------------------------------------------------------- broken connections


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
    async with answering_bytes(b"") as (config, heard), Client(config, timeout=0.5) as client:
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


async def test_html_errors_are_retried_and_never_quoted(server: Server, client: Client) -> None:
    """A proxy's error page is retried for a read and described, not repeated."""
    page = respond(500, b"<html>hush</html>", content_type="text/html")
    server.script = [page]
    with pytest.raises(
        ServerError, match=r"^get ConfigMap n/a: HTTP 500 with text/html instead of"
    ) as caught:
        await client.get(ConfigMap, "a", "n")
    assert "hush" not in str(caught.value)
    assert len(server.requests) == 3
    server.script = [page, respond(503, b"<html>"), OK]
    server.requests.clear()
    assert (await client.get(ConfigMap, "a", "n")).data == {"k": "v"}


async def test_html_with_a_good_status_is_a_decode_error(server: Server, client: Client) -> None:
    """A login page with status 200 is not an object."""
    server.script = [respond(200, b"<html>hush</html>", content_type="text/html")]
    with pytest.raises(DecodeError, match="get ConfigMap n/a: the answer is not a ConfigMap") as caught:
        await client.get(ConfigMap, "a", "n")
    assert "hush" not in str(caught.value)


async def test_redirects_are_not_followed(server: Server, client: Client) -> None:
    """Credentials go to the configured server and nowhere else."""
    server.script = [respond(307, b"", location=f"{server.url}/elsewhere"), OK]
    with pytest.raises(ApiError, match="HTTP 307"):
        await client.get(ConfigMap, "a", "n")
    assert len(server.requests) == 1


async def test_bytes_that_are_no_http(server: Server, client: Client) -> None:
    """A server that does not speak HTTP is a failed connection, and what it did say is not repeated."""

    async def gibberish(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x16\x03\x01 hush\r\n\r\n")
        await writer.drain()
        writer.close()

    server.script = [gibberish]
    with pytest.raises(ConnectionFailed, match=r"broke: the answer is not valid HTTP \(\w+\)$") as caught:
        await client.create(ConfigMap, BODY)
    assert "hush" not in traceback_of(caught.value)


@pytest.mark.parametrize("broken_later", [False, True])
async def test_badly_framed_secrets_are_not_quoted(server: Server, *, broken_later: bool) -> None:
    """An answer whose chunks do not fit is described without a byte of it, nor of the credentials."""
    body = b'{"metadata":{"name":"a","namespace":"n"},"data":{"password":"aHVzaA=="}}'
    good = b"%x\r\n%b\r\n" % (len(body), body) if broken_later else b""

    async def misframed(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + good
        )
        await writer.drain()
        if broken_later:
            await asyncio.sleep(0.05)
        writer.write(b"5\r\n" + body + b"\r\n0\r\n\r\n")

    server.script = [misframed]
    config = ClientConfig(server=server.url, auth=bearer_token("hush-hush"))
    async with Client(config, timeout=0.5) as client:
        # A read is tried again until its time is over, and aiohttp may wait for more after a bad chunk.
        late = r"no answer from \S+ within 0\.5 s$"
        reading = client.get(Secret, "a", "n"), rf"^get Secret n/a: (the connection .*|{late})"
        writing = client.apply(Secret, BODY), late if broken_later else r"not valid HTTP \(\w+\)$"
        for call, message in (reading, writing):
            with pytest.raises(ConnectionFailed, match=message) as caught:
                await call
            shown = traceback_of(caught.value)
            for secret in ("aHVzaA", "hush", "password"):
                assert secret not in shown
            assert caught.value.__cause__ is None


def traceback_of(error: BaseException) -> str:
    """Return what a log line with a traceback would show of an error, without the code of this test."""
    return "\n".join(
        line
        for line in traceback.TracebackException.from_exception(error).format(chain=True)
        if not line.startswith("  File")
    )


# -------------------------------------------------------------------------------------------------- deadlines


async def test_silent_server_meets_the_deadline(server: Server, client: Client) -> None:
    """An answer that never comes is DeadlineExceeded, with the write's fate unknown."""
    server.script = [hang]
    with pytest.raises(
        DeadlineExceeded, match=r"create ConfigMap n/a: no answer from .* within 0\.2 s"
    ) as caught:
        await client.create(ConfigMap, BODY, timeout=0.2)
    assert caught.value.sent


async def test_dripping_server_meets_the_deadline(server: Server, client: Client) -> None:
    """A server that sends a byte now and then cannot stretch a call beyond its deadline."""

    async def drip(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    server.script = [drip]
    with pytest.raises(DeadlineExceeded):
        await client.get(ConfigMap, "a", "n", timeout=0.3)


async def test_waiting_for_a_slot_counts(server: Server) -> None:
    """Time spent waiting for a free slot is part of the deadline, and such a call was not sent."""
    arrived = asyncio.Event()

    async def arrive(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await hang(request, writer)

    server.script = [arrive]
    async with Client(server.config(), max_in_flight=1) as client:
        first = asyncio.ensure_future(client.get(ConfigMap, "a", "n"))
        async with asyncio.timeout(10):
            await arrived.wait()
        with pytest.raises(DeadlineExceeded, match=r"n/a: no free slot for the request within") as caught:
            await client.create(ConfigMap, BODY, timeout=0.2)
        assert not caught.value.sent
        assert len(server.requests) == 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_deadline_names_what_was_missing(server: Server, tmp_path: Path) -> None:
    """Time lost on credentials or on connecting is not blamed on a server that was never asked."""
    program = tmp_path / "plugin"
    program.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    program.chmod(0o755)
    spec = ExecSpec(command="./plugin", api_version="client.authentication.k8s.io/v1")
    plugin = ExecPlugin(
        spec, directory=tmp_path, cluster=None, trust=ssl.create_default_context, where="x", seconds=1
    )
    async with Client(ClientConfig(server=server.url, auth=plugin), timeout=0.2) as client:
        with pytest.raises(
            DeadlineExceeded, match=r"^get ConfigMap n/a: no credentials within 0\.2 s$"
        ) as caught:
            await client.get(ConfigMap, "a", "n")
        assert not caught.value.sent
        watch = client.watch(ConfigMap, "n", resource_version="1")
        with pytest.raises(
            DeadlineExceeded, match=r"^watch configmaps in n: no credentials within"
        ) as caught:
            await anext(watch)
        assert not caught.value.sent
    assert server.requests == []

    async with silent_server() as port:
        silent = ClientConfig(server=f"https://127.0.0.1:{port}", ssl=ssl.create_default_context())
        async with Client(silent, timeout=0.2) as client:
            with pytest.raises(DeadlineExceeded, match=rf"n/a: no connection to 127\.0\.0\.1:{port} within"):
                await client.get(ConfigMap, "a", "n")


async def test_requests_in_flight_are_bounded(server: Server) -> None:
    """However many calls are made, only so many are with the server at a time."""

    async def slowly(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.005)
        await OK(request, writer)

    server.script = [slowly]
    async with Client(server.config(), max_in_flight=3) as client:
        await asyncio.gather(*(client.get(ConfigMap, "a", "n") for _ in range(30)))
    assert server.most == 3


async def test_cancelled_call_does_not_poison_the_next(server: Server, client: Client) -> None:
    """The late answer to a cancelled call is never taken for the answer to the next one."""
    arrived, late = asyncio.Event(), asyncio.Event()

    async def answer_late(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await late.wait()
        await respond(200, GOOD | {"data": {"k": "late"}})(request, writer)

    async def answer_both(request: Request, writer: asyncio.StreamWriter) -> None:
        late.set()
        await OK(request, writer)

    server.script = [answer_late, answer_both]
    first = asyncio.ensure_future(client.get(ConfigMap, "a", "n"))
    await arrived.wait()
    first.cancel()
    assert (await client.get(ConfigMap, "a", "n")).data == {"k": "v"}
    assert first.cancelled()


# ------------------------------------------------------------------------------------------------ credentials


async def test_401_refreshes_once(server: Server, tmp_path: Path) -> None:
    """A refused token is read again from its file, and the call succeeds with the new one."""
    path = tmp_path / "token"
    path.write_text("one", encoding="utf-8")

    async def picky(request: Request, writer: asyncio.StreamWriter) -> None:
        path.write_text("two", encoding="utf-8")
        good = request.headers["authorization"] == "Bearer two"
        await (OK if good else respond(401, status(401, "Unauthorized")))(request, writer)

    server.script = [picky]
    async with Client(ClientConfig(server=server.url, auth=TokenFile(path))) as client:
        await client.create(ConfigMap, BODY)
        assert len(server.requests) == 2
        server.script = [respond(401, status(401, "Unauthorized"))]
        with pytest.raises(Unauthorized):
            await client.get(ConfigMap, "a", "n")
        assert len(server.requests) == 3, "the same token again would be refused again"


async def test_failed_attempts_are_observed(server: Server) -> None:
    """Attempts without an answer are counted as such, each on its own."""
    seen: list[RequestInfo] = []
    server.script = [reset, reset, reset, respond(503, b""), OK]
    async with Client(server.config(), observe=seen.append) as client:
        await client.get(ConfigMap, "a", "n")
    codes = [info.code for info in seen]
    assert codes[-2:] == ["503", "200"]
    assert set(codes[:-2]) == {"<error>"}


async def test_client_must_be_open(server: Server) -> None:
    """A client outside its `async with` says how it is meant to be used."""
    with pytest.raises(RuntimeError, match="async with Client"):
        await Client(server.config()).get(ConfigMap, "a", "n")


async def test_raw_errors_hide_what_a_secret_path_or_the_caller_calls_secret(
    server: Server, client: Client
) -> None:
    """A refusal of a raw request is quoted unless its path names a secret resource or the caller says so."""
    said = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "Invalid value: hush"}
    server.script = [respond(422, said)]

    async def shown(path: str, *, secret: bool | None = None) -> bool:
        with pytest.raises(Invalid) as caught:
            await client.raw("POST", path, body={}, secret=secret)
        return "hush" in str(caught.value)

    assert await shown("/apis/tests.example/v1/widgets")
    assert await shown("/apis/tests.example/v1/secretsanta")
    assert not await shown("/apis/tests.example/v1/widgets", secret=True)
    assert not await shown("/api/v1/namespaces/n/secrets/a")
    assert not await shown("/apis/authentication.k8s.io/v1/tokenreviews")
    assert await shown("/apis/authentication.k8s.io/v1/tokenreviews", secret=False)
