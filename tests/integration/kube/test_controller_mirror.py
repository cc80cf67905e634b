"""A whole controller on a real API server: every ConfigMap labelled `mirror=yes` gets a copy that it owns."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import ClientConfig, load_config
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.controller import Controller
from slurm_operator.kube.runtime.manager import Manager
from slurm_operator.kube.runtime.sources import Channel, enqueue_owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kubebox import Box
    from slurm_operator.kube.client.transport import RequestInfo

DEADLINE = 60.0
MIRROR, COPY = {"mirror": "yes"}, {"mirrored": "yes"}


class Mirror:
    """The controller under test, and what it did."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.manager = Manager(client, namespaces=[namespace])
        self.sources = self.manager.informer(ConfigMap, labels=MIRROR)
        self.copies = self.manager.informer(ConfigMap, labels=COPY)
        self.requests: Channel[Key] = Channel()
        self.requested: set[Key] = set()
        self.controller = self.manager.add(
            Controller("mirror", self.reconcile, workers=8)
            .watch(self.sources)
            .watch(self.copies, enqueue_owner(ConfigMap))
            .watch_channel(self.requests, lambda key: [key])
        )
        self.reconciled: Counter[Key] = Counter()

    async def reconcile(self, key: Key) -> None:
        self.reconciled[key] += 1
        source, copy = self.sources.store.get(key), self.copies.store.get(copy_of(key))
        if source is None or source.deleting:
            if copy is not None:
                await self.client.delete(ConfigMap, copy.metadata.name, key.namespace, uid=copy.metadata.uid)
            return
        wrong = copy is None or copy.data != source.data or copy.controller_owner is None
        if wrong or key in self.requested:
            await self.client.apply(ConfigMap, copy_body(source))
            self.requested.discard(key)

    def request(self, key: Key) -> None:
        """Ask from outside Kubernetes for the copy to be written, right or not."""
        self.requested.add(key)
        self.requests.send(key)


def copy_of(key: Key) -> Key:
    return Key(key.namespace, f"{key.name}-copy")


def copy_body(source: ConfigMap) -> dict[str, Any]:
    meta = source.metadata
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta.name, "uid": meta.uid, "controller": True}
    return {
        "metadata": {
            "name": f"{meta.name}-copy",
            "namespace": meta.namespace,
            "labels": COPY,
            "ownerReferences": [owner],
        },
        "data": source.data or {},
    }


class Writes:
    """Counts what the controller's client writes."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, info: RequestInfo) -> None:
        self.count += info.method != "GET"


@asynccontextmanager
async def mirroring(
    config: ClientConfig, namespace: str, writes: Writes, *, call_seconds: float = 30.0
) -> AsyncIterator[Mirror]:
    async with Client(config, observe=writes, timeout=call_seconds) as client:
        mirror = Mirror(client, namespace)
        stop = asyncio.Event()
        run = asyncio.create_task(mirror.manager.run(stop))
        try:
            yield mirror
        finally:
            stop.set()
            async with asyncio.timeout(DEADLINE):
                await run


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until the condition holds; an API server that is away for a moment is no answer."""
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    if await condition():
                        return
                except KubeError:
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


async def create_sources(client: Client, namespace: str, names: list[str]) -> None:
    await asyncio.gather(
        *(
            client.create(
                ConfigMap,
                {"metadata": {"name": name, "labels": MIRROR}, "data": {"name": name}},
                namespace=namespace,
            )
            for name in names
        )
    )


async def patch(client: Client, namespace: str, name: str, body: dict[str, Any]) -> None:
    await client.patch(ConfigMap, name, namespace, body, type=PatchType.MERGE)


async def in_step(client: Client, namespace: str) -> bool:
    """Return whether the server has exactly one right copy of every source."""
    sources = (await client.list_all(ConfigMap, namespace, labels=MIRROR)).items
    copies = (await client.list_all(ConfigMap, namespace, labels=COPY)).items
    wanted = {(copy_of(source.key), source.metadata.uid, str(source.data)) for source in sources}
    return wanted == {
        (copy.key, copy.controller_owner.uid if copy.controller_owner else "", str(copy.data))
        for copy in copies
    }


