"""Every read model against what real Kubernetes components write."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.kube.client.client import BadObject, Client
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import (
    ControllerRevision,
    CustomResourceDefinition,
    Node,
    Pod,
    PodDisruptionBudget,
    Service,
    StatefulSet,
)
from tests.support.model_kinds import STORED_KINDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box

LABELS = {"app": "model"}


@pytest.fixture
async def cluster(kube_cluster: Box) -> AsyncIterator[tuple[Client, str]]:
    """Hand out a client and a namespace in the cluster with controllers and nodes."""
    with kube_cluster.namespace() as namespace:
        async with Client(load_config(kube_cluster.kubeconfig)) as client:
            yield client, namespace


def stateful_set(namespace: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "set", "namespace": namespace},
        "spec": {
            "replicas": 1,
            "serviceName": "set",
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "initContainers": [{"name": "i", "image": "example/i:1"}],
                    "containers": [{"name": "c", "image": "example/c:1", "ports": [{"containerPort": 80}]}],
                },
            },
        },
    }


async def test_models_read_what_controllers_write(cluster: tuple[Client, str]) -> None:
    """A running StatefulSet is read back typed, and no object of any kind is malformed."""
    client, namespace = cluster
    meta = {"name": "set", "namespace": namespace}
    await client.create(Service, {"metadata": meta, "spec": {"selector": LABELS, "ports": [{"port": 80}]}})
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}
    await client.create(PodDisruptionBudget, {"metadata": meta, "spec": budget})
    made = await client.create(StatefulSet, stateful_set(namespace))

    watch = client.watch(Pod, namespace, resource_version=made.metadata.resource_version)
    async with asyncio.timeout(90), aclosing(watch) as events:
        pod = await anext(e.object async for e in events if isinstance(e.object, Pod) and e.object.ready)

    owner = pod.controller_owner
    assert owner is not None
    assert (owner.kind, owner.uid) == ("StatefulSet", made.metadata.uid)
    assert (pod.status.phase, pod.spec.hostname, pod.spec.subdomain) == ("Running", "set-0", "set")
    assert pod.target_node == pod.spec.node_name
    assert pod.status.start_time is not None
    assert [status.name for status in pod.status.container_statuses] == ["c"]
    state = pod.status.container_statuses[0].state
    assert state is not None
    assert state.running is not None
    assert (await client.get(Node, pod.spec.node_name)).ready
    revision = (await client.get(StatefulSet, "set", namespace)).status.update_revision
    assert (await client.get(ControllerRevision, revision, namespace)).revision == 1

    for kind in STORED_KINDS:
        assert (await client.list_all(kind)).bad == [], kind


async def test_definitions_become_established(client: Client) -> None:
    """A new definition is read from its first, unfinished status on, until the server serves it."""
    body = {
        "metadata": {"name": "things.model.example"},
        "spec": {
            "group": "model.example",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    made = await client.create(CustomResourceDefinition, body)
    try:
        version = made.metadata.resource_version
        watch = client.watch(
            CustomResourceDefinition,
            resource_version=version,
            fields={"metadata.name": "things.model.example"},
        )
        async with asyncio.timeout(60), aclosing(watch) as events:
            async for event in events:
                assert not isinstance(event.object, BadObject)
                if event.object is not None and event.object.established:
                    break
        assert [version.name for version in made.spec.versions] == ["v1"]
    finally:
        await client.delete(CustomResourceDefinition, "things.model.example")
