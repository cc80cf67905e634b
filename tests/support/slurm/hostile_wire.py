"""How the hostile slurmrestd reads requests, and sends replies the way a fault wants them."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.slurm.hostile_replies import Fault, Reply

_DRIP_SECONDS = 0.02


class Seen(NamedTuple):
    """One request as it arrived."""

    method: str
    endpoint: str
    name: str
    version: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


async def read_request(reader: asyncio.StreamReader) -> Seen:
    """Read one request."""
    head = await reader.readuntil(b"\r\n\r\n")
    line, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = line.split(" ", 2)
    headers = {
        key.lower(): value.strip() for key, _, value in (text.partition(":") for text in lines if text)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    _, _, version, *rest = parts.path.split("/") + [""] * 3
    path = "/".join(rest).strip("/")
    endpoint, name = path, ""
    if path.startswith(("node/", "reservation/")):
        endpoint, _, name = path.partition("/")
    return Seen(
        method,
        endpoint,
        unquote(name),
        version,
        dict(parse_qsl(parts.query)),
        headers,
        json.loads(body) if body else None,
    )


async def send(writer: asyncio.StreamWriter, reply: Reply, fault: Fault | None) -> bool:
    """Send a reply the way a fault wants it; return whether the connection is still of use."""
    if fault is Fault.HANG:
        await asyncio.Event().wait()
    if fault is Fault.CLOSE:
        return False
    if fault is Fault.NOT_HTTP:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        return False
    body = reply.body[: len(reply.body) // 2] if fault is Fault.TRUNCATED else reply.body
    closing = not reply.status.startswith(("2", "304")) or fault in (Fault.SHORT_BODY, Fault.LONG_BODY)
    writer.write(head(reply, len(body), fault, closing=closing))
    if fault is Fault.DRIP:
        for byte in body:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(_DRIP_SECONDS)
    elif fault in (Fault.RESET, Fault.CUT_CHUNKED):
        writer.write(body[: len(body) // 2])
        await writer.drain()
        if fault is Fault.RESET:
            writer.transport.abort()
        return False
    else:
        writer.write(body + surplus(reply))
        await writer.drain()
    if fault is Fault.POISON:
        # Later, so that it meets a connection at rest.
        await asyncio.sleep(_DRIP_SECONDS)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
    return not closing


def surplus(reply: Reply) -> bytes:
    """Return what 26.05 sends behind a refusal: another one, in plain text."""
    if reply.status[0] not in "45" or reply.content_type != "application/json":
        return b""
    head = f"HTTP/1.1 {reply.status}\r\nConnection: Close\r\nContent-Length: 7\r\nContent-Type: text/plain"
    return f"{head}\r\n\r\nFailure".encode()


def head(reply: Reply, length: int, fault: Fault | None, *, closing: bool) -> bytes:
    """Return the status line and the headers of a reply."""
    lines = [f"HTTP/1.1 {reply.status}"]
    if closing:
        lines.append("Connection: Close")
    if fault is Fault.HUGE_HEADERS:
        lines.append(f"X-Padding: {'x' * 2**20}")
    if fault is Fault.REDIRECT:
        lines.append("Location: http://127.0.0.1:9/elsewhere")
    if fault is Fault.CUT_CHUNKED:
        lines.append("Transfer-Encoding: chunked")
    elif not reply.status.startswith("304"):
        lie = (
            {Fault.SHORT_BODY: length + 1000, Fault.LONG_BODY: length // 2}.get(fault, length)
            if fault
            else length
        )
        lines.append(f"Content-Length: {lie}")
        lines.append(f"Content-Type: {reply.content_type}")
    chunk = f"{length:x}\r\n" if fault is Fault.CUT_CHUNKED else ""
    return ("\r\n".join(lines) + "\r\n\r\n" + chunk).encode()