async def test_two_hundred_objects_converge_heal_and_then_rest(
    config: ClientConfig, client: Client, kube_namespace: str
) -> None:
    """All copies appear, edited and deleted ones come back, and once nothing is wrong nothing is written."""
    names = [f"source-{number:03}" for number in range(200)]
    keys = {Key(kube_namespace, name) for name in names}
    await create_sources(client, kube_namespace, names[:150])
    writes = Writes()
    async with mirroring(config, kube_namespace, writes) as mirror:
        await create_sources(client, kube_namespace, names[150:])
        await eventually(lambda: in_step(client, kube_namespace), "200 copies")

        await patch(client, kube_namespace, "source-007-copy", {"data": {"name": "meddled"}})
        await patch(client, kube_namespace, "source-008", {"data": {"name": "renewed"}})
        await patch(client, kube_namespace, "source-010-copy", {"metadata": {"ownerReferences": None}})
        await client.delete(ConfigMap, "source-009-copy", kube_namespace)
        await client.delete(ConfigMap, "source-199", kube_namespace)
        keys.discard(Key(kube_namespace, "source-199"))
        await eventually(lambda: in_step(client, kube_namespace), "copies healed")
        assert (await client.get(ConfigMap, "source-008-copy", kube_namespace)).data == {"name": "renewed"}

        async def caught_up() -> bool:
            page = await client.list_all(ConfigMap, kube_namespace)
            cached = {
                obj.key: obj.metadata.resource_version
                for informer in (mirror.sources, mirror.copies)
                for obj in informer.store.list()
            }
            live = {obj.key: obj.metadata.resource_version for obj in page.items if obj.metadata.labels}
            return cached == live and mirror.controller.queue.idle

        await eventually(caught_up, "caches equal to the server and nothing left to do")
        written, before = writes.count, mirror.reconciled.copy()
        copies = await versions(client, kube_namespace)

        # A change that asks for nothing makes every key run once more: at rest that must not write.
        for key in keys:
            await patch(client, kube_namespace, key.name, {"metadata": {"annotations": {"touched": "yes"}}})
        await eventually(caught_up, "every touched source seen")
        assert all(mirror.reconciled[key] > before[key] for key in keys)
        assert writes.count == written
        assert await versions(client, kube_namespace) == copies


async def versions(client: Client, namespace: str) -> dict[Key, str]:
    page = await client.list_all(ConfigMap, namespace, labels=COPY)
    return {copy.key: copy.metadata.resource_version for copy in page.items}


async def test_the_controller_survives_an_api_server_restart(
    kube_box_factory: Callable[..., Box],
) -> None:
    """While the API server is away nothing is lost, and after it is back everything converges again."""
    box = await asyncio.to_thread(kube_box_factory)
    config = load_config(str(box.kubeconfig))
    # A short deadline of each call, so that a call fails instead of waiting for the server to come back.
    mirrors = mirroring(config, "default", Writes(), call_seconds=1.0)
    async with Client(config) as admin, mirrors as mirror:
        await create_sources(admin, "default", [f"before-{number}" for number in range(20)])
        await eventually(lambda: in_step(admin, "default"), "copies before the restart")

        await asyncio.to_thread(box.stop, "kube-apiserver", kill=True)
        key = Key("default", "before-0")
        mirror.request(key)

        async def retried() -> bool:
            return mirror.controller.queue.retries(key) > 2

        await eventually(retried, "the write was retried while the server was away")
        await asyncio.to_thread(box.start, "kube-apiserver")

        await eventually(lambda: create_one(admin, "default", "after"), "the server accepts objects again")
        await patch(admin, "default", "before-1-copy", {"data": {"name": "meddled"}})
        await admin.delete(ConfigMap, "before-2-copy", "default")
        await admin.delete(ConfigMap, "before-3", "default")
        await eventually(lambda: in_step(admin, "default"), "copies after the restart")

        async def served() -> bool:
            return not mirror.requested and mirror.controller.queue.retries(key) == 0

        await eventually(served, "the write that failed while the server was away")
        with pytest.raises(NotFound):
            await admin.get(ConfigMap, "before-3-copy", "default")
        assert (await admin.get(ConfigMap, "after-copy", "default")).data == {"name": "after"}


async def create_one(client: Client, namespace: str, name: str) -> bool:
    await create_sources(client, namespace, [name])
    return True
