"""Servers that ask to wait, and what is sent when the wait is over."""

from __future__ import annotations

import pytest

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.errors import (
    FencedError,
    TooManyRequests,
)
from slurm_operator.kube.models.kinds import ConfigMap
from tests.support.kube.scripted_server import BODY, OK, Server, respond, status


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
