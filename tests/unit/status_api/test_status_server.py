"""The server of the status API on loopback: what clients that do not read, or leave, may take."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from slurm_operator.api import wellknown
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.models.store import Store
from slurm_operator.kube.process.listen_address import ListenAddress
from slurm_operator.slurm.rest.connections import Connections
from slurm_operator.status_api.board import Board, BoardSources
from slurm_operator.status_api.decision_log import DecisionLog
from slurm_operator.status_api.job_rows import JobDetailCache
from slurm_operator.status_api.status_server import StatusServer
from slurm_operator.status_rows import AUDIENCE, TOKEN_HEADER
from tests.support.plugin.sample_rows import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WRITE_SECONDS = 1.0


async def _review(request: web.Request) -> web.Response:
    """Let every token be one of ann, who may list everything."""
    if request.path.endswith("tokenreviews"):
        status: dict[str, Any] = {
            "authenticated": True,
            "user": {"username": "ann"},
            "audiences": [AUDIENCE],
        }
    else:
        status = {"allowed": True}
    return web.json_response({"status": status})


@dataclass
class Served:
    """A server, and the rows that it serves."""

    server: StatusServer
    board: Board

    @property
    def url(self) -> str:
        """Return the address of the API."""
        return f"http://127.0.0.1:{self.server.port}/api/v1"

    def fill(self, workers: int, padding: int = 0) -> None:
        """Let there be so many workers, whose rows have at least so many characters."""
        for number in range(workers):
            row = worker(number, state_reason="x" * padding)
            self.board.workers.rows[Key(row.namespace, row.pod)] = (1, row)
        self.board.version = 1
        # The rows are not made from caches here.
        self.board._refreshed = float("inf")

    async def ask_without_reading(self, path: str) -> socket.socket:
        """Send a request, and read nothing of the reply."""
        loop = asyncio.get_running_loop()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(0)
        await loop.sock_connect(client, ("127.0.0.1", self.server.port))
        request = f"GET /api/v1/{path} HTTP/1.1\r\nHost: x\r\n{TOKEN_HEADER}: t\r\n\r\n"
        await loop.sock_sendall(client, request.encode())
        return client

    @property
    def connections(self) -> int:
        """Return how many connections are open."""
        assert self.server._runner is not None
        assert self.server._runner.server is not None
        return len(self.server._runner.server.connections)


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    """Run a server that leads, in front of an API server that allows everything."""
    app = web.Application()
    app.router.add_post("/{path:.*}", _review)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    log, connections = DecisionLog(), Connections(reason_prefix=wellknown.REASON_PREFIX)
    sources = BoardSources(Store(), Store(), lambda _: [], connections, log)
    async with Client(ClientConfig(server=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
        board = Board(sources)
        server = StatusServer(
            ListenAddress("127.0.0.1", 0),
            client,
            board,
            log,
            JobDetailCache(connections),
            write_seconds=WRITE_SECONDS,
        )
        await server.start()
        leading = asyncio.create_task(server.lead())
        await asyncio.sleep(0)
        try:
            yield Served(server, board)
        finally:
            leading.cancel()
            await server.close()
            await connections.close()
            await runner.cleanup()


async def status_of(served: Served, path: str) -> tuple[int, Any]:
    """Return the HTTP status and the content of a reply."""
    async with (
        aiohttp.ClientSession(headers={TOKEN_HEADER: "t"}) as session,
        session.get(f"{served.url}/{path}") as reply,
    ):
        return reply.status, json.loads(await reply.read())


async def until(holds: Any, seconds: float = 20.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)


async def test_clients_that_do_not_read_take_little_memory() -> None:
    """Few replies are in memory at a time; the clients that do not read theirs are disconnected."""
    async with serving() as served:
        served.fill(100, padding=100_000)
        silent = [await served.ask_without_reading("workers") for _ in range(40)]
        await until(lambda: served.connections == 40)
        await asyncio.sleep(0.3)
        # Each reply is of ten megabytes.
        assert 0 < served.server.sending <= 8
        served.board.workers.rows.clear()
        assert (await status_of(served, "workers"))[0] == 200
        await until(lambda: served.connections == 0)
        for one in silent:
            one.close()


async def test_a_stream_that_is_not_read_is_disconnected() -> None:
    """What is in its buffers goes with it."""
    async with serving() as served:
        served.fill(100, padding=100_000)
        silent = await served.ask_without_reading("stream")
        await until(lambda: served.connections == 1)
        await until(lambda: served.connections == 0)
        silent.close()


async def test_a_client_that_leaves_frees_its_stream() -> None:
    """A page that is loaded again and again takes one of the streams, not all of them."""
    async with serving() as served:
        served.fill(1)
        for _ in range(32):
            client = await served.ask_without_reading("stream")
            assert b"200 OK" in await asyncio.get_running_loop().sock_recv(client, 4096)
            client.close()
        await asyncio.sleep(1.5)
        async with (
            aiohttp.ClientSession(headers={TOKEN_HEADER: "t"}) as session,
            session.get(f"{served.url}/stream") as reply,
        ):
            assert reply.status == 200


async def test_a_request_for_the_head_has_no_body() -> None:
    """The next request on the same connection is answered as usual."""
    async with serving() as served, aiohttp.ClientSession(headers={TOKEN_HEADER: "t"}) as session:
        served.fill(3)
        async with session.head(f"{served.url}/workers") as reply:
            assert (reply.status, int(reply.headers["Content-Length"]) > 0) == (200, True)
        async with session.head(f"{served.url}/stream") as reply:
            assert reply.status == 200
        async with session.get(f"{served.url}/workers") as reply:
            assert len((await reply.json())["items"]) == 3
