"""Informers of a real API server behind a faulty connection, and under load."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Pod
from slurm_operator.kube.models.meta import Key
from tests.support.kube.informer_checks import (
    DEADLINE,
    HASTY,
    IMPATIENT,
    assert_same_as_fresh_list,
    config_map,
    create_config_maps,
    names,
    running,
    through,
    wait_until,
)
from tests.support.kube.network_faults import Proxy
from tests.support.kube.scripted_server import Request, respond, serving, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box
    from slurm_operator.kube.client.config import ClientConfig


@pytest.fixture
async def proxy(config: ClientConfig) -> AsyncIterator[Proxy]:
    """Hand out a faulty way to the shared API server."""
    async with Proxy(config.server) as running_proxy:
        yield running_proxy


@pytest.fixture
async def behind(config: ClientConfig, proxy: Proxy) -> AsyncIterator[Client]:
    """Hand out a client that goes through the proxy and gives up opening a connection soon."""
    async with Client(through(config, proxy.url), timeout=2.0) as opened:
        yield opened


def config_maps(client: Client, namespace: str) -> Informer[ConfigMap]:
    return Informer(client, ConfigMap, namespaces=(namespace,), timing=HASTY)


# --- connections


@pytest.mark.parametrize("size", [1, 900, 20_000, 150_000])
async def test_watch_cut_in_the_middle_of_an_event(
    client: Client, behind: Client, proxy: Proxy, kube_namespace: str, size: int
) -> None:
    """A connection that breaks inside an event loses nothing: the watch resumes before that event."""
    informer = config_maps(behind, kube_namespace)
    async with running(informer) as mirror:
        await create_config_maps(client, kube_namespace, "before")
        await wait_until(lambda: "before" in names(informer), "first event seen")
        proxy.cut_after(size)
        await client.create(ConfigMap, config_map("big", kube_namespace, "x" * 300_000))
        await create_config_maps(client, kube_namespace, "after")
        await assert_same_as_fresh_list(informer, client, mirror, (kube_namespace,))
        assert proxy.cuts == 1
        assert [what for what, _ in mirror.of("big")] == ["added"]
    assert informer.last_error is None


async def test_connections_that_break_all_the_time(
    client: Client, behind: Client, proxy: Proxy, kube_namespace: str
) -> None:
    """Writes go on while the connection is cut again and again; the store still ends equal."""
    informer = config_maps(behind, kube_namespace)
    async with running(informer) as mirror, asyncio.timeout(DEADLINE):
        cuts = -1
        for number in itertools.count():
            name = f"cm-{number % 7}"
            if proxy.cuts == 10:
                break
            if proxy.cuts > cuts:
                cuts = proxy.cuts
                proxy.cut_after(700 + 1311 * cuts % 9000)
            try:
                await client.delete(ConfigMap, name, kube_namespace)
            except NotFound:
                await client.create(ConfigMap, config_map(name, kube_namespace, "y" * (number * 37 % 3000)))
        await assert_same_as_fresh_list(informer, client, mirror, (kube_namespace,))


async def test_recreated_while_disconnected(
    client: Client, behind: Client, proxy: Proxy, kube_namespace: str
) -> None:
    """An object deleted and created again under its name while cut off is a deletion and an addition."""
    (old,) = await create_config_maps(client, kube_namespace, "phoenix")
    informer = config_maps(behind, kube_namespace)
    async with running(informer) as mirror:
        proxy.refuse()
        await client.delete(ConfigMap, "phoenix", kube_namespace)
        (new,) = await create_config_maps(client, kube_namespace, "phoenix")
        await wait_until(lambda: proxy.refusals > 1, "the informer tries to come back")
        proxy.restore()
        await assert_same_as_fresh_list(informer, client, mirror, (kube_namespace,))
        uids = (old.metadata.uid, new.metadata.uid)
        assert mirror.of("phoenix") == [("added", uids[0]), ("deleted", uids[0]), ("added", uids[1])]


async def test_an_unreachable_server_is_visible_and_harmless(
    client: Client, behind: Client, proxy: Proxy, kube_namespace: str
) -> None:
    """While the server refuses, the store keeps what it knew and last_error says why; later it catches up."""
    await create_config_maps(client, kube_namespace, "one", "two")
    informer = config_maps(behind, kube_namespace)
    async with running(informer) as mirror:
        proxy.refuse()
        await wait_until(lambda: informer.last_error is not None, "the outage is reported")
        assert isinstance(informer.last_error, KubeError)
        assert names(informer) >= {"one", "two"}
        await client.delete(ConfigMap, "one", kube_namespace)
        proxy.restore()
        await assert_same_as_fresh_list(informer, client, mirror, (kube_namespace,))
        await wait_until(lambda: informer.last_error is None, "the recovery is reported")


async def test_a_silent_connection_is_given_up(
    client: Client, behind: Client, proxy: Proxy, kube_namespace: str
) -> None:
    """A connection that stays open and says nothing does not keep the informer from the truth."""
    informer = Informer(behind, ConfigMap, namespaces=(kube_namespace,), timing=IMPATIENT)
    async with running(informer) as mirror:
        proxy.hang()
        await create_config_maps(client, kube_namespace, "unheard")
        await wait_until(lambda: informer.last_error is not None, "silence is noticed")
        proxy.restore()
        await assert_same_as_fresh_list(informer, client, mirror, (kube_namespace,))


# --- selections


async def test_selectors_and_namespaces(
    client: Client, behind: Client, proxy: Proxy, kube_box: Box, kube_namespace: str
) -> None:
    """Only selected objects of the listed namespaces are cached, and a label that goes away is a deletion."""
    with kube_box.namespace() as other, kube_box.namespace() as foreign:
        for namespace in (kube_namespace, other, foreign):
            await create_config_maps(client, namespace, "wanted", "unwanted", "leaving")
        informer = Informer(
            behind,
            ConfigMap,
            namespaces=(kube_namespace, other, kube_namespace),
            labels={"of": "tests"},
            fields={"metadata.name!": "unwanted"},
            timing=HASTY,
        )
        informer.add_index("namespace", lambda obj: (obj.metadata.namespace,))
        async with running(informer):
            expected = {Key(ns, name) for ns in (kube_namespace, other) for name in ("wanted", "leaving")}
            assert set(informer.store.keys()) == expected
            await client.patch(
                ConfigMap,
                "leaving",
                other,
                {"metadata": {"labels": {"of": None}}},
                type=PatchType.MERGE,
            )
            await wait_until(
                lambda: Key(other, "leaving") not in informer.store, "the unlabelled one is gone"
            )
            proxy.cut()
            await client.delete(ConfigMap, "wanted", kube_namespace)
            await wait_until(
                lambda: set(informer.store.keys()) == {Key(kube_namespace, "leaving"), Key(other, "wanted")},
                "the deletion in one namespace leaves the other alone",
            )
            assert [obj.key for obj in informer.store.by_index("namespace", other)] == [Key(other, "wanted")]


# --- load


async def test_status_patch_storm(client: Client, kube_namespace: str) -> None:
    """A thousand status patches on twenty pods end with the last version of each, none going back in time."""
    names = [f"storm-{number}" for number in range(20)]
    await asyncio.gather(*(client.create(Pod, pod(name, kube_namespace)) for name in names))
    informer = Informer(client, Pod, namespaces=(kube_namespace,), timing=HASTY)
    informer.add_index("phase", lambda obj: (obj.status.phase,))
    async with running(informer) as mirror:

        async def storm(worker: int) -> None:
            for number in range(63):
                status = {"phase": ("Pending", "Running")[number % 2], "message": f"{worker}-{number}"}
                await client.patch_status(Pod, names[(worker * 5 + number) % 20], kube_namespace, status)

        await asyncio.gather(*(storm(worker) for worker in range(16)))
        await assert_same_as_fresh_list(informer, client, mirror, (kube_namespace,))
        assert len(mirror.changes) > 500
        running_pods = {obj.key for obj in informer.store.list() if obj.status.phase == "Running"}
        assert {obj.key for obj in informer.store.by_index("phase", "Running")} == running_pods


def pod(name: str, namespace: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "none.invalid/none"}],
        },
    }


# --- a restored etcd


async def test_a_version_from_the_future() -> None:
    """When a restore puts the server behind the informer, silence leads to a list and ghosts are deleted."""
    restored = False

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        # As the real server does, see the test of the client: it waits for the version without a word.
        if "watch=true" in request.target:
            await stream(end=None)(request, writer)
            return
        item = {"metadata": {"name": "ghost", "namespace": "n", "uid": "u", "resourceVersion": "990"}}
        version = "500" if restored else "1000"
        items = [] if restored else [item]
        await respond(200, {"metadata": {"resourceVersion": version}, "items": items})(request, writer)

    async with serving() as server, Client(server.config()) as client:
        server.script = [answer]
        informer = Informer(client, ConfigMap, timing=dataclasses.replace(HASTY, idle=0.2))
        async with running(informer) as mirror:
            restored = True
            await wait_until(lambda: not informer.store.keys(), "the ghost is gone")
            assert mirror.of("ghost") == [("added", "u"), ("deleted", "u")]
            await wait_until(
                lambda: "resourceVersion=500" in server.requests[-1].target, "watching from there"
            )
