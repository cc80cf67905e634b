"""Informers of API servers that restart, forget their history, or hold thousands of objects.

Each test breaks or fills a server of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import ConfigMap, Pod
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.process import metrics
from tests.support.kube.informer_checks import (
    HASTY,
    assert_same_as_fresh_list,
    config_map,
    create_config_maps,
    running,
    through,
    wait_until,
)
from tests.support.kube.network_faults import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box
    from kubebox.pytest_plugin import BoxFactory
    from slurm_operator.kube.models.store import Change

# Without its watch cache the server answers from etcd alone: what etcd has forgotten is gone at once.
FORGETFUL = "--watch-cache=false"


def relists(kind: str, reason: str) -> float:
    labels = {"kind": kind, "reason": reason}
    return metrics.REGISTRY.get_sample_value("slurm_operator_informer_relists_total", labels) or 0.0


@pytest.fixture
def forgetful(kube_box_factory: BoxFactory) -> Box:
    """Hand out an API server that remembers no more events than etcd does."""
    return kube_box_factory(apiserver_args=(FORGETFUL,))


@pytest.fixture
async def direct(forgetful: Box) -> AsyncIterator[Client]:
    """Hand out a client of the forgetful server."""
    async with Client(load_config(forgetful.kubeconfig)) as opened:
        yield opened


@pytest.mark.parametrize("kill", [False, True])
async def test_api_server_restarted(kube_box_factory: BoxFactory, *, kill: bool) -> None:
    """An informer outlives its API server, ended politely or killed, and catches up with what came after."""
    box = kube_box_factory()
    async with Client(load_config(box.kubeconfig)) as client:
        await create_config_maps(client, "default", "kept", "doomed", "phoenix")
        informer = Informer(client, ConfigMap, namespaces=("default", "kube-system"), timing=HASTY)
        async with running(informer) as mirror:
            await asyncio.to_thread(box.stop, "kube-apiserver", kill=kill)
            await wait_until(lambda: informer.last_error is not None, "the outage is reported")
            assert Key("default", "kept") in informer.store
            await asyncio.to_thread(box.start, "kube-apiserver")
            for name in ("doomed", "phoenix"):
                await client.delete(ConfigMap, name, "default")
            await create_config_maps(client, "default", "new", "phoenix")
            await assert_same_as_fresh_list(informer, client, mirror, ("default", "kube-system"))
            assert [what for what, _ in mirror.of("phoenix")] == ["added", "deleted", "added"]
            await wait_until(lambda: informer.last_error is None, "the recovery is reported")


async def test_etcd_compacted(forgetful: Box, direct: Client) -> None:
    """When the history since the last version is gone, a list deletes what vanished, elsewhere nothing."""
    async with (
        Proxy(forgetful.server) as proxy,
        Client(through(direct.config, proxy.url), timeout=2.0) as behind,
    ):
        await create_config_maps(direct, "default", "kept", "doomed", "phoenix")
        await create_config_maps(direct, "kube-public", "elsewhere")
        informer = Informer(behind, ConfigMap, namespaces=("default", "kube-public"), timing=HASTY)
        async with running(informer) as mirror:
            before = relists("ConfigMap", "gone")
            proxy.refuse()
            for name in ("doomed", "phoenix"):
                await direct.delete(ConfigMap, name, "default")
            await create_config_maps(direct, "default", "phoenix", "new")
            await asyncio.to_thread(forgetful.compact_etcd)
            # One more write: the version of the informer is now older than the oldest that etcd serves.
            await create_config_maps(direct, "default", "newest")
            proxy.restore()
            await assert_same_as_fresh_list(informer, direct, mirror, ("default", "kube-public"))
            assert relists("ConfigMap", "gone") > before
            assert [what for what, _ in mirror.of("doomed")] == ["added", "deleted"]
            assert [what for what, _ in mirror.of("phoenix")] == ["added", "deleted", "added"]
            assert [what for what, _ in mirror.of("elsewhere")] == ["added"]
            assert [what for what, _ in mirror.of("kept")] == ["added"]


async def test_pages_lost_to_a_compaction(forgetful: Box, direct: Client) -> None:
    """A continue token that expires between two pages restarts the list; its first part is forgotten."""
    await create_config_maps(direct, "default", *(f"cm-{number}" for number in range(7)))
    seen: list[str] = []

    def compact_once(obj: ConfigMap) -> ConfigMap:
        if not seen:
            # Between the first page and the second: its first object goes, and so does the history.
            with forgetful.api() as api:
                path = f"/api/v1/namespaces/default/configmaps/{obj.metadata.name}"
                assert api.request("DELETE", path).ok
                body = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("while-listing", "default")}
                assert api.request("POST", "/api/v1/namespaces/default/configmaps", body).ok
            forgetful.compact_etcd()
        seen.append(obj.metadata.name)
        return obj

    informer = Informer(
        direct, ConfigMap, namespaces=("default",), transform=compact_once, page_size=2, timing=HASTY
    )
    async with running(informer) as mirror:
        await assert_same_as_fresh_list(informer, direct, mirror, ("default",))
        assert Key("default", seen[0]) not in informer.store
        assert Key("default", "while-listing") in informer.store
        assert mirror.of(seen[0]) == []


async def test_fifteen_hundred_pods(kube_box_factory: BoxFactory) -> None:
    """Of 1,500 pods half are listed and half are watched: all are there, by index too, and go again."""
    box = kube_box_factory()
    async with Client(load_config(box.kubeconfig)) as client:
        await create_pods(client, range(750))
        informer = Informer(client, Pod, namespaces=("default",), timing=HASTY)
        informer.add_index("rack", lambda obj: (obj.metadata.labels["rack"],))
        cached, added = sample("cache_objects"), sample("watch_events_total", type="ADDED")
        async with running(informer) as mirror:
            assert len(informer.store) == 750
            await create_pods(client, range(750, 1500))
            await assert_same_as_fresh_list(informer, client, mirror, ("default",))
            assert len(informer.store) == 1500
            assert [len(informer.store.by_index("rack", f"r{rack}")) for rack in range(10)] == [150] * 10
            await wait_until(lambda: sample("cache_objects") - cached == 1500, "the gauge follows the store")
            assert sample("watch_events_total", type="ADDED") - added == 750

            await client.raw(
                "DELETE", "/api/v1/namespaces/default/pods", query={"labelSelector": "rack=r3"}, timeout=60.0
            )
            await assert_same_as_fresh_list(informer, client, mirror, ("default",))
            assert len(informer.store) == 1350
            assert informer.store.by_index("rack", "r3") == []

        late, turns = Informer(client, Pod, namespaces=("default",), timing=HASTY), Turns()
        late.add_handler(turns)
        async with turns.counted(), running(late):
            assert sum(turns.changes.values()) == 1350
            assert max(turns.changes.values()) < 500, "the event loop had no turn while a list was delivered"


class Turns:
    """A handler that counts its calls by turn of the event loop."""

    def __init__(self) -> None:
        self.changes: Counter[int] = Counter()
        self._turn = 0

    def __call__(self, _change: Change[Pod]) -> None:
        self.changes[self._turn] += 1

    async def _count(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Count turns for a while."""
        task = asyncio.create_task(self._count())
        try:
            yield
        finally:
            task.cancel()


def sample(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"slurm_operator_{name}", {"kind": "Pod", **labels}) or 0.0


async def create_pods(client: Client, numbers: range) -> None:
    """Create pods over 32 connections."""
    waiting = iter(numbers)

    async def work() -> None:
        for number in waiting:
            await client.create(Pod, pod(number))

    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(work())


def pod(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{number}", "namespace": "default", "labels": {"rack": f"r{number % 10}"}},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "none.invalid/none"}],
        },
    }
