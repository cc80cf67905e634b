"""The manager with real informers, a real health server and real leases."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import aiohttp
import pytest
from structlog.testing import capture_logs

from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.errors import FencedError
from slurm_operator.kube.models.kinds import ConfigMap, CustomResourceDefinition, Lease
from slurm_operator.kube.models.meta import Key, Object, Resource
from slurm_operator.kube.process.listen_address import ListenAddress
from slurm_operator.kube.process.probes import HealthServer
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.kube.runtime.lease import LeaderElector
from slurm_operator.kube.runtime.manager import LeaseLost, Manager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.kube.client.config import ClientConfig

DEADLINE = 60.0


async def eventually(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield task
    finally:
        stop.set()
        async with asyncio.timeout(DEADLINE):
            await asyncio.wait({task})
    await task


class Gadget(Object, frozen=True):
    """A kind that the API server does not know at first."""

    RESOURCE: ClassVar[Resource] = Resource("manager.test", "v1", "gadgets", "Gadget")


GADGETS: dict[str, Any] = {
    "metadata": {"name": "gadgets.manager.test"},
    "spec": {
        "group": "manager.test",
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


async def probe(health: HealthServer, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{health.port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_controllers_wait_for_caches_and_say_for_what(client: Client, kube_namespace: str) -> None:
    """Until every cache is filled nothing is reconciled, and log and probe name the kind and the reason."""
    await client.create(ConfigMap, {"metadata": {"name": "one"}}, namespace=kube_namespace)
    health = HealthServer(ListenAddress("127.0.0.1", 0))
    manager = Manager(client, namespaces=[kube_namespace], health=health, sync_log_period=0.2)
    maps, gadgets = manager.informer(ConfigMap), manager.informer(Gadget)
    seen: list[tuple[Key, bool]] = []

    async def reconcile(key: Key) -> None:
        seen.append((key, maps.synced and gadgets.synced))

    manager.add(Controller("caches", reconcile).watch(maps).watch(gadgets))
    with capture_logs() as lines:
        async with running(manager):
            waiting = "still waiting for caches"
            await eventually(lambda: gadgets.last_error is not None and maps.synced, "one cache filled")
            await eventually(lambda: any(line["event"] == waiting for line in lines[-3:]), waiting)
            said = next(line["waiting"] for line in reversed(lines) if line["event"] == waiting)
            assert "Gadget (NotFound: " in said
            assert "ConfigMap" not in said
            status, text = await probe(health, "/readyz")
            assert status == 503
            assert "Gadget (NotFound: " in text
            assert (await probe(health, "/healthz"))[0] == 200
            assert seen == []

            await client.create(CustomResourceDefinition, GADGETS)
            try:
                await eventually(lambda: (Key(kube_namespace, "one"), True) in seen, "reconciled")
                assert all(synced for _, synced in seen)
                assert (await probe(health, "/readyz"))[0] == 200
            finally:
                await client.delete(CustomResourceDefinition, GADGETS["metadata"]["name"])
    assert health.port is None


async def test_an_informer_asked_for_later_is_started_too(client: Client, kube_namespace: str) -> None:
    """A running manager starts the informers it is asked for at once, and stops them with the others."""
    await client.create(ConfigMap, {"metadata": {"name": "one"}}, namespace=kube_namespace)
    manager = Manager(client)
    early = manager.informer(ConfigMap, namespaces=[kube_namespace])
    async with running(manager):
        await eventually(lambda: early.synced, "the first cache")
        late = manager.informer(ConfigMap, namespaces=[kube_namespace], fields={"metadata.name": "one"})
        await eventually(lambda: late.synced, "the second cache")
        assert late.store.keys() == [Key(kube_namespace, "one")]
    assert not [task for task in asyncio.all_tasks() if "informer" in task.get_name()]


class Replica:
    """One of several processes that compete: it counts in a ConfigMap how often it was allowed to write."""

    def __init__(self, config: ClientConfig, namespace: str, name: str) -> None:
        self.elector = LeaderElector(
            config,
            namespace=namespace,
            name="managers",
            identity=name,
            retry_period=0.2,
        )
        self.client = Client(config, fence=self.elector.fence)
        self.manager = Manager(self.client, namespaces=[namespace], elector=self.elector)
        self.name = name
        self.namespace = namespace
        self.maps = self.manager.informer(ConfigMap)
        self.written = 0
        self.fenced = 0
        self.controller = self.manager.add(Controller(name, self.reconcile).watch(self.maps))

    async def reconcile(self, key: Key) -> None:
        if key.name != "shared":
            return
        try:
            await self.client.patch(
                ConfigMap, "shared", self.namespace, {"data": {"leader": self.name}}, type=PatchType.MERGE
            )
        except FencedError:
            self.fenced += 1
            raise
        self.written += 1


async def test_the_next_leader_takes_over_when_the_first_stops(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """Only the leader writes; when it stops, it frees the lease and the standby, caches warm, goes on."""
    await client.create(ConfigMap, {"metadata": {"name": "shared"}}, namespace=kube_namespace)
    one, two = (Replica(config, kube_namespace, name) for name in ("one", "two"))
    async with one.client, two.client:
        async with running(one.manager):
            await eventually(lambda: one.written > 0, "the first leads")
            stop_two = asyncio.Event()
            second = asyncio.create_task(two.manager.run(stop_two))
            await eventually(lambda: two.maps.synced, "the standby has its caches")
            assert two.written == 0
            assert (await client.get(Lease, "managers", kube_namespace)).spec.holder_identity == "one"
        await eventually(lambda: two.written > 0, "the second leads")
        stop_two.set()
        await second
    assert (await client.get(ConfigMap, "shared", kube_namespace)).data == {"leader": "two"}
    assert not (await client.get(Lease, "managers", kube_namespace)).spec.holder_identity


async def test_a_stolen_lease_ends_the_manager(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """Whose lease another holds stops with LeaseLost, and its client refuses every further write."""
    await client.create(ConfigMap, {"metadata": {"name": "shared"}}, namespace=kube_namespace)
    replica = Replica(config, kube_namespace, "one")
    async with replica.client:
        task = asyncio.create_task(replica.manager.run(asyncio.Event()))
        await eventually(lambda: replica.written > 0, "it leads")
        theft = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}}
        await client.patch(Lease, "managers", kube_namespace, theft, type=PatchType.MERGE)
        with pytest.raises(LeaseLost, match="another replica may lead"):
            async with asyncio.timeout(DEADLINE):
                await task
        with pytest.raises(FencedError):
            await replica.client.create(ConfigMap, {"metadata": {"name": "late"}}, namespace=kube_namespace)
    assert (await client.get(Lease, "managers", kube_namespace)).spec.holder_identity == "thief"
