"""Replies that are small, or soon sent, and large for whoever reads them without a limit.

Each bomb says what is sent in place of the answer of one endpoint, head and all.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MEGABYTE = 2**20
_JSON = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_TIME = b'"last_update": {"set": true, "number": 1700000000}'


class Bomb(NamedTuple):
    """What is sent in place of an answer."""

    endpoint: str
    pieces: Callable[[], Iterable[bytes]]


def counted(body: bytes) -> Iterator[bytes]:
    """Yield an answer that says how long it is."""
    yield f"{_JSON}Content-Length: {len(body)}\r\n\r\n".encode()
    yield body


def unsized(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield an answer that ends when the connection does."""
    yield f"{_JSON}\r\n".encode()
    yield from pieces


def chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield an answer in chunks; nothing ends it."""
    yield f"{_JSON}Transfer-Encoding: chunked\r\n\r\n".encode()
    for piece in pieces:
        yield b"%x\r\n%s\r\n" % (len(piece), piece)


def repeated(piece: bytes, times: int) -> Iterator[bytes]:
    """Yield the same bytes again and again."""
    for _ in range(times):
        yield piece


def _list(what: str, *entries: bytes) -> bytes:
    return b'{"%s": [%s], %s}' % (what.encode(), b",".join(entries), _TIME)


def _job(number: int, nodes: str, *state: str) -> bytes:
    entry = {"job_id": number, "job_state": [*(state or ("RUNNING",))], "nodes": nodes, "partition": "all"}
    return json.dumps(entry).encode()


def _short_names(count: int) -> bytes:
    return _list("nodes", *(b'{"name":"n%d"}' % number for number in range(count)))


BOMBS: dict[str, Bomb] = {
    # 2.7 kB that name 2.6 million nodes.
    "40 jobs on 65,536 nodes each": Bomb(
        "jobs", lambda: counted(_list("jobs", *(_job(i, f"a{i}n[1-65536]") for i in range(1, 41))))
    ),
    "65,536 jobs on the same 65,536 nodes": Bomb(
        "jobs", lambda: counted(_list("jobs", *(_job(i, "n[1-65536]") for i in range(1, 65_537))))
    ),
    "65,536 jobs on 65,536 other nodes each": Bomb(
        "jobs", lambda: counted(_list("jobs", *(_job(i, f"a{i}n[1-65536]") for i in range(1, 65_537))))
    ),
    "65,536 jobs on one node": Bomb(
        "jobs", lambda: counted(_list("jobs", *(_job(i, "n1") for i in range(1, 65_537))))
    ),
    "a job on nodes with names of a megabyte": Bomb(
        "jobs", lambda: counted(_list("jobs", _job(1, "n" * (MEGABYTE - 20) + "[1-65536]")))
    ),
    "a job on a node with 100,000 brackets": Bomb(
        "jobs", lambda: counted(_list("jobs", _job(1, "n[1]" * 100_000)))
    ),
    "a job in 4 million states": Bomb(
        "jobs",
        lambda: counted(_list("jobs", b'{"job_id":1,"job_state":[%s"b"]}' % (b'"a",' * (4 * MEGABYTE)))),
    ),
    "700,000 jobs": Bomb("jobs", lambda: counted(_list("jobs", *repeated(b'{"job_id":1}', 700_000)))),
    "1.7 million nodes": Bomb("nodes", lambda: counted(_short_names(1_700_000))),
    "16 million empty nodes": Bomb("nodes", lambda: counted(_list("nodes", *repeated(b"{}", 16 * MEGABYTE)))),
    "16 million numbers for nodes": Bomb(
        "nodes", lambda: counted(_list("nodes", *repeated(b"1", 16 * MEGABYTE)))
    ),
    "a node with 4 million features": Bomb(
        "nodes",
        lambda: counted(_list("nodes", b'{"name":"n1","features":[%s"b"]}' % (b'"a",' * (4 * MEGABYTE)))),
    ),
    "a node with a reason of 64 MiB": Bomb(
        "nodes", lambda: counted(_list("nodes", b'{"name":"n1","reason":"%s"}' % (b"x" * 64 * MEGABYTE)))
    ),
    "texts in four bytes each": Bomb(
        "nodes",
        lambda: counted(
            _list(
                "nodes",
                *(b'{"name":"n%d","comment":"\xf0\x9f\x98\x80%s"}' % (i, b"x" * 1000) for i in range(65_000)),
            )
        ),
    ),
    "64 MiB of nesting": Bomb(
        "nodes", lambda: counted(_list("nodes", b'{"name":"n1","x":%s}' % (b"[" * 64 * MEGABYTE)))
    ),
    "64 MiB of nesting at the top": Bomb("nodes", lambda: counted(b'{"x":' + b'{"x":[' * (10 * MEGABYTE))),
    "64 MiB of errors": Bomb(
        "nodes", lambda: counted(b'{"nodes":[],"errors":[%s{}]}' % (b"{}," * (20 * MEGABYTE)))
    ),
    "250 MB with a length": Bomb("nodes", lambda: counted(b" " * 250_000_000)),
    "250 MB without a length": Bomb(
        "nodes", lambda: unsized((b'{"nodes":[', *repeated(b'{"name":"n1"},' * 10_000, 1800)))
    ),
    "250 MB of spaces": Bomb("nodes", lambda: unsized(repeated(b" " * MEGABYTE, 250))),
    "250 MB in chunks": Bomb("nodes", lambda: chunked(repeated(b" " * MEGABYTE, 250))),
    "250 MB of a refusal": Bomb(
        "nodes",
        lambda: (
            b"HTTP/1.1 500 INTERNAL ERROR\r\nContent-Type: application/json\r\n\r\n",
            *repeated(b'{"errors":[' + b"{}," * MEGABYTE, 80),
        ),
    ),
    "tiny chunks": Bomb("nodes", lambda: chunked(repeated(b" ", 10 * MEGABYTE))),
    "endless headers": Bomb("nodes", lambda: (_JSON.encode(), *repeated(b"X-More: x\r\n" * 1000, 10_000))),
    "endless interim answers": Bomb(
        "nodes", lambda: repeated(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 10_000)
    ),
    "endless trailer": Bomb(
        "nodes",
        lambda: (
            f"{_JSON}Transfer-Encoding: chunked\r\n\r\n0\r\n".encode(),
            *repeated(b"x: y\r\n" * 1000, 10_000),
        ),
    ),
    "64 MiB in 64 kB of gzip": Bomb(
        "nodes",
        lambda: (
            f"{_JSON}Content-Encoding: gzip\r\n\r\n".encode(),
            gzip.compress(_list("nodes", b'{"name":"n1"}', b" " * 64 * MEGABYTE)),
        ),
    ),
    "a million pings": Bomb("ping", lambda: counted(_list("pings", *repeated(b"{}", MEGABYTE)))),
    "a million statistics": Bomb("diag", lambda: counted(_list("statistics", *repeated(b"{}", MEGABYTE)))),
    "1.7 million reservations": Bomb(
        "reservations", lambda: counted(_list("reservations", *repeated(b'{"name":"r"}', 1_700_000)))
    ),
}
