"""The objects that pods share: the Service and the budget that workers share, and sshd's configuration.

The Service and the budget belong to all NodeSets of a Controller; each of them applies both, with all of them
as owners. One that another object controls is left alone and reported by name in the condition `Degraded`.
One child that cannot be written does not stop the others, nor the pods.

What a NodeSet shares with others of a Controller that it has left.

The Service and the budget of workers belong to all NodeSets of a Controller. One that has moved to another
Controller is removed from their owners as soon as none of its pods belongs to the former cluster: the
NodeSets that remain keep them, and the last one deletes the Service. The budgets in the cache show which
clusters these are, so a budget is left last, and a crash in between loses nothing. The last owner keeps the
budget: it protects no pod any more, and the operator deletes no budgets.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import worker_service_name
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import Defer
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.kube.cache.referenced_objects import Referrer
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, PodDisruptionBudget, Service
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.apply import ApplyOutcome as Applied
from slurm_operator.objects import slurmd_shared

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
    from slurm_operator.controllers.nodeset.run.watches import Caches
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Object
    from slurm_operator.objects.desired import Manifest, ObjectName

_KINDS: Final[dict[str, type[Object]]] = {
    kind.RESOURCE.kind: kind for kind in (ConfigMap, PodDisruptionBudget, Service)
}
# An object of another owner may be in none of our caches, so its deletion may cause no event.
_REQUEUE_SECONDS: Final = 30.0
# How long a child that we made counts while the cache does not show it.
_CACHE_SECONDS: Final = 10.0


class SharedObjects:
    """Keeps the objects that pods share."""

    def __init__(self, wiring: Wiring, caches: Caches, controller: str) -> None:
        self._client = wiring.client
        self._applier = wiring.applier
        self._events = wiring.events
        self._caches = caches
        self._controller = controller
        self._made: dict[tuple[type[Object], Key], tuple[Object, float]] = {}
        # The UID of what a NodeSet had last removed.
        self._removed: dict[Key, str] = {}

    async def settle(self, nodeset: NodeSet, outcome: ReconcileOutcome) -> None:
        """Apply the objects that pods share."""
        namespace = nodeset.metadata.namespace
        self._watch_service(nodeset)
        desired = slurmd_shared.desired(
            nodeset,
            self._caches.siblings(namespace, nodeset.spec.controller_ref.name),
            ssh_in_use=self._mounts_ssh(nodeset),
        )
        for manifest in desired.objects:
            applied = await self._apply(nodeset, manifest, outcome)
            if manifest["kind"] == PodDisruptionBudget.RESOURCE.kind:
                outcome.budget = _gap(nodeset, applied)
        for named in desired.unwanted:
            await self._remove(nodeset, named, outcome)

    async def keep_shared(self, nodeset: NodeSet, outcome: ReconcileOutcome) -> None:
        """Keep what workers share, for a NodeSet that is being deleted and has workers that drain."""
        # A process that has just started has not seen the NodeSet before its deletion.
        self._watch_service(nodeset)
        siblings = self._caches.siblings(nodeset.metadata.namespace, nodeset.spec.controller_ref.name)
        for manifest in slurmd_shared.shared(nodeset, siblings):
            await self._apply(nodeset, manifest, outcome)

    def _watch_service(self, nodeset: NodeSet) -> None:
        service = Key(nodeset.metadata.namespace, nodeset.worker_service_name)
        self._caches.services.want(Referrer(self._controller, nodeset.key), (service,))

    def release(self, key: Key) -> None:
        """Watch no Service for a NodeSet that is gone."""
        self._removed.pop(key, None)
        self._caches.services.want(Referrer(self._controller, key), ())

    def _mounts_ssh(self, nodeset: NodeSet) -> bool:
        """Return whether a pod still needs the configuration of sshd, as far as there is one."""
        key = Key(nodeset.metadata.namespace, nodeset.ssh_config_name)
        if nodeset.spec.ssh.enabled or key not in self._caches.config_maps.store:
            return True
        return any(
            volume.name == wellknown.VOLUME_SSH_CONFIG
            for pod in self._caches.owned_pods(nodeset)
            for volume in pod.spec.volumes
        )

    async def _apply(self, nodeset: NodeSet, manifest: Manifest, outcome: ReconcileOutcome) -> Object | None:
        """Apply a child; return it as it is then, or nothing if it is missing or belongs to others."""
        kind, name = _KINDS[manifest["kind"]], manifest["metadata"]["name"]
        key, what = Key(nodeset.metadata.namespace, name), f"{manifest['kind']} {name!r}"
        live = None
        try:
            live = await self._live(kind, key, outcome)
            controller = None if live is None else live.controller_owner
            if live is not None and controller is not None and controller.uid != nodeset.metadata.uid:
                outcome.trouble(
                    Reason.NAME_TAKEN,
                    write_messages.child_taken(what, f"{controller.kind} {controller.name!r}"),
                )
                outcome.requeue_after(_REQUEUE_SECONDS)
                return None
            applied = await self._applier.apply(manifest, live, kind)
        except KubeError as error:
            outcome.failed("apply", what, error)
            return live
        if applied.outcome is Applied.CREATED:
            if applied.object is not None:
                self._made[kind, key] = (applied.object, _now() + _CACHE_SECONDS)
            self._events.event(
                nodeset, "Normal", Reason.CREATE_SUCCEEDED, "Create", f"Created {what}", applied.object
            )
        elif applied.outcome is Applied.TERMINATING:
            outcome.requeue_after(1.0)
        return applied.object

    async def _remove(self, nodeset: NodeSet, named: ObjectName, outcome: ReconcileOutcome) -> None:
        live = self._caches.config_maps.store.get(Key(nodeset.metadata.namespace, named.name))
        owner = None if live is None else live.controller_owner
        if live is None or owner is None or owner.uid != nodeset.metadata.uid:
            return
        if self._removed.get(nodeset.key) == live.metadata.uid:
            return  # the cache will show it
        what = f"{named.kind} {named.name!r}"
        try:
            removed = await self._applier.delete(live)
            self._removed[nodeset.key] = live.metadata.uid
            if removed:
                self._events.event(
                    nodeset, "Normal", Reason.DELETE_SUCCEEDED, "Delete", f"Deleted {what}", live
                )
        except KubeError as error:
            outcome.failed("delete", what, error)

    async def _live(self, kind: type[Object], key: Key, outcome: ReconcileOutcome) -> Object | None:
        """Return a child that may exist, as far as the cache shows it or we have just made it."""
        found = await self._cached(kind, key)
        made, until = self._made.get((kind, key), (None, 0.0))
        if found is None and made is not None and (wait := until - _now()) > 0:
            # If another client has deleted it in the meantime, the cache will never show it.
            outcome.requeue_after(wait)
            return made
        self._made.pop((kind, key), None)
        return found if found is not None else await self._asked(kind, key)

    async def _cached(self, kind: type[Object], key: Key) -> Object | None:
        """Return a child that the cache shows; raise KubeError if that cannot be known."""
        if kind is Service:
            return await self._caches.services.get(key)
        informer = self._caches.config_maps if kind is ConfigMap else self._caches.budgets
        if (reason := informer.store.unreadable.get(key)) is not None:
            raise KubeError(f"{kind.RESOURCE.kind} {key} cannot be read: {reason}")
        return informer.store.get(key)

    async def _asked(self, kind: type[Object], key: Key) -> Object | None:
        """Return what the API server says about a child that no cache shows."""
        if kind is not ConfigMap:
            return None
        # One without our label is in no cache; it may belong to another owner.
        with contextlib.suppress(NotFound):
            return await self._client.get(kind, key.name, key.namespace)
        return None


def _gap(nodeset: NodeSet, budget: Object | None) -> Defer | None:
    """Return why the budget of a NodeSet does not protect its workers, if so."""
    if isinstance(budget, PodDisruptionBudget) and slurmd_shared.protects(nodeset, budget):
        return None
    return Defer(Reason.BUDGET_MISSING, messages.budget_missing(nodeset.worker_pdb_name))


def _now() -> float:
    return asyncio.get_running_loop().time()


_BUDGET: Final = "slurm-workers-pdb-"


class PreviousOwner:
    """Leaves what is shared in a cluster to which a NodeSet belongs no more."""

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        # By the UIDs of NodeSet and budget, until the cache shows it.
        self._left: set[tuple[str, str]] = set()

    async def leave(self, nodeset: NodeSet, outcome: ReconcileOutcome) -> None:
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
                outcome.failed("leave", f"the shared objects of Controller {former!r}", error)
            else:
                self._left.add(done)

    def _needs(self, nodeset: NodeSet, controller: str) -> bool:
        """Return whether a pod of a NodeSet still belongs to a cluster."""
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
