"""Where views come from: the manager, or, while it cannot be asked, Kubernetes (`limited_source`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from slurm_operator.status_rows import ClusterReply, HistoryReply, NodeSetReply, Overview, WorkerReply

if TYPE_CHECKING:
    from slurm_operator.plugin.manager_api import ManagerApi


class ViewProvider(Protocol):
    """Views of one namespace, or of all if it is empty."""

    async def overview(self, namespace: str) -> Overview:
        """Return everything on one screen."""
        ...

    async def clusters(self, namespace: str) -> ClusterReply:
        """Return the Slurm clusters."""
        ...

    async def nodesets(self, namespace: str) -> NodeSetReply:
        """Return the NodeSets."""
        ...

    async def workers(self, namespace: str, **filters: str) -> WorkerReply:
        """Return workers; filters are `nodeset`, `pod`, `slurm_node`, `kubernetes_node`, `blocked="true"`."""
        ...

    async def history(self, namespace: str, kind: str, name: str) -> HistoryReply:
        """Return what was done to an object."""
        ...


class ManagerSource:
    """What the manager's API returns."""

    def __init__(self, api: ManagerApi) -> None:
        self.api = api

    async def overview(self, namespace: str) -> Overview:
        """Return everything on one screen."""
        return await self.api.get("overview", _query(namespace=namespace), Overview)

    async def clusters(self, namespace: str) -> ClusterReply:
        """Return the Slurm clusters."""
        return await self.api.get("clusters", _query(namespace=namespace), ClusterReply)

    async def nodesets(self, namespace: str) -> NodeSetReply:
        """Return the NodeSets."""
        return await self.api.get("nodesets", _query(namespace=namespace), NodeSetReply)

    async def workers(self, namespace: str, **filters: str) -> WorkerReply:
        """Return workers."""
        names = {"pod": "name", "slurm_node": "slurmNode", "kubernetes_node": "kubernetesNode"}
        query = {names.get(key, key): value for key, value in filters.items()}
        return await self.api.get("workers", _query(namespace=namespace, **query), WorkerReply)

    async def history(self, namespace: str, kind: str, name: str) -> HistoryReply:
        """Return what was done to an object."""
        return await self.api.get("history", _query(namespace=namespace, kind=kind, name=name), HistoryReply)


def _query(**given: str) -> dict[str, str]:
    return {key: value for key, value in given.items() if value}
