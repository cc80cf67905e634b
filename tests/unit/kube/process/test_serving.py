"""How long the HTTP servers of the process keep a connection on which nothing is asked."""

from __future__ import annotations

import asyncio

import pytest

from slurm_operator.kube.process.listen_address import ListenAddress
from slurm_operator.kube.process.serving import HttpServer


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a"], ids=["nothing", "half a request"])
async def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    """Whoever opens connections and asks nothing cannot keep them."""
    server = HttpServer("idle", ListenAddress("127.0.0.1", 0), [], idle_seconds=0.2)
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
    finally:
        await server.close()
