"""The views of `limited` from an API server; loaded only while the manager cannot be asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from slurm_operator.api import wellknown
from slurm_operator.api.controller import Controller
from slurm_operator.api.nodeset import NodeSet
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import Event, Pod
from slurm_operator.plugin import limited
from slurm_operator.plugin.exits import CommandError, ExitCode
from slurm_operator.status_rows import ClusterReply, HistoryReply, NodeSetReply, Overview, WorkerReply

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Object

K = TypeVar("K", bound="Object")

_WORKERS: Final = {wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD}


class LimitedSource:
    """What conditions, annotations and Events show; `why` is the reason for it."""

    def __init__(self, client: Client, why: str) -> None:
        self._client = client
        self._why = why

    async def overview(self, namespace: str) -> Overview:
        """Return everything on one screen."""
        return limited.overview(await self._inventory(namespace), self._why)

    async def clusters(self, namespace: str) -> ClusterReply:
        """Return the Slurm clusters."""
        found = await self._inventory(namespace)
        rows = limited.cluster_rows(found, limited.worker_rows(found))
        return ClusterReply(at=found.at, limited=self._why, items=rows)

    async def nodesets(self, namespace: str) -> NodeSetReply:
        """Return the NodeSets."""
        found = await self._inventory(namespace)
        rows = limited.nodeset_rows(found, limited.worker_rows(found))
        return NodeSetReply(at=found.at, limited=self._why, items=rows)

    async def workers(self, namespace: str, **filters: str) -> WorkerReply:
        """Return workers."""
        found = await self._inventory(namespace)
        rows = limited.worker_rows(found)
        if {"pod", "slurm_node"} & filters.keys():
            rows += limited.rows_without_pod(found)
        if filters.pop("blocked", ""):
            rows = tuple(one for one in rows if one.blocked is not None)
        for key, wanted in filters.items():
            rows = tuple(one for one in rows if getattr(one, key) == wanted)
        return WorkerReply(at=found.at, limited=self._why, items=rows)

    async def history(self, namespace: str, kind: str, name: str) -> HistoryReply:
        """Return the Events about an object."""
        fields = {"regarding.kind": kind, "regarding.name": name}
        fields = {key: value for key, value in fields.items() if value}
        page = await self._client.list_all(Event, namespace, fields=fields)
        return HistoryReply(at=_now(), limited=self._why, items=limited.decision_rows(page.items))

    async def _inventory(self, namespace: str) -> limited.Inventory:
        try:
            controllers = await self._all(Controller, namespace)
            nodesets = await self._all(NodeSet, namespace)
        except NotFound:
            raise CommandError(
                f"the CRDs of {wellknown.GROUP} are not installed: install the chart slurm-operator-crds",
                ExitCode.NO_OPERATOR,
            ) from None
        pods = await self._client.list_all(Pod, namespace, labels=_WORKERS)
        return limited.Inventory(_now(), controllers, nodesets, pods.items)

    async def _all(self, kind: type[K], namespace: str) -> list[K]:
        return (await self._client.list_all(kind, namespace)).items


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
