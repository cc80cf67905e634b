"""What a user of NodeSets does and sees in one namespace, and the operator that works there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.api import Cluster, NodeSet
from slurm_operator.controllers import cluster, slurmclient
from slurm_operator.controllers.nodeset import controller
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import ControllerRevision, PersistentVolumeClaim, Pod
from tests.support.controllers import workload_namespace as workload
from tests.support.controllers.workload_namespace import Operator, running
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from slurm_operator.controllers.shared.wiring import Build
    from slurm_operator.kube.models.meta import Object

BUILDS: tuple[Build, ...] = (cluster.build, slurmclient.build, controller.build)


class Stage(workload.Stage):
    """One namespace; workers share Kubernetes nodes here, because there are only a few."""

    async def operator(self, *flags: str) -> Operator:
        """Start an operator, which runs until the test ends."""
        return await self._stack.enter_async_context(self.for_a_while(*flags))

    def for_a_while(self, *flags: str) -> AbstractAsyncContextManager[Operator]:
        """Start an operator that runs until the block ends."""
        return running(self.config, self.namespace, *flags, builds=BUILDS)

    async def reconcile_again(self, operator: Operator) -> None:
        """Reconcile every NodeSet, as any event would, and wait until that is done."""
        (nodesets,) = (one for one in operator._controllers if one.name == controller.NAME)
        for live in operator.wiring.manager.informer(NodeSet).store.list():
            nodesets.queue.add(live.key)
        await eventually(lambda: nodesets.queue.idle, "all are looked at")

    async def nodeset(self, name: str = "blue", controller: str = "slurm", **spec: Any) -> None:
        """Write a NodeSet."""
        base = {"oversubscribeNode": True, "logfile": workload.IMAGE}
        await super().nodeset(name, controller, **(base | spec))

    async def cluster(self, name: str, server: str) -> None:
        """Write a Cluster whose token is in the Secret `token`."""
        await self._apply(Cluster, name, {"server": server, "token": {"secretRef": "token"}})

    @property
    def quota_path(self) -> str:
        """Return the path of the quota that `quota` makes."""
        return f"/api/v1/namespaces/{self.namespace}/resourcequotas/quota"

    async def quota(self, pods: int) -> None:
        """Allow so many pods, and wait until that is in force."""
        path = self.quota_path
        body = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "quota"},
            "spec": {"hard": {"pods": str(pods)}},
        }
        query = {"fieldManager": "user"}
        await self.client.raw(
            "PATCH", path, body=body, query=query, content_type="application/apply-patch+yaml"
        )

        async def in_force() -> bool:
            live = msgspec.json.decode(await self.client.raw("GET", path))
            return bool(live.get("status", {}).get("hard", {}).get("pods") == str(pods))

        await eventually(in_force, "the quota is in force")

    async def scale(self, replicas: int, name: str = "blue") -> None:
        """Ask for another number of workers, by the subresource that autoscalers use."""
        await self.client.set_scale(NodeSet, name, self.namespace, replicas)

    async def release(self, kind: type[Object], name: str) -> None:
        """Take the finalizers off an object, if it is there."""
        with contextlib.suppress(NotFound):
            await self.patch(kind, name, {"metadata": {"finalizers": None}})

    # ------------------------------------------------------------------------------------------------- seeing
    async def pods(self, name: str = "blue") -> dict[str, Pod]:
        """Return the pods of a NodeSet that are not about to vanish, by name."""
        page = await self.client.list_all(
            Pod,
            self.namespace,
            labels={"app.kubernetes.io/instance": name, "app.kubernetes.io/name": "slurmd"},
        )
        return {pod.metadata.name: pod for pod in page.items if not pod.deleting}

    async def claims(self) -> dict[str, PersistentVolumeClaim]:
        """Return all claims, by name."""
        page = await self.client.list_all(PersistentVolumeClaim, self.namespace)
        return {claim.metadata.name: claim for claim in page.items}

    async def revisions(self) -> list[ControllerRevision]:
        """Return all revisions, oldest first."""
        page = await self.client.list_all(ControllerRevision, self.namespace)
        return sorted(page.items, key=lambda one: one.revision)

    async def status(self, name: str = "blue") -> Any:
        """Return the status of a NodeSet."""
        return (await self.there(NodeSet, name)).status

    async def counts(self, name: str = "blue", **wanted: int) -> None:
        """Wait until the status of a NodeSet has these numbers."""

        async def counted() -> bool:
            status = await self.status(name)
            return all(getattr(status, field) == number for field, number in wanted.items())

        await eventually(counted, f"the status has {wanted}")

    async def until_pods(self, *names: str, nodeset: str = "blue", deadline: float = 120.0) -> dict[str, Pod]:
        """Wait until a NodeSet has exactly these pods, and return them."""
        return await self.until(lambda pods: {*pods} == {*names}, f"pods {names}", nodeset, deadline)

    async def until(
        self,
        question: Callable[[dict[str, Pod]], object],
        what: str,
        nodeset: str = "blue",
        deadline: float = 120.0,
    ) -> dict[str, Pod]:
        """Wait until the answer about the pods of a NodeSet is yes, and return the pods."""
        last: dict[str, Pod] = {}

        async def asked() -> object:
            nonlocal last
            last = await self.pods(nodeset)
            return question(last)

        try:
            await eventually(asked, "", deadline)
        except AssertionError:
            raise AssertionError(f"not within {deadline:g} s: {what}; there are {sorted(last)}") from None
        return last

    async def ready(self, name: str = "blue", deadline: float = 120.0) -> None:
        """Wait until a NodeSet says that all is as it should be."""
        await self.says(NodeSet, name, "AllAvailable", deadline=deadline)
