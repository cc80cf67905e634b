"""Nodes that run pods in name only: what a kubelet writes, and nothing behind it.

kwok could do that, too. But it acts on a pod by its name, and when it is late, what it has to do for a pod
hits the next one of that name: workers keep their names, and an update of many of them would never end. Here
everything is done to the pod that it was meant for, by its UID, as kubelets do.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from bench.load import CONNECTIONS, running_status
from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.errors import Conflict, NotFound
from slurm_operator.kube.models.kinds import Node, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box
    from slurm_operator.kube.models.store import Change

_ROOM: Final = {"cpu": "64", "memory": "256Gi", "pods": "250"}
# The controller manager of a box gives a node ten minutes.
_HEARTBEAT_SECONDS: Final = 120.0
_START_SECONDS: Final = 60.0


class Machines:
    """All nodes of a cluster."""

    def __init__(self, client: Client, count: int) -> None:
        self._client = client
        self._names = [f"machine-{number}" for number in range(count)]
        self._pods = Informer(client, Pod)
        self._pods.add_handler(self._changed)
        self._waiting: asyncio.Queue[Pod] = asyncio.Queue()

    def _changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and (pod.deleting or (pod.spec.node_name and pod.status.phase == "Pending")):
            self._waiting.put_nowait(pod)

    async def join(self) -> None:
        """Make the nodes, and wait until they can take pods."""
        for name in self._names:
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            status = {"capacity": _ROOM, "allocatable": _ROOM, "conditions": [_ready()]}
            await self._client.create(Node, {"metadata": metadata, "status": status})
        async with asyncio.timeout(_START_SECONDS):
            while await self._tainted():  # noqa: ASYNC110 - nobody could set an event
                await asyncio.sleep(0.1)

    async def _tainted(self) -> bool:
        return any(node.spec.taints for node in (await self._client.list_all(Node)).items)

    async def run(self) -> None:
        """Play kubelets until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._beat())
            for _ in range(CONNECTIONS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            pod = await self._waiting.get()
            namespace, name = pod.key
            # It may be gone by now, or another one.
            with suppress(NotFound, Conflict):
                if pod.deleting:
                    await self._client.delete(Pod, name, namespace, uid=pod.metadata.uid, grace_period=0)
                else:
                    await self._start(namespace, name, pod.metadata.uid)

    async def _start(self, namespace: str, name: str, uid: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = {"metadata": {"uid": uid}, "status": running_status(stamp)}
        await self._client.patch(Pod, name, namespace, body, type=PatchType.STRATEGIC, subresource="status")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            for name in self._names:
                body = {"status": {"conditions": [_ready()]}}
                await self._client.patch(Node, name, "", body, type=PatchType.STRATEGIC, subresource="status")


def _ready() -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}


@asynccontextmanager
async def running_machines(box: Box, count: int) -> AsyncIterator[None]:
    """Give a box that many nodes while the block runs."""
    async with Client(load_config(str(box.kubeconfig))) as client:
        machines = Machines(client, count)
        await machines.join()
        playing = asyncio.create_task(machines.run())
        try:
            yield
        finally:
            playing.cancel()
            await asyncio.wait({playing})
