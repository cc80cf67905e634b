"""The namespaces that the operator works in: what users make there, and the workers as they come and go.

As in `bench.nodeset`, the stage is the clock of the measurements and what slurmd would be: a worker that runs
registers with the Slurm of its cluster, one that ends takes its node down.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from bench.crowd import jwt_key
from bench.load import in_parallel
from bench.nodeset.stage import (
    DEADLINE,
    NAME,
    create_nodeset,
    create_operated_cluster,
    following,
    is_worker,
    slurmds,
)
from slurm_operator.api import Controller, NodeSet, RestApi, wellknown
from slurm_operator.api.shared import find_condition
from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Namespace, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bench.tenants import Crowd
    from kubebox import Box
    from slurm_operator.kube.models.store import Change

_CONNECTED: Final = wellknown.CONDITION_SLURM_API_READY


class SlurmCluster:
    """One of the clusters: its workers, and what its objects say."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.staying: set[str] = set()
        """The workers that were not told to go, by UID."""
        self.removed = 0
        """How many workers were told to go."""
        self.nodeset = NodeSet()
        self.controller = Controller()
        self.restapi = RestApi()
        self.rolled: float | None = None
        """When the status said that the rolling update is over; None while it is not."""
        self._old_hash = ""

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in a worker."""
        pod, uid = change.new, change.object.metadata.uid
        if pod is not None and not pod.deleting:
            self.staying.add(uid)
        elif uid in self.staying:
            self.staying.discard(uid)
            self.removed += 1

    def nodeset_changed(self, nodeset: NodeSet) -> None:
        """Take in the NodeSet."""
        self.nodeset = nodeset
        replicas = nodeset.spec.replicas
        if self.rolled is None and self.updated == nodeset.status.ready_replicas == replicas:
            self.rolled = time.monotonic()

    def begin_update(self) -> None:
        """Wait for another template from now on."""
        self._old_hash, self.rolled = self.nodeset.status.node_set_hash, None

    @property
    def updated(self) -> int:
        """Return how many workers have the other template."""
        status = self.nodeset.status
        return status.updated_replicas if self._old_hash not in ("", status.node_set_hash) else 0

    @property
    def connected(self) -> bool:
        """Return whether the operator says that it is connected to the Slurm of the cluster."""
        return _true(self.controller, _CONNECTED)

    @property
    def ready(self) -> bool:
        """Return whether the control plane and all workers are ready."""
        workers = self.nodeset.status.ready_replicas == self.nodeset.spec.replicas
        plane = (self.controller, self.restapi)
        return workers and self.connected and all(_true(one, wellknown.CONDITION_READY) for one in plane)


def _true(found: Controller | RestApi, kind: str) -> bool:
    condition = find_condition(found.status.conditions, kind)
    return condition is not None and condition.status == "True"


class Stage:
    """All clusters, and the watches that show what the operator does."""

    def __init__(self, client: Client, slurm: Crowd, count: int) -> None:
        self.client = client
        self.slurm = slurm
        self.clusters = [SlurmCluster(f"cluster-{number}") for number in range(count)]
        self._numbers = {cluster.namespace: number for number, cluster in enumerate(self.clusters)}
        self._news = asyncio.Event()
        pods, nodesets = Informer(client, Pod), Informer(client, NodeSet)
        controllers, restapis = Informer(client, Controller), Informer(client, RestApi)
        pods.add_handler(self._pod_changed)
        nodesets.add_handler(self._nodeset_changed)
        controllers.add_handler(self._controller_changed)
        restapis.add_handler(self._restapi_changed)
        self.informers: tuple[Informer[Any], ...] = (pods, nodesets, controllers, restapis)

    def _pod_changed(self, change: Change[Pod]) -> None:
        number = self._numbers.get(change.object.metadata.namespace)
        if number is None or not is_worker(change.object):
            return
        for order, node in zip(("terminate", "register"), slurmds(change), strict=True):
            if node:
                self.slurm.order(order, (number, node))
        self.clusters[number].pod_changed(change)
        self._news.set()

    def _nodeset_changed(self, change: Change[NodeSet]) -> None:
        if change.new is not None:
            self.clusters[self._numbers[change.key.namespace]].nodeset_changed(change.new)
        self._news.set()

    def _controller_changed(self, change: Change[Controller]) -> None:
        if change.new is not None:
            self.clusters[self._numbers[change.key.namespace]].controller = change.new
        self._news.set()

    def _restapi_changed(self, change: Change[RestApi]) -> None:
        if change.new is not None:
            self.clusters[self._numbers[change.key.namespace]].restapi = change.new
        self._news.set()

    async def create_namespaces(self) -> None:
        """Create the namespaces."""
        await in_parallel(
            [*self._numbers], lambda name: self.client.create(Namespace, {"metadata": {"name": name}})
        )

    async def create(self, workers: int) -> None:
        """Create a cluster with a NodeSet of so many workers in each namespace."""

        async def create(namespace: str) -> None:
            await create_operated_cluster(self.client, namespace, jwt_key(self._numbers[namespace]))
            await create_nodeset(self.client, namespace, NAME, workers)

        await in_parallel([*self._numbers], create)

    async def change(self, cluster: SlurmCluster, **spec: Any) -> float:
        """Change the NodeSet of a cluster and return the moment at which that was sent."""
        moment = time.monotonic()
        await self.client.patch(NodeSet, NAME, cluster.namespace, {"spec": spec}, type=PatchType.MERGE)
        return moment

    async def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until something is so, and return the moment at which it was seen."""
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            waiting = [cluster for cluster in self.clusters if not cluster.ready]
            seen = [(one.namespace, one.connected, one.nodeset.status) for one in waiting[:3]]
            raise RuntimeError(
                f"not within {DEADLINE:g} s: {what}; {len(waiting)} not ready: {seen}"
            ) from None
        return time.monotonic()


@asynccontextmanager
async def staged(box: Box, slurm: Crowd, clusters: int) -> AsyncIterator[Stage]:
    """Set up the namespaces, and follow what is in them while the block runs."""
    async with Client(load_config(str(box.kubeconfig))) as client, AsyncExitStack() as stack:
        stage = Stage(client, slurm, clusters)
        await stage.create_namespaces()
        for informer in stage.informers:
            await stack.enter_async_context(following(informer))
        yield stage
