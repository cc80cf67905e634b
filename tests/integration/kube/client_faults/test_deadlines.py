"""Deadlines hold whatever is slow, and calls that were given up leave no trace."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.kube.client.exec_plugin import ExecPlugin, ExecSpec
from slurm_operator.kube.errors import (
    DeadlineExceeded,
)
from slurm_operator.kube.models.kinds import ConfigMap
from tests.support.executables import shell_program
from tests.support.kube.network_faults import silent_server
from tests.support.kube.scripted_server import BODY, GOOD, OK, Request, Server, hang, respond

if TYPE_CHECKING:
    from pathlib import Path


async def test_silent_server_meets_the_deadline(server: Server, client: Client) -> None:
    """An answer that never comes is DeadlineExceeded, with the write's fate unknown."""
    server.script = [OK, hang]
    # A connection is there already: making one on a busy machine could take longer than the deadline.
    await client.get(ConfigMap, "a", "n")
    with pytest.raises(
        DeadlineExceeded, match=r"create ConfigMap n/a: no answer from .* within 0\.5 s"
    ) as caught:
        await client.create(ConfigMap, BODY, timeout=0.5)
    assert caught.value.sent


async def test_dripping_server_meets_the_deadline(server: Server, client: Client) -> None:
    """A server that sends a byte now and then cannot stretch a call beyond its deadline."""

    async def drip(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    server.script = [drip]
    with pytest.raises(DeadlineExceeded):
        await client.get(ConfigMap, "a", "n", timeout=0.3)


async def test_waiting_for_a_slot_counts(server: Server) -> None:
    """Time spent waiting for a free slot is part of the deadline, and such a call was not sent."""
    arrived = asyncio.Event()

    async def arrive(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await hang(request, writer)

    server.script = [arrive]
    async with Client(server.config(), max_in_flight=1) as client:
        first = asyncio.ensure_future(client.get(ConfigMap, "a", "n"))
        async with asyncio.timeout(60):
            await arrived.wait()
        with pytest.raises(DeadlineExceeded, match=r"n/a: no free slot for the request within") as caught:
            await client.create(ConfigMap, BODY, timeout=0.2)
        assert not caught.value.sent
        assert len(server.requests) == 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_deadline_names_what_was_missing(server: Server, tmp_path: Path) -> None:
    """Time lost on credentials or on connecting is not blamed on a server that was never asked."""
    shell_program(tmp_path / "plugin", "exec sleep 60\n")
    spec = ExecSpec(command="./plugin", api_version="client.authentication.k8s.io/v1")
    plugin = ExecPlugin(
        spec, directory=tmp_path, cluster=None, trust=ssl.create_default_context, where="x", seconds=1
    )
    async with Client(ClientConfig(server=server.url, auth=plugin), timeout=0.2) as client:
        with pytest.raises(
            DeadlineExceeded, match=r"^get ConfigMap n/a: no credentials within 0\.2 s$"
        ) as caught:
            await client.get(ConfigMap, "a", "n")
        assert not caught.value.sent
        watch = client.watch(ConfigMap, "n", resource_version="1")
        with pytest.raises(
            DeadlineExceeded, match=r"^watch configmaps in n: no credentials within"
        ) as caught:
            await anext(watch)
        assert not caught.value.sent
    assert server.requests == []

    async with silent_server() as port:
        silent = ClientConfig(server=f"https://127.0.0.1:{port}", ssl=ssl.create_default_context())
        async with Client(silent, timeout=0.2) as client:
            with pytest.raises(DeadlineExceeded, match=rf"n/a: no connection to 127\.0\.0\.1:{port} within"):
                await client.get(ConfigMap, "a", "n")


async def test_requests_in_flight_are_bounded(server: Server) -> None:
    """However many calls are made, only so many are with the server at a time."""

    async def slowly(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.005)
        await OK(request, writer)

    server.script = [slowly]
    async with Client(server.config(), max_in_flight=3) as client:
        await asyncio.gather(*(client.get(ConfigMap, "a", "n") for _ in range(30)))
    assert server.most == 3


async def test_cancelled_call_does_not_poison_the_next(server: Server, client: Client) -> None:
    """The late answer to a cancelled call is never taken for the answer to the next one."""
    arrived, late = asyncio.Event(), asyncio.Event()

    async def answer_late(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await late.wait()
        await respond(200, GOOD | {"data": {"k": "late"}})(request, writer)

    async def answer_both(request: Request, writer: asyncio.StreamWriter) -> None:
        late.set()
        await OK(request, writer)

    server.script = [answer_late, answer_both]
    first = asyncio.ensure_future(client.get(ConfigMap, "a", "n"))
    await arrived.wait()
    first.cancel()
    assert (await client.get(ConfigMap, "a", "n")).data == {"k": "v"}
    assert first.cancelled()


async def test_client_must_be_open(server: Server) -> None:
    """A client outside its `async with` says how it is meant to be used."""
    with pytest.raises(RuntimeError, match="async with Client"):
        await Client(server.config()).get(ConfigMap, "a", "n")
