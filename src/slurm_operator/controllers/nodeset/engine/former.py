"""What a NodeSet shares with others of a Controller that it has left.

The Service and the budget of workers belong to all NodeSets of a Controller. One that has moved to another
Controller leaves them as soon as none of its pods belongs to the former cluster: whoever is left keeps them,
and the last one deletes the Service. The budgets in the cache tell which clusters these are, so a budget is
left last, and a crash in between loses nothing. The last owner keeps it: it protects no pod any more, and the
operator has no right to delete budgets.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import worker_service_name
from slurm_operator.kube.client import PatchType
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.models import Service

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.engine.caches import Caches
    from slurm_operator.controllers.nodeset.engine.outcome import Outcome
    from slurm_operator.kube.client import Client
    from slurm_operator.kube.meta import Object

_BUDGET: Final = "slurm-workers-pdb-"


class Former:
    """Leaves what is shared in a cluster to which a NodeSet belongs no more."""

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        # By the UIDs of NodeSet and budget, until the cache shows it.
        self._left: set[tuple[str, str]] = set()

    async def leave(self, nodeset: NodeSet, outcome: Outcome) -> None:
        """Leave what a NodeSet shares with others of a former Controller."""
        uid, namespace = nodeset.metadata.uid, nodeset.metadata.namespace
        for budget in self._caches.budgets.store.list(namespace):
            name, done = budget.metadata.name, (uid, budget.metadata.uid)
            former = name.removeprefix(_BUDGET)
            if name in (former, nodeset.worker_pdb_name) or not _owns(uid, budget):
                self._left.discard(done)
                continue
            if done in self._left or self._needs(nodeset, former):
                continue
            try:
                with contextlib.suppress(NotFound):
                    await self._leave(
                        uid, await self._client.get(Service, worker_service_name(former), namespace)
                    )
                with contextlib.suppress(NotFound):
                    await self._leave(uid, budget)
            except KubeError as error:
                outcome.failed(f"what NodeSet {nodeset.metadata.name!r} shared in {former!r}", error)
            else:
                self._left.add(done)

    def _needs(self, nodeset: NodeSet, controller: str) -> bool:
        """Tell whether a pod of a NodeSet still belongs to a cluster."""
        return any(
            pod.metadata.labels.get(wellknown.LABEL_CLUSTER) == controller
            for pod in self._caches.owned_pods(nodeset)
        )

    async def _leave(self, uid: str, shared: Object) -> None:
        if not _owns(uid, shared) or shared.controller_owner is not None or shared.deleting:
            return
        (namespace, name), meta = shared.key, shared.metadata
        others = [one for one in meta.owner_references if one.uid != uid]
        if not others:
            if isinstance(shared, Service):
                await self._client.delete(
                    Service, name, namespace, uid=meta.uid, resource_version=meta.resource_version
                )
            return
        metadata = {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "ownerReferences": msgspec.to_builtins(others),
        }
        await self._client.patch(type(shared), name, namespace, {"metadata": metadata}, type=PatchType.MERGE)


def _owns(uid: str, shared: Object) -> bool:
    return any(one.uid == uid for one in shared.metadata.owner_references)
