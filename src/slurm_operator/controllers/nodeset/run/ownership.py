"""Pods without an owner that belong to a NodeSet, and pods that belong to it no longer.

A pod is a NodeSet's if it has the labels of its selector and a name that the NodeSet gives. One without a
controller is adopted: after `kubectl delete --cascade=orphan` and a new NodeSet of the same name, workers
keep running. A pod of the NodeSet whose labels a user has changed is released; its name stays in use until it
is deleted.

Before the first adoption of a reconcile the API server is asked whether the NodeSet is still there, the same
and not being deleted: a cache could lag behind its end, and the pods would follow it into the grave.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import OwnerReference
from slurm_operator.objects import labels, slurmd_identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
    from slurm_operator.controllers.nodeset.run.watches import Caches
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.decide.own_writes import OwnWrites


def matches(nodeset: NodeSet, pod: Pod) -> bool:
    """Return whether a pod has the labels of a NodeSet's selector."""
    found = pod.metadata.labels
    return (
        found.get(wellknown.LABEL_APP_INSTANCE) == nodeset.metadata.name
        and found.get(wellknown.LABEL_APP_NAME) == wellknown.APP_SLURMD
    )


def adoptable(nodeset: NodeSet, pod: Pod) -> bool:
    """Return whether a pod without a controller is one of a NodeSet's workers."""
    if pod.deleting or not matches(nodeset, pod):
        return False
    if slurmd_identity.scaling_mode(pod) == ScalingMode.DAEMON_SET:
        return pod.metadata.generate_name == nodeset.pod_generate_name
    return slurmd_identity.ordinal_of(nodeset, pod.metadata.name) is not None


class Adoption:
    """Gives pods to the NodeSet that they belong to."""

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client = client
        self._caches = caches

    async def settle(self, nodeset: NodeSet, written: OwnWrites[Pod], outcome: ReconcileOutcome) -> None:
        """Adopt a NodeSet's pods and release others; while that is under way, workers are not counted."""
        owned = self._caches.owned_pods(nodeset)
        foreign = [pod for pod in owned if not matches(nodeset, pod) and not pod.deleting]
        orphans = [pod for pod in self._caches.orphan_pods(nodeset) if adoptable(nodeset, pod)]
        if foreign or orphans:
            outcome.certain = False
            outcome.requeue_after(1.0)
        newest = written.newest([*foreign, *orphans], asyncio.get_running_loop().time())
        undone = {id(pod) for pod in newest}
        for pod in foreign:
            if id(pod) in undone:
                kept = [one for one in pod.metadata.owner_references if one.uid != nodeset.metadata.uid]
                await self._own(pod, kept, written, outcome, "release")
        orphans = [pod for pod in orphans if id(pod) in undone]
        if orphans and await self.exists(nodeset, outcome):
            owner = msgspec.convert(labels.owner_reference(nodeset), type=OwnerReference)
            for pod in orphans:
                await self._own(pod, [*pod.metadata.owner_references, owner], written, outcome, "adopt")

    async def exists(self, nodeset: NodeSet, outcome: ReconcileOutcome) -> bool:
        """Ask the API server whether a NodeSet is still there and to stay."""
        namespace, name = nodeset.key
        try:
            live = await self._client.get(NodeSet, name, namespace)
        except NotFound:
            return False
        except KubeError as error:
            outcome.failed("read", f"NodeSet {name!r}", error)
            return False
        return live.metadata.uid == nodeset.metadata.uid and not live.deleting

    async def _own(
        self,
        pod: Pod,
        owners: Sequence[OwnerReference],
        written: OwnWrites[Pod],
        outcome: ReconcileOutcome,
        verb: str,
    ) -> None:
        namespace, name = pod.key
        metadata = {
            "uid": pod.metadata.uid,
            "resourceVersion": pod.metadata.resource_version,
            "ownerReferences": msgspec.to_builtins(owners),
        }
        try:
            answer = await self._client.patch(
                Pod, name, namespace, {"metadata": metadata}, type=PatchType.MERGE
            )
        except KubeError as error:
            outcome.failed(verb, f"pod {name!r}", error)
        else:
            written.changed(answer)
