"""Watches, the fence and the metrics hook against a real API server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.client import Client, PatchType, RequestInfo
from slurm_operator.kube.errors import ConnectionFailed, DeadlineExceeded, FencedError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Deployment, Pod

if TYPE_CHECKING:
    from slurm_operator.kube.client.config import ClientConfig


def config_map(
    name: str, namespace: str, data: dict[str, str] | None = None, **metadata: Any
) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace} | metadata, "data": data or {}}


def pod(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace} | metadata,
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "example/c:1"}],
        },
    }


# ------------------------------------------------------------------------------------------------------ watch


async def test_watch_tells_every_change(client: Client, kube_namespace: str) -> None:
    """A watch from a list's version tells what happened since, in order, typed."""
    start = await client.list(ConfigMap, kube_namespace)
    await client.create(ConfigMap, config_map("a", kube_namespace, {"k": "1"}))
    await client.apply(ConfigMap, config_map("a", kube_namespace, {"k": "2"}))
    await client.delete(ConfigMap, "a", kube_namespace)
    seen = []
    async with aclosing(
        client.watch(ConfigMap, kube_namespace, resource_version=start.resource_version)
    ) as events:
        async for event in events:
            assert isinstance(event.object, ConfigMap)
            assert event.resource_version == event.object.metadata.resource_version
            seen.append((event.type, (event.object.data or {})["k"]))
            if event.type == "DELETED":
                break
    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


async def test_watch_ends_when_the_server_ends_it(client: Client, kube_namespace: str) -> None:
    """The server's own time limit ends a watch without an error."""
    start = await client.list(ConfigMap, kube_namespace)
    events = client.watch(
        ConfigMap, kube_namespace, resource_version=start.resource_version, timeout_seconds=1
    )
    assert all([event.type == "BOOKMARK" async for event in events])


async def test_watch_from_the_future_is_silent(client: Client, kube_namespace: str) -> None:
    """A server that has not reached the version yet opens the watch and says nothing, not even that."""
    events = client.watch(
        ConfigMap, kube_namespace, resource_version="9" * 15, idle_seconds=2.0, timeout_seconds=60
    )
    first = asyncio.ensure_future(anext(events))
    await client.create(ConfigMap, config_map("unheard", kube_namespace))
    with pytest.raises(ConnectionFailed, match="no data arrived in time") as caught:
        await first
    assert caught.value.sent
    assert not isinstance(caught.value, DeadlineExceeded)


async def test_watch_does_not_take_a_slot(config: ClientConfig, kube_namespace: str) -> None:
    """Open watches leave room for requests even when only one may be in flight."""
    async with Client(config, max_in_flight=1) as client:
        start = await client.list(ConfigMap, kube_namespace)
        async with aclosing(
            client.watch(ConfigMap, kube_namespace, resource_version=start.resource_version)
        ) as events:
            first = asyncio.ensure_future(anext(events))
            await client.create(ConfigMap, config_map("a", kube_namespace))
            assert (await first).type == "ADDED"


async def test_watch_of_long_lines(client: Client, kube_namespace: str) -> None:
    """An event far longer than any line limit of an HTTP library arrives whole."""
    start = await client.list(ConfigMap, kube_namespace)
    await client.create(ConfigMap, config_map("big", kube_namespace, {"k": "x" * 900_000}))
    async with aclosing(
        client.watch(ConfigMap, kube_namespace, resource_version=start.resource_version)
    ) as events:
        event = await anext(events)
    assert isinstance(event.object, ConfigMap)
    assert len((event.object.data or {})["k"]) == 900_000


# ------------------------------------------------------------------------------------------ fence and metrics


async def test_fence_stops_writes_and_lets_reads_pass(config: ClientConfig, kube_namespace: str) -> None:
    """A process that lost its lease reads on and writes nothing, by any verb."""

    def fence() -> None:
        raise FencedError("the lease is lost")

    async with Client(config) as free:
        await free.create(ConfigMap, config_map("kept", kube_namespace, {"k": "1"}))
        await free.create(Pod, pod("p", kube_namespace))
    async with Client(config, fence=fence) as fenced:
        before = await fenced.get(ConfigMap, "kept", kube_namespace)
        writes = (
            fenced.create(ConfigMap, config_map("new", kube_namespace)),
            fenced.apply(ConfigMap, config_map("kept", kube_namespace, {"k": "2"})),
            fenced.patch(ConfigMap, "kept", kube_namespace, {"data": None}, type=PatchType.MERGE),
            fenced.patch_status(Pod, "p", kube_namespace, {"phase": "Failed"}),
            fenced.delete(ConfigMap, "kept", kube_namespace),
            fenced.evict("p", kube_namespace),
            fenced.raw("DELETE", f"/api/v1/namespaces/{kube_namespace}/configmaps/kept"),
        )
        for write in writes:
            with pytest.raises(FencedError, match="the lease is lost"):
                await write
        assert (await fenced.list(ConfigMap, kube_namespace)).items == [before]
        assert not (await fenced.get(Pod, "p", kube_namespace)).deleting
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        assert b'"status"' in await fenced.raw("POST", path, body=review, fenced=False)


async def test_every_attempt_is_observed(config: ClientConfig, kube_namespace: str) -> None:
    """The hook hears of each request: method, verb, resource, host and status."""
    seen: list[RequestInfo] = []
    async with Client(config, observe=seen.append) as client:
        await client.list(ConfigMap, kube_namespace)
        with pytest.raises(NotFound):
            await client.get_scale(Deployment, "none", kube_namespace)
        await client.create(ConfigMap, config_map("a", kube_namespace))
        await client.raw("GET", "/version")
    host = config.server.removeprefix("https://")
    assert [info[:5] for info in seen] == [
        ("GET", "list", "configmaps", host, "200"),
        ("GET", "get", "deployments/scale", host, "404"),
        ("POST", "create", "configmaps", host, "201"),
        ("GET", "get", "/version", host, "200"),
    ]
