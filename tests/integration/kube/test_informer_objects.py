"""Informers of kinds whose objects do not decode, or which the server does not serve."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.models.meta import Key, Object, Part, Resource
from slurm_operator.kube.process import metrics
from tests.support.kube.informer_checks import HASTY, assert_same_as_fresh_list, running, through, wait_until
from tests.support.kube.network_faults import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.kube.client.transport import RequestInfo


class WidgetSpec(Part, frozen=True):
    size: int = 0


class Widget(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("tests.example", "v1", "widgets", "Widget")

    spec: WidgetSpec = WidgetSpec()


class AnyWidget(Object, frozen=True):
    """The same objects for a reader that does not look at the spec: the way to write bad ones."""

    RESOURCE: ClassVar[Resource] = Widget.RESOURCE


WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.tests.example"},
    "spec": {
        "group": "tests.example",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                        },
                    }
                },
            }
        ],
    },
}
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@asynccontextmanager
async def widgets_served(client: Client) -> AsyncIterator[None]:
    """Install the CRD of Widget for a while."""
    await client.raw("POST", CRD_PATH, body=WIDGETS)
    try:
        yield
    finally:
        await client.raw("DELETE", f"{CRD_PATH}/widgets.tests.example")
        await wait_for_raw(client, f"{CRD_PATH}/widgets.tests.example", NotFound)


async def wait_for_raw(client: Client, path: str, expected: type[KubeError] | None) -> None:
    """Wait until a path answers, or answers with an error of a class."""
    found: type[BaseException] | None = None
    async with asyncio.timeout(60):
        while True:
            try:
                await client.raw("GET", path)
                found = None
            except KubeError as error:
                found = type(error)
            if found is expected:
                return
            await asyncio.sleep(0.05)


def widget(name: str, namespace: str, size: object) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"size": size}}


async def test_malformed_objects(client: Client, kube_namespace: str) -> None:
    """An object that does not decode costs only itself: marked, counted, asked for, and back when fixed."""
    ns = kube_namespace
    sent: list[RequestInfo] = []
    async with (
        widgets_served(client),
        Proxy(client.config.server) as proxy,
        Client(through(client.config, proxy.url), observe=sent.append) as behind,
    ):
        await wait_for_raw(client, Widget.RESOURCE.path(ns), None)
        for name, size in (("good", 1), ("listed-bad", "huge"), ("turns-bad", 2)):
            await client.create(AnyWidget, widget(name, ns, size))
        informer = Informer(behind, Widget, namespaces=(ns,), timing=HASTY)
        informer.add_index("size", lambda obj: (str(obj.spec.size),))
        async with running(informer) as mirror:
            assert set(informer.store.unreadable) == {Key(ns, "listed-bad")}
            before = decode_errors()

            await client.patch(AnyWidget, "turns-bad", ns, {"spec": {"size": []}}, type=PatchType.MERGE)
            await client.create(AnyWidget, widget("born-bad", ns, "tiny"))
            await client.create(AnyWidget, widget("later", ns, 7))
            await assert_same_as_fresh_list(informer, client, mirror, (ns,))
            assert set(informer.store.unreadable) == {
                Key(ns, name) for name in ("listed-bad", "turns-bad", "born-bad")
            }
            assert "$.object.spec.size" in informer.store.unreadable[Key(ns, "turns-bad")]
            last_known = informer.store.get(Key(ns, "turns-bad"))
            assert last_known is not None
            assert last_known.spec.size == 2
            assert decode_errors() >= before + 2
            # The first list, and one question each for the three bad objects.
            await wait_until(lambda: [info.verb for info in sent].count("list") == 4, "bad objects asked for")

            proxy.cut()
            await client.patch(AnyWidget, "turns-bad", ns, {"spec": {"size": 3}}, type=PatchType.MERGE)
            await client.patch(AnyWidget, "listed-bad", ns, {"spec": {"size": 4}}, type=PatchType.MERGE)
            await client.delete(AnyWidget, "born-bad", ns)
            await assert_same_as_fresh_list(informer, client, mirror, (ns,))
            assert not informer.store.unreadable
            assert [obj.metadata.name for obj in informer.store.by_index("size", "3")] == ["turns-bad"]


def decode_errors() -> float:
    return metrics.REGISTRY.get_sample_value("slurm_operator_decode_errors_total", {"kind": "Widget"}) or 0.0


async def test_a_kind_that_is_not_served_yet(client: Client, kube_namespace: str) -> None:
    """An informer of a missing CRD reports it, and syncs once the CRD is installed."""
    informer = Informer(client, Widget, namespaces=(kube_namespace,), timing=HASTY)
    async with running(informer, synced=False) as mirror:
        await wait_until(lambda: isinstance(informer.last_error, NotFound), "the missing kind is reported")
        assert not informer.synced
        async with widgets_served(client):
            await wait_for_raw(client, Widget.RESOURCE.path(kube_namespace), None)
            await client.create(AnyWidget, widget("first", kube_namespace, 1))
            await wait_until(lambda: informer.synced, "synced")
            await assert_same_as_fresh_list(informer, client, mirror, (kube_namespace,))


async def test_a_deeply_nested_object(client: Client, kube_namespace: str) -> None:
    """An object nested as deep as the server allows costs only itself, in a list and in a watch."""
    ns = kube_namespace
    async with widgets_served(client):
        await wait_for_raw(client, Widget.RESOURCE.path(ns), None)
        await client.create(AnyWidget, widget("good", ns, 1))
        await create_deep_widget(client, ns, "listed")
        informer = Informer(client, Widget, namespaces=(ns,), timing=HASTY)
        async with running(informer) as mirror:
            assert informer.synced
            await create_deep_widget(client, ns, "watched")
            await client.create(AnyWidget, widget("after", ns, 2))
            await assert_same_as_fresh_list(informer, client, mirror, (ns,))
            assert {obj.metadata.name for obj in informer.store.list()} == {"good", "after"}
            assert set(informer.store.unreadable) == {Key(ns, "listed"), Key(ns, "watched")}
            assert "nested too deeply" in informer.store.unreadable[Key(ns, "watched")]

            for name in ("listed", "watched"):
                await client.raw("DELETE", f"{Widget.RESOURCE.path(ns)}/{name}")
            await assert_same_as_fresh_list(informer, client, mirror, (ns,))
            for name in ("listed", "watched"):
                assert [what for what, uid in mirror.of(name) if uid] == ["added", "deleted"]


async def create_deep_widget(client: Client, namespace: str, name: str) -> None:
    """Create a widget whose size is of a depth that Python's encoders would refuse, too."""
    head = (
        f'{{"apiVersion":"tests.example/v1","kind":"Widget","metadata":{{"name":"{name}"}},"spec":{{"size":'
    )
    body = head.encode() + b'{"a":' * DEPTH + b"1" + b"}" * DEPTH + b"}}"
    await client.raw("POST", Widget.RESOURCE.path(namespace), body=body)


# The server reads ten thousand levels, of which managed fields, which repeat the object, need a few more.
DEPTH = 9_900
