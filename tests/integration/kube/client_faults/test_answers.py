"""Answers that are not what an API server says: described in errors, and never quoted."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.auth import TokenFile, bearer_token
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.errors import (
    ApiError,
    ConnectionFailed,
    DecodeError,
    Invalid,
    ServerError,
    Unauthorized,
)
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from tests.support.kube.scripted_server import BODY, OK, Request, Server, respond, status

if TYPE_CHECKING:
    from pathlib import Path


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
    async with Client(config, timeout=1.5) as client:
        # A read is tried again until its time is over, and aiohttp may wait for more after a bad chunk.
        late = r"no answer from \S+ within 1\.5 s$"
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
