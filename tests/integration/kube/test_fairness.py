"""One namespace whose reconciles never end, beside others, on a real API server."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from slurm_operator.kube.models.kinds import ConfigMap
from slurm_operator.kube.runtime.controller import PER_NAMESPACE, Controller
from slurm_operator.kube.runtime.manager import Manager
from tests.support.kube.informer_checks import wait_until

if TYPE_CHECKING:
    import pytest

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Key

LABELS = {"fairness": "yes"}
OBJECTS = 20


async def test_endless_reconciles_of_one_namespace_cost_others_seconds(
    client: Client, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty objects whose reconciles take 300 s each do not keep the four workers from another namespace."""
    manager = Manager(client, namespaces=[kube_namespace, "default"])
    informer = manager.informer(ConfigMap, labels=LABELS)
    waited: dict[Key, float] = {}
    stuck: set[Key] = set()

    async def reconcile(key: Key) -> None:
        if key.namespace == kube_namespace:
            stuck.add(key)
            await asyncio.sleep(300)
        waited.setdefault(key, asyncio.get_running_loop().time())

    manager.add(Controller("unfair", reconcile, workers=4, deadline=300.0, cancel_grace=1.0).watch(informer))
    for namespace in (kube_namespace, "default"):
        for number in range(OBJECTS):
            metadata = {"name": f"fair-{number}", "namespace": namespace, "labels": LABELS}
            await client.create(ConfigMap, {"metadata": metadata})
    began = asyncio.get_running_loop().time()
    task = asyncio.create_task(manager.run(asyncio.Event()))
    try:
        await wait_until(lambda: len(waited) == OBJECTS, "the other namespace is reconciled")
        assert {key.namespace for key in waited} == {"default"}
        await wait_until(lambda: len(stuck) == PER_NAMESPACE, "the slow namespace has its share")
    finally:
        task.cancel()
        await asyncio.wait({task})
        for number in range(OBJECTS):
            await client.delete(ConfigMap, f"fair-{number}", "default")
    with capsys.disabled():
        sys.stdout.write(f" [slowest of the others: {max(waited.values()) - began:.2f} s]")
