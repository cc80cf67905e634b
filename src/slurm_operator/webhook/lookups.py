"""Looks at the objects that rules ask about: in the cluster, at the moment, for a limited time.

There is no cache. A ConfigMap that was created a moment before the Controller that names it must be seen, and
these questions are rare: only Controllers, NodeSets and keys that change have any. So this process watches
nothing and holds nothing.

A lookup that fails or takes too long is an answer, too (`Unreadable`), for the one write that asked. Others
do not wait for it: each has its own deadline, and the client bounds how many requests are on their way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from slurm_operator.api import Controller, NodeSet, wellknown
from slurm_operator.kube.errors import DeadlineExceeded, Forbidden, KubeError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, PersistentVolumeClaim, Pod, metadata_only
from slurm_operator.kube.models.meta import Object
from slurm_operator.webhook.metrics import LOOKUP_FAILURES
from slurm_operator.webhook.rules.world import NOTHING, Running, Unreadable, World

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurm_operator.kube.client.client import Client
    from slurm_operator.webhook.rules.world import Wanted

T = TypeVar("T", bound=Object)

_log = structlog.get_logger(__name__)

# Where a rejection sends the user for what it cannot say itself.
LOGS: Final = "kubectl logs --selector app.kubernetes.io/name=slurm-operator-webhook --tail=-1"

_POD: Final = metadata_only(Pod)
# No daemon runs in a pod that has ended, whether or not the object still exists.
_NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Lookups:
    """Answers what rules ask about; in namespaces that are not ours nothing is looked at."""

    def __init__(self, client: Client, namespaces: Collection[str] = ()) -> None:
        self._client = client
        self._namespaces = frozenset(namespaces)

    async def world(self, wanted: Wanted, namespace: str, seconds: float) -> World:
        """Return what is known of the wanted objects within a time."""
        if self._namespaces and namespace not in self._namespaces:
            return NOTHING
        config_maps, claims, node_sets, clusters = await asyncio.gather(
            self._all(ConfigMap, wanted.config_maps, namespace, seconds),
            self._all(PersistentVolumeClaim, wanted.claims, namespace, seconds),
            self._node_sets(namespace, seconds, wanted=wanted.node_sets),
            self._clusters(namespace, seconds, wanted=wanted.clusters),
        )
        return World(config_maps, claims, node_sets, clusters)

    async def _node_sets(
        self, namespace: str, seconds: float, *, wanted: bool
    ) -> tuple[NodeSet, ...] | Unreadable:
        if not wanted:
            return ()
        try:
            page = await self._client.list(NodeSet, namespace, timeout=seconds)
        except KubeError as error:
            return _failed(NodeSet, namespace, "", error)
        return tuple(page.items)

    async def _clusters(
        self, namespace: str, seconds: float, *, wanted: bool
    ) -> tuple[Running, ...] | Unreadable:
        if not wanted:
            return ()
        try:
            # All of them at once, and then their workers: two requests, within the time of one.
            page = await self._client.list(Controller, namespace, limit=0, timeout=seconds / 2)
        except KubeError as error:
            return _failed(Controller, namespace, "", error)
        if page.bad:
            return Unreadable(f"Controller {page.bad[0].key.name!r} cannot be decoded; fix it")
        names = [controller.metadata.name for controller in page.items]
        workers = await asyncio.gather(*(self._worker(name, namespace, seconds / 2) for name in names))
        return tuple(map(Running, page.items, workers))

    async def _worker(self, controller: str, namespace: str, seconds: float) -> str | Unreadable | None:
        """Return one worker of a Controller: whether there is any is all that is asked, however many are."""
        labels = {wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD, wellknown.LABEL_CLUSTER: controller}
        try:
            page = await self._client.list(
                _POD, namespace, labels=labels, fields=_NOT_ENDED, limit=1, timeout=seconds
            )
        except KubeError as error:
            return _failed(Pod, namespace, "", error)
        names = [*(item.metadata.name for item in page.items), *(item.key.name for item in page.bad)]
        # Where the list goes on there is one more, even if this page has none.
        return names[0] if names else "" if page.continue_token else None

    async def _all(
        self, kind: type[T], names: Collection[str], namespace: str, seconds: float
    ) -> dict[str, T | Unreadable | None]:
        found = await asyncio.gather(*(self._one(kind, name, namespace, seconds) for name in names))
        return dict(zip(names, found, strict=True))

    async def _one(self, kind: type[T], name: str, namespace: str, seconds: float) -> T | Unreadable | None:
        try:
            return await self._client.get(kind, name, namespace, timeout=seconds)
        except NotFound:
            return None
        except KubeError as error:
            return _failed(kind, namespace, name, error)


def _failed(kind: type[Object], namespace: str, name: str, error: KubeError) -> Unreadable:
    LOOKUP_FAILURES.labels(kind.RESOURCE.kind).inc()
    _log.warning("lookup failed", kind=kind.RESOURCE.kind, namespace=namespace, name=name, error=error)
    return Unreadable(reason(error))


def reason(error: KubeError) -> str:
    """Return the reason that the user gets when a failed lookup causes a rejection."""
    match error:
        case DeadlineExceeded():
            return "the API server did not answer in time; try again"
        case Forbidden():
            return "the webhook is not allowed to read it; grant its role get and list on this kind"
        case _:
            return f"the request to the API server failed ({type(error).__name__}); try again, or see {LOGS}"
