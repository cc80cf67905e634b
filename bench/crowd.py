"""A process that plays many slurmrestds, good and hostile ones, for `bench.fairness`.

It prints the port of each as a JSON list, and obeys one line on standard input at a time: `hostile` makes the
first three drip, answer 250 MB, and reset; `good` makes them well-behaved again.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from functools import partial

NODES = 100
_PIECE = b'{"name":"n1"},' * 20_000
_HUGE = 250_000_000
_DRIP_SECONDS = 0.02
_LONGEST_LINE = 100


def _number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


def _answers() -> dict[str, bytes]:
    """Return the body for each endpoint."""
    now = int(time.time())
    nodes = [
        {"name": f"n{index}", "state": ["IDLE"], "alloc_cpus": 0, "extra": "x" * 2000}
        for index in range(NODES)
    ]
    meta = {"meta": {"slurm": {"release": "26.05.5", "cluster": "crowd"}}, "errors": [], "warnings": []}
    contents: dict[str, dict[str, object]] = {
        "ping": {"pings": [{"hostname": "box", "responding": True, "primary": True}]},
        "diag": {"statistics": {"req_time": _number(now), "req_time_start": _number(now - 86_400)}},
        "nodes": {"nodes": nodes, "last_update": _number(now)},
        "jobs": {"jobs": [], "last_update": _number(now)},
        "reservations": {"reservations": [], "last_update": _number(now)},
    }
    return {name: json.dumps(content | meta).encode() for name, content in contents.items()}


class Crowd:
    """All servers of the process."""

    def __init__(self) -> None:
        self._answers = _answers()
        self.hostile = False

    async def serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                endpoint = head.split(b" ", 2)[1].split(b"?")[0].strip(b"/").split(b"/")[-1].decode()
                body = self._answers.get(endpoint, b"{}")
                if self.hostile and endpoint == "nodes" and number < len(_HOSTILE):
                    await _HOSTILE[number](writer, body)
                    break
                writer.write(_head(len(body)) + body)
                await writer.drain()
        writer.close()


def _head(length: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()


async def _drip(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(_head(len(body)))
    for byte in body:
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(_DRIP_SECONDS)


async def _flood(writer: asyncio.StreamWriter, body: bytes) -> None:
    del body
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"nodes":[')
    for _ in range(_HUGE // len(_PIECE)):
        writer.write(_PIECE)
        await writer.drain()


async def _reset(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(_head(len(body)) + body[: len(body) // 2])
    await writer.drain()
    writer.transport.abort()


_HOSTILE = (_drip, _flood, _reset)


async def main(count: int) -> None:
    """Serve until standard input ends."""
    crowd = Crowd()
    ports = []
    for number in range(count):
        server = await asyncio.start_server(partial(crowd.serve, number), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
    print(json.dumps(ports), flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin.buffer
    )
    while order := await orders.readline():
        crowd.hostile = order.strip() == b"hostile"
        print(json.dumps("done"), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
