"""The objects beside the pods: the Service and the budget that workers share, and sshd's configuration.

The Service and the budget belong to all NodeSets of a Controller; each of them applies both, with all of them
as owners. One that somebody else controls is left alone and becomes a trouble with a name. One child that
cannot be written does not stop the others, nor the pods.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.workload.verdict import Cause
from slurm_operator.kube.apply import Outcome as Applied
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.meta import Key
from slurm_operator.kube.models import ConfigMap, PodDisruptionBudget, Service
from slurm_operator.kube.references import Owner
from slurm_operator.objects import slurmd_shared

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.engine.caches import Caches
    from slurm_operator.controllers.nodeset.engine.outcome import Outcome
    from slurm_operator.controllers.wiring import Wiring
    from slurm_operator.kube.meta import Object
    from slurm_operator.objects.desired import Manifest, Named

_KINDS: Final[dict[str, type[Object]]] = {
    kind.RESOURCE.kind: kind for kind in (ConfigMap, PodDisruptionBudget, Service)
}
# What belongs to somebody else is in none of our caches, so its end is no event.
_LOOK_AGAIN: Final = 30.0


class Children:
    """Keeps the objects beside the pods."""

    def __init__(self, wiring: Wiring, caches: Caches, controller: str) -> None:
        self._client = wiring.client
        self._applier = wiring.applier
        self._events = wiring.events
        self._caches = caches
        self._controller = controller

    async def settle(self, nodeset: NodeSet, outcome: Outcome) -> None:
        """Make the objects beside the pods what they should be."""
        namespace = nodeset.metadata.namespace
        service = Key(namespace, nodeset.worker_service_name)
        self._caches.services.want(Owner(self._controller, nodeset.key), (service,))
        desired = slurmd_shared.desired(
            nodeset,
            self._caches.siblings(namespace, nodeset.spec.controller_ref.name),
            ssh_in_use=self._mounts_ssh(nodeset),
        )
        for manifest in desired.objects:
            await self._apply(nodeset, manifest, outcome)
        for named in desired.unwanted:
            await self._remove(nodeset, named, outcome)

    def release(self, key: Key) -> None:
        """Watch no Service for a NodeSet that is gone."""
        self._caches.services.want(Owner(self._controller, key), ())

    def _mounts_ssh(self, nodeset: NodeSet) -> bool:
        """Tell whether a pod still needs the configuration of sshd, as far as there is one."""
        key = Key(nodeset.metadata.namespace, nodeset.ssh_config_name)
        if nodeset.spec.ssh.enabled or key not in self._caches.config_maps.store:
            return True
        return any(
            volume.name == wellknown.VOLUME_SSH_CONFIG
            for pod in self._caches.owned_pods(nodeset)
            for volume in pod.spec.volumes
        )

    async def _apply(self, nodeset: NodeSet, manifest: Manifest, outcome: Outcome) -> None:
        kind, name = _KINDS[manifest["kind"]], manifest["metadata"]["name"]
        what = f"{manifest['kind']} {name!r}"
        try:
            live = await self._live(kind, Key(nodeset.metadata.namespace, name))
            controller = None if live is None else live.controller_owner
            if live is not None and controller is not None and controller.uid != nodeset.metadata.uid:
                outcome.trouble(
                    Cause.CONFLICT,
                    f"{what} belongs to {controller.kind} {controller.name!r}: give one of the two another "
                    "name, or delete it if its owner is gone",
                )
                outcome.look(_LOOK_AGAIN)
                return
            applied = await self._applier.apply(manifest, live, kind)
        except KubeError as error:
            outcome.failed(f"{what} could not be applied", error)
            return
        if applied.outcome is Applied.CREATED:
            self._events.event(
                nodeset, "Normal", "CreateSucceeded", "Create", f"Created {what}", applied.object
            )
        elif applied.outcome is Applied.TERMINATING:
            outcome.look(1.0)

    async def _remove(self, nodeset: NodeSet, named: Named, outcome: Outcome) -> None:
        live = self._caches.config_maps.store.get(Key(nodeset.metadata.namespace, named.name))
        owner = None if live is None else live.controller_owner
        if live is None or owner is None or owner.uid != nodeset.metadata.uid:
            return
        what = f"{named.kind} {named.name!r}"
        try:
            if await self._applier.delete(live):
                self._events.event(nodeset, "Normal", "DeleteSucceeded", "Delete", f"Deleted {what}", live)
        except KubeError as error:
            outcome.failed(f"{what} could not be deleted", error)

    async def _live(self, kind: type[Object], key: Key) -> Object | None:
        """Return a child that may exist; raise KubeError if that cannot be known."""
        if kind is Service:
            return await self._caches.services.get(key)
        informer = self._caches.config_maps if kind is ConfigMap else self._caches.budgets
        if (reason := informer.store.unreadable.get(key)) is not None:
            raise KubeError(f"{kind.RESOURCE.kind} {key} cannot be read: {reason}")
        found = informer.store.get(key)
        if found is None and kind is ConfigMap:
            # One without our label is in no cache; it may be somebody else's.
            with contextlib.suppress(NotFound):
                return await self._client.get(kind, key.name, key.namespace)
        return found
