"""What the tests of the `Applier` share: a client whose requests are counted, and objects to apply."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from slurm_operator.kube.client.client import Client, PatchType, RequestInfo
from slurm_operator.kube.models.kinds import Deployment
from slurm_operator.kube.runtime.apply import Applier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slurm_operator.kube.client.config import ClientConfig

OWNER_UID = "8f2f54a2-0000-4000-8000-000000000001"
OWNER = {
    "apiVersion": "slinky.slurm.net/v1beta1",
    "kind": "RestApi",
    "name": "slurm",
    "uid": OWNER_UID,
    "controller": True,
}


class Watched:
    """A client whose requests are counted, and an applier on it."""

    def __init__(self, client: Client, requests: list[RequestInfo]) -> None:
        self.client = client
        self.applier = Applier(client)
        self._requests = requests

    def taken(self) -> list[str]:
        """Return the verbs of the requests since the last question."""
        verbs = [request.verb for request in self._requests]
        self._requests.clear()
        return verbs


@asynccontextmanager
async def watching(config: ClientConfig) -> AsyncIterator[Watched]:
    """Open a client and count its requests."""
    requests: list[RequestInfo] = []
    async with Client(config, observe=requests.append) as client:
        yield Watched(client, requests)


def config_map(namespace: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": "conf", "namespace": namespace, "labels": {"mine": "1"}}, "data": data}


def deployment(namespace: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "web",
            "namespace": namespace,
            "labels": {"mine": "1"},
            "ownerReferences": [OWNER],
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "example.org/main:1",
                            "env": [{"name": "A", "value": "1"}],
                            "resources": {"limits": {"cpu": "1000m"}},
                        }
                    ]
                },
            },
        },
    }


async def labelled(client: Client, namespace: str, *, by: str) -> Deployment:
    """Give the Deployment a label as somebody else."""
    return await client.patch(
        Deployment,
        "web",
        namespace,
        {"metadata": {"labels": {"theirs": "1"}}},
        type=PatchType.MERGE,
        field_manager=by,
    )


def managers(body: dict[str, Any]) -> set[tuple[str, str]]:
    return {(entry["manager"], entry["operation"]) for entry in body["metadata"]["managedFields"]}


async def raw(client: Client, kind: type[Any], name: str, namespace: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(await client.raw("GET", kind.RESOURCE.path(namespace, name)))
    return result
