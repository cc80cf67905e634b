"""A server on loopback that answers by script: for faults that a real API server cannot be made to show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from slurm_operator.kube.client.config import ClientConfig


class Request(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers the n-th request with the n-th step of a script, and the rest with the last step."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.requests: list[Request] = []
        self.now, self.most = 0, 0
        self.url = ""
        self.refuse: Callable[[], None] = lambda: None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                request = await self.read(reader)
                self.requests.append(request)
                self.now += 1
                self.most = max(self.most, self.now)
                await self.script[min(len(self.requests), len(self.script)) - 1](request, writer)
                self.now -= 1
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def read(self, reader: asyncio.StreamReader) -> Request:
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        await reader.readexactly(int(headers.get("content-length", "0")))
        method, target, _ = head.split(" ")
        return Request(method, target, headers)

    def config(self) -> ClientConfig:
        return ClientConfig(server=self.url)


def respond(status: int, body: bytes | dict[str, Any], **headers: str) -> Answer:
    """Return a step that sends a whole answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"content-type": "application/json", "content-length": str(len(data))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())

    async def step(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + data)

    return step


def stream(*pieces: bytes, end: bool | None = True) -> Answer:
    """Return a step that sends chunks, each its own packet, and ends well, cuts it short, or (None) hangs."""

    async def step(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
        await writer.drain()
        if end is None:
            await asyncio.Event().wait()
        elif end:
            writer.write(b"0\r\n\r\n")
        else:
            writer.close()

    return step


async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def reset(_request: Request, writer: asyncio.StreamWriter) -> None:
    """Close the connection without a byte."""
    writer.close()


async def cut_body(_request: Request, writer: asyncio.StreamWriter) -> None:
    """Promise more bytes than are sent."""
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"met')
    await writer.drain()
    writer.close()


GOOD = {"metadata": {"name": "a", "namespace": "n", "resourceVersion": "5"}, "data": {"k": "v"}}
OK = respond(200, GOOD)
BODY = {"metadata": {"name": "a", "namespace": "n"}}


def status(code: int, reason: str = "", **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": "said", "details": details}


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """Run a scripted server on loopback."""
    scripted = Server()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(scripted.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with listening:
        scripted.refuse = listening.close
        scripted.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield scripted
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
