"""Watches on streams that a real API server cannot be made to send."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from slurm_operator.kube.client.auth import TokenFile
from slurm_operator.kube.client.client import BadObject, Client, WatchEvent
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.errors import ConnectionFailed, DeadlineExceeded, Gone
from slurm_operator.kube.models.kinds import ConfigMap
from tests.support.kube.scripted_server import GOOD, Answer, Request, Server, hang, respond, status, stream

if TYPE_CHECKING:
    from pathlib import Path


def event(kind: str, **obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": GOOD | obj}).encode() + b"\n"


async def collect(client: Client, **options: Any) -> list[WatchEvent[ConfigMap]]:
    events = client.watch(ConfigMap, "n", resource_version="1", **options)
    async with aclosing(events):
        return [item async for item in events]


async def test_watch_asks_for_what_it_needs(server: Server, client: Client) -> None:
    """A watch asks for bookmarks and a server-side time limit between five and ten minutes."""
    server.script = [stream()]
    await collect(client, labels={"a": "b"}, fields="metadata.name=x")
    path, _, query = server.requests[0].target.partition("?")
    asked = dict(pair.split("=", 1) for pair in query.split("&"))
    limit = int(asked.pop("timeoutSeconds"))
    assert path == "/api/v1/namespaces/n/configmaps"
    assert 300 <= limit <= 600
    assert asked == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "labelSelector": "a%3Db",
        "fieldSelector": "metadata.name%3Dx",
    }


async def test_watch_cut_at_every_byte(server: Server, client: Client) -> None:
    """Wherever the network cuts the stream into chunks, the same events come out."""
    text = event("ADDED") + event("MODIFIED", data={"k": "ü"}) + event("DELETED")
    server.script = [stream(*(text[i : i + 1] for i in range(len(text))))]
    slowly = await collect(client)
    server.script = [stream(text)]
    assert [item.type for item in slowly] == ["ADDED", "MODIFIED", "DELETED"]
    assert slowly == await collect(client)


async def test_no_event_is_held_back(server: Server, client: Client) -> None:
    """Events that gather for a moment are delivered without waiting for further traffic."""
    received = asyncio.Event()

    async def one_at_a_time(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(5):
            piece = event("MODIFIED")
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await received.wait()
            received.clear()
        await hang(_request, writer)

    server.script = [one_at_a_time]
    async with asyncio.timeout(60), aclosing(client.watch(ConfigMap, "n", resource_version="1")) as events:
        for _ in range(5):
            assert (await anext(events)).type == "MODIFIED"
            received.set()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(stream(event("ADDED"), event("MODIFIED")[:20], end=False), id="cut in an event"),
        pytest.param(stream(event("ADDED"), end=False), id="cut between events"),
        pytest.param(stream(event("ADDED"), event("MODIFIED")[:20]), id="ended in an event"),
    ],
)
async def test_cut_watch_is_an_error(server: Server, client: Client, fault: Answer) -> None:
    """A stream that does not end properly is a failure after the events that arrived whole."""
    server.script = [fault]
    async with aclosing(client.watch(ConfigMap, "n", resource_version="1")) as events:
        assert (await anext(events)).type == "ADDED"
        with pytest.raises(ConnectionFailed, match="watch configmaps in n: "):
            await anext(events)


async def test_a_cut_watch_leaves_nothing_to_the_garbage_collector(server: Server, client: Client) -> None:
    """The buffers of a watch that broke off are free at once: it is too old to be looked at otherwise."""
    server.script = [stream(event("ADDED"), end=False)]
    gc.collect()
    gc.disable()
    try:
        with suppress(ConnectionFailed):
            await collect(client)
        kept = [one for one in gc.get_objects() if type(one) is aiohttp.ClientResponse]
    finally:
        gc.enable()
    assert kept == []


async def test_silent_watch_is_an_error(server: Server, client: Client) -> None:
    """A watch without any byte for its idle time is given up."""

    async def one_then_silence(request: Request, writer: asyncio.StreamWriter) -> None:
        await stream(event("ADDED"))(request, writer)
        await hang(request, writer)

    async def opened(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await hang(_request, writer)

    server.script = [opened]
    with pytest.raises(ConnectionFailed, match="watch configmaps in n"):
        await collect(client, idle_seconds=0.2)
    server.script = [one_then_silence]
    assert [item.type for item in await collect(client, idle_seconds=1.5)] == ["ADDED"]


async def test_watch_that_is_never_accepted_meets_the_deadline(server: Server) -> None:
    """Opening a watch has the deadline of any other call."""
    server.script = [hang]
    async with Client(server.config(), timeout=0.2) as client:
        with pytest.raises(DeadlineExceeded, match="watch configmaps in n"):
            await collect(client)


async def test_watch_errors_of_both_kinds_are_gone(server: Server, client: Client) -> None:
    """410 is Gone, as the answer's status and as an ERROR event in the stream."""
    server.script = [respond(410, status(410, "Expired"))]
    with pytest.raises(Gone):
        await collect(client)
    error = {"type": "ERROR", "object": status(410, "Expired")}
    server.script = [stream(event("ADDED"), json.dumps(error).encode() + b"\n")]
    with pytest.raises(Gone):
        await collect(client)


async def test_malformed_event_leaves_the_watch_alive(server: Server, client: Client) -> None:
    """An object that does not decode is handed over as such, and the watch goes on."""
    server.script = [stream(event("ADDED", data={"k": 7}), event("MODIFIED"))]
    bad, good = await collect(client)
    assert isinstance(bad.object, BadObject)
    assert str(bad.object.key) == "n/a"
    assert isinstance(good.object, ConfigMap)


async def test_closed_generator_closes_the_connection(server: Server, client: Client) -> None:
    """Leaving a watch early ends it on the server's side too."""
    gone = asyncio.Event()

    async def endless(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        piece = event("MODIFIED")
        try:
            while True:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    server.script = [endless]
    events = client.watch(ConfigMap, "n", resource_version="1")
    async with aclosing(events):
        await anext(events)
    async with asyncio.timeout(60):
        await gone.wait()


async def test_401_on_a_watch_refreshes_too(server: Server, tmp_path: Path) -> None:
    """A watch that is refused for its token is opened again with the renewed one."""
    path = tmp_path / "token"
    path.write_text("one", encoding="utf-8")

    async def refuse(request: Request, writer: asyncio.StreamWriter) -> None:
        path.write_text("two", encoding="utf-8")
        await respond(401, status(401, "Unauthorized"))(request, writer)

    server.script = [refuse, stream(event("ADDED"))]
    async with Client(ClientConfig(server=server.url, auth=TokenFile(path))) as client:
        assert [item.type for item in await collect(client)] == ["ADDED"]
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer one", "Bearer two"]
