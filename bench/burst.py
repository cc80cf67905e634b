"""A server that has no pods, and then tells of thousands of changes at once, as fast as they are read.

An API server does so when it replays what a client has missed. Here it is a stand-in, over TLS on loopback,
so that only the client is measured: everything is encoded before it begins. An event is a worker pod that
runs, of 7.8 kB, the size it has on a real API server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from bench.load import running_status, worker_pod
from kubebox import pki

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_VERSION: Final = 1000
_AT_ONCE: Final = 100
_EVENT_BYTES: Final = 7_800


class Burst:
    """What the server has to send, and since when it does."""

    def __init__(self, count: int) -> None:
        pod = _pod()
        events = [_event(pod, number) for number in range(1, count + 1)]
        self.event_bytes = len(events[0])
        self._batches = [b"".join(events[start : start + _AT_ONCE]) for start in range(0, count, _AT_ONCE)]
        self._begin = asyncio.Event()
        self.began = 0.0

    def begin(self) -> None:
        """Send everything to those who watch."""
        self.began = time.monotonic()
        self._begin.set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection: lists, then a watch."""
        while b"watch=true" not in (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0]:
            page = {"kind": "PodList", "metadata": {"resourceVersion": str(_VERSION)}, "items": []}
            body = json.dumps(page).encode()
            writer.write(_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        writer.write(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        await self._begin.wait()
        for batch in self._batches:
            writer.write(batch)
            await writer.drain()


def _pod() -> dict[str, Any]:
    """Return a pod with what the server adds: the status, and who has set which fields."""
    stamp = "2026-01-01T00:00:00Z"
    pod = {**worker_pod("worker"), "status": running_status(stamp)}
    managed = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": stamp,
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields(pod[part]),
        }
        for manager, part in (("slurm-operator", "spec"), ("kubelet", "status"))
    ]
    uid = "6f1e0c1c-0000-4000-8000-000000000000"
    metadata: dict[str, Any] = {"namespace": "burst", "uid": uid, "creationTimestamp": stamp}
    metadata |= {"managedFields": managed, "annotations": {"padding": ""}}
    pod["metadata"] = {**pod["metadata"], **metadata}
    pod["metadata"]["annotations"]["padding"] = "x" * (_EVENT_BYTES - len(_event(pod, 1)))
    return pod


def _fields(value: object) -> dict[str, Any]:
    match value:
        case dict():
            return {f"f:{key}": _fields(found) for key, found in value.items()}
        case list():
            return {f"k:{number}": _fields(found) for number, found in enumerate(value)}
    return {}


def _event(pod: dict[str, Any], number: int) -> bytes:
    metadata = {**pod["metadata"], "name": f"worker-{number:05d}", "resourceVersion": str(_VERSION + number)}
    told = {"type": "MODIFIED", "object": {**pod, "metadata": metadata}}
    line = json.dumps(told, separators=(",", ":")).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


@asynccontextmanager
async def serving(burst: Burst, folder: Path) -> AsyncIterator[Path]:
    """Serve while the block runs, and hand out a kubeconfig for it."""
    authority = pki.make_authority("burst")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pki.write_pair(folder, "ca", authority.certificate, authority.key)
    pki.write_pair(folder, "server", *pki.issue(authority, "server", addresses=["127.0.0.1"]))
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server = await asyncio.start_server(burst.answer, "127.0.0.1", 0, ssl=context)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "burst",
        "contexts": [{"name": "burst", "context": {"cluster": "burst", "user": "burst"}}],
        "clusters": [
            {"name": "burst", "cluster": {"server": address, "certificate-authority": str(folder / "ca.crt")}}
        ],
        "users": [{"name": "burst", "user": {"token": "any"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        yield path
    finally:
        server.close()
