"""The client while a real API server hangs, restarts or forgets its history."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from kubebox import Box
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import AlreadyExists, ConnectionFailed, DeadlineExceeded, Gone, KubeError
from slurm_operator.kube.models.kinds import ConfigMap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="module")
def box(kube_programs: object) -> Iterator[Box]:
    """Hand out an API server that tests may break, as long as they repair it."""
    del kube_programs
    with Box.up() as made:
        yield made


@pytest.fixture
def place(box: Box) -> Iterator[str]:
    """Hand out a namespace of the breakable server."""
    with box.namespace() as name:
        yield name


@pytest.fixture
async def client(box: Box) -> AsyncIterator[Client]:
    """Hand out a client on the breakable server."""
    async with Client(load_config(box.kubeconfig)) as opened:
        yield opened


def config_map(name: str, namespace: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": namespace}}


async def test_deadline_holds_against_a_frozen_server(box: Box, place: str, client: Client) -> None:
    """A server that accepts and never answers cannot hold a call beyond its deadline, connected or not."""
    # Two calls at once leave two connections: one for the read and one for the write that follow.
    await asyncio.gather(client.list(ConfigMap, place), client.list(ConfigMap, place))
    await asyncio.to_thread(box.pause, "kube-apiserver")
    try:
        with pytest.raises(
            DeadlineExceeded, match=rf"list configmaps in {place}: no answer from .* within 0\.5 s"
        ):
            await client.list(ConfigMap, place, timeout=0.5)
        with pytest.raises(DeadlineExceeded) as sent:
            await client.create(ConfigMap, config_map("late", place), timeout=0.5)
        async with Client(client.config) as fresh:
            with pytest.raises(DeadlineExceeded) as unsent:
                await fresh.create(ConfigMap, config_map("late", place), timeout=0.5)
    finally:
        await asyncio.to_thread(box.resume, "kube-apiserver")
    assert sent.value.sent, "a write on an open connection may have arrived"
    assert not unsent.value.sent, "a write that got no connection has not"


async def test_frozen_server_does_not_park_a_watch(box: Box, place: str, client: Client) -> None:
    """A watch on a connection that went silent fails after its idle time instead of waiting for ever."""
    start = await client.list(ConfigMap, place)
    events = client.watch(ConfigMap, place, resource_version=start.resource_version, idle_seconds=2.5)
    async with aclosing(events):
        first = asyncio.ensure_future(anext(events))
        await client.create(ConfigMap, config_map("a", place))
        assert (await first).type == "ADDED"
        await asyncio.to_thread(box.pause, "kube-apiserver")
        try:
            with pytest.raises(ConnectionFailed, match=f"watch configmaps in {place}"):
                await anext(events)
        finally:
            await asyncio.to_thread(box.resume, "kube-apiserver")


@pytest.mark.parametrize("kill", [False, True])
async def test_reads_survive_a_restart(box: Box, place: str, client: Client, *, kill: bool) -> None:
    """While the server restarts, reads wait and succeed, and no write happens twice."""
    stop = asyncio.Event()
    made: list[str] = []
    unsure: list[ConnectionFailed] = []
    restarted, wrote_again = False, asyncio.Event()

    async def read() -> int:
        count = 0
        while not stop.is_set():
            await client.list(ConfigMap, place, timeout=60.0)
            count += 1
        return count

    async def write(worker: int) -> None:
        number = 0
        while not stop.is_set():
            name = f"w{worker}-{number}"
            try:
                await client.create(ConfigMap, config_map(name, place), timeout=60.0)
            except AlreadyExists:
                pytest.fail(f"{name} was sent twice")
            except ConnectionFailed as error:
                unsure.append(error)
            except KubeError:
                pass  # a server that is going down may refuse a write; then it has not happened
            else:
                made.append(name)
                if restarted:
                    wrote_again.set()
            number += 1

    readers = [asyncio.ensure_future(read()) for _ in range(4)]
    writers = [asyncio.ensure_future(write(worker)) for worker in range(4)]
    try:
        await asyncio.to_thread(box.restart, "kube-apiserver", kill=kill)
        restarted = True
        async with asyncio.timeout(60):
            await wrote_again.wait()
    finally:
        stop.set()
    counts = await asyncio.gather(*readers)
    await asyncio.gather(*writers)
    assert all(counts)
    assert all(error.sent for error in unsure), "what was never sent is tried again until the deadline"
    stored = {item.metadata.name for item in (await client.list_all(ConfigMap, place)).items}
    assert set(made) <= stored


async def test_restart_cuts_a_watch(box: Box, place: str, client: Client) -> None:
    """A killed server ends a watch with an error that tells it from an orderly end."""
    start = await client.list(ConfigMap, place)
    events = client.watch(ConfigMap, place, resource_version=start.resource_version)
    async with aclosing(events):
        first = asyncio.ensure_future(anext(events))
        await client.create(ConfigMap, config_map("a", place))
        assert (await first).type == "ADDED"
        await asyncio.to_thread(box.stop, "kube-apiserver", kill=True)
        try:
            with pytest.raises(ConnectionFailed, match=rf"watch configmaps in {place}: .* broke"):
                await anext(events)
        finally:
            await asyncio.to_thread(box.start, "kube-apiserver")


async def test_compaction_makes_old_versions_gone(box: Box, place: str, client: Client) -> None:
    """After compaction, an old continue token and an old watch version are both Gone."""
    old = await client.list(ConfigMap, place)
    for number in range(4):
        await client.create(ConfigMap, config_map(f"c{number}", place))
    page = await client.list(ConfigMap, place, limit=2)
    assert page.continue_token
    await client.create(ConfigMap, config_map("later", place))
    await asyncio.to_thread(box.compact_etcd)
    # The server answers recent versions from memory; only a restart makes it ask etcd.
    await asyncio.to_thread(box.restart, "kube-apiserver")
    with pytest.raises(Gone, match=rf"list configmaps in {place}: .* \(HTTP 410"):
        await client.list(ConfigMap, place, limit=2, continue_token=page.continue_token)
    events = client.watch(ConfigMap, place, resource_version=old.resource_version)
    async with aclosing(events):
        with pytest.raises(Gone, match=rf"watch configmaps in {place}: .* \(HTTP 410"):
            await anext(events)
