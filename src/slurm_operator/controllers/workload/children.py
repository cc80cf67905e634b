"""Bring the children of a custom resource to the desired state, and record Events for what was done.

Children are read from caches that hold only objects with the labels of our daemons. An object that is not in
there may still exist: it was created a moment ago, has lost its labels, or belongs to another owner. So
before an object is created, it is read from the API server. If it is ours, the reconcile continues as if it
had been in the cache; if another object controls it or it was never ours, it is left alone and reported by
name. Writes apply only to what was read: an object is created only if none exists, and changed only if it is
still the one that was read. If another client writes in between, the API server returns a conflict, and the
retry reads the new state. Nothing is created for an owner that no longer exists: its deletion may arrive
after those of its children.

One object that cannot be written does not stop the others. The error goes up after all of them have been
tried, so that the key is retried.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.shared.owners import OwnerGoneError, require_owner
from slurm_operator.controllers.shared.problems import WorkloadProblem
from slurm_operator.controllers.workload.decide.effects import differing_hashes
from slurm_operator.controllers.workload.decide.read_models import (
    DeploymentDetails,
    MonitorObject,
    StatefulSetDetails,
    Workload,
)
from slurm_operator.kube.errors import ApiError, Conflict, KubeError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Secret, Service
from slurm_operator.kube.models.meta import Key, Object
from slurm_operator.kube.runtime.apply import ApplyOutcome
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.kube.runtime.sources import enqueue_owner
from slurm_operator.objects.corrections import consented
from slurm_operator.objects.migration import is_settled, settle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api import Kind
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.cache.informer import Informer
    from slurm_operator.kube.runtime.controller import Controller
    from slurm_operator.objects.desired import Desired, Manifest, ObjectName

_MARKS: Final = (wellknown.LABEL_APP_NAME, wellknown.LABEL_APP_INSTANCE)
APPS: Final = (
    wellknown.APP_LOGIN,
    wellknown.APP_SLURMCTLD,
    wellknown.APP_SLURMDBD,
    wellknown.APP_SLURMRESTD,
)
_COMPONENTS: Final = (
    wellknown.COMPONENT_ACCOUNTING,
    wellknown.COMPONENT_CONTROLLER,
    wellknown.COMPONENT_LOGIN,
    wellknown.COMPONENT_RESTAPI,
)
# Others call things `login`, too; few of them have both labels.
SELECTOR: Final = (
    f"{wellknown.LABEL_APP_NAME} in ({','.join(APPS)}),"
    f"{wellknown.LABEL_APP_COMPONENT} in ({','.join(_COMPONENTS)})"
)
_MODELS: Final[Mapping[str, type[Object]]] = {
    kind.RESOURCE.kind: kind
    for kind in (ConfigMap, Secret, Service, StatefulSetDetails, DeploymentDetails, MonitorObject)
}

# The deletion of an object that is not ours may trigger no reconcile: our caches do not hold it, or its
# events go to its own owner.
REQUEUE_SECONDS: Final = 30.0

Announce: TypeAlias = Callable[["ChildKey", "Manifest", Workload], Awaitable[None]]
"""Is told of a workload that gets other hashes, before it does: what it will be, and what it is now."""
Lookup: TypeAlias = Callable[[Key], Awaitable[Object | None]]


class ChildKey(NamedTuple):
    """Kind and name of a child."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@dataclass(slots=True)
class ChildrenResult:
    """What became of the children: before and after, and what went wrong."""

    before: dict[ChildKey, Object | None] = field(default_factory=dict)
    sent: dict[ChildKey, Manifest] = field(default_factory=dict)
    """Each child as it was to be applied: a running workload may keep some of its own ways."""
    after: dict[ChildKey, Object] = field(default_factory=dict)
    changed: set[ChildKey] = field(default_factory=set)
    failed: set[ChildKey] = field(default_factory=set)
    troubles: list[WorkloadProblem] = field(default_factory=list)
    errors: list[KubeError] = field(default_factory=list)
    owner_read: bool = False
    """Whether the owner was read from the API server, and exists."""
    requeue_after: float | None = None
    """After how many seconds to reconcile again, for what sends no event when it changes."""


class Children:
    """The children of one kind of custom resource."""

    def __init__(
        self, wiring: Wiring, *kinds: type[Object], lookups: Mapping[str, Lookup] | None = None
    ) -> None:
        self._client = wiring.client
        self._applier = wiring.applier
        self._events = wiring.events
        self._informers: dict[str, Informer[Any]] = {
            kind.RESOURCE.kind: wiring.manager.informer(kind, labels=SELECTOR) for kind in kinds
        }
        self._lookups = dict(lookups or {})

    def watch(self, controller: Controller, owner: type[Kind]) -> None:
        """Reconcile the owner of a child whenever the child changes."""
        for informer in self._informers.values():
            controller.watch(informer, enqueue_owner(owner))

    def cached(self, slot: ChildKey, namespace: str) -> Object | None:
        """Return a child as the cache has it."""
        found: Object | None = self._informers[slot.kind].store.get(Key(namespace, slot.name))
        return found

    async def require_owner(self, owner: Kind) -> None:
        """Raise OwnerGoneError if the owner does not exist any more, or is being deleted."""
        await require_owner(self._client, owner)

    async def bring_about(self, owner: Kind, desired: Desired, announce: Announce) -> ChildrenResult:
        """Apply what should exist and remove what should not; OwnerGoneError ends that early."""
        done = ChildrenResult()
        for manifest in desired.objects:
            await self._apply(owner, manifest, done, announce)
        for named in desired.unwanted:
            await self._remove(owner, named, done)
        return done

    # -------------------------------------------------------------------------------------------------- apply
    async def _apply(self, owner: Kind, manifest: Manifest, done: ChildrenResult, announce: Announce) -> None:
        slot = ChildKey(manifest["kind"], manifest["metadata"]["name"])
        kind = _MODELS[slot.kind]
        live: Object | None = None
        try:
            live = await self._find(kind, Key(owner.metadata.namespace, slot.name))
            done.before[slot] = live
            if live is not None:
                done.after[slot] = live
                if (conflict := name_conflict(owner, live, manifest)) is not None:
                    done.troubles.append(conflict)
                    done.failed.add(slot)
                    done.requeue_after = REQUEUE_SECONDS
                    return
                if _must_be_replaced(live, manifest):
                    await self._replace(owner, live, done)
                    return
            elif not done.owner_read:
                # A child that is missing is new, or was deleted with its owner.
                await self.require_owner(owner)
                done.owner_read = True
            done.sent[slot] = manifest = _with_its_own_ways(manifest, None if consented(owner) else live)
            if isinstance(live, Workload) and differing_hashes(manifest, live):
                await self._announce(slot, manifest, live, announce)
            applied = (
                await self._applier.create(manifest, kind)
                if live is None
                else await self._applier.apply(manifest, live, kind, same=True)
            )
        except OwnerGoneError:
            raise
        except KubeError as error:
            self._failed(owner, slot, error, done, "Create" if live is None else "Patch")
            return
        if applied.object is not None:
            done.after[slot] = applied.object
        if applied.changed:
            done.changed.add(slot)
        if applied.outcome is ApplyOutcome.CREATED:
            self._event(owner, "CreateSucceeded", "Create", f"Created {slot}", applied.object)

    async def _announce(self, slot: ChildKey, manifest: Manifest, live: Workload, announce: Announce) -> None:
        """Tell of a restart before it begins, unless it has and only the cache is behind."""
        if not self._applier.is_applied(manifest, live):
            await announce(slot, manifest, live)

    async def _find(self, kind: type[Object], key: Key) -> Object | None:
        """Return a child that may exist, also if no cache knows of it yet."""
        name = kind.RESOURCE.kind
        if name not in self._lookups and key in (unreadable := self._informers[name].store.unreadable):
            raise KubeError(f"{name} {key} cannot be read: {unreadable[key]}")
        found = await self._existing(ChildKey(name, key.name), key.namespace)
        if found is None:
            with contextlib.suppress(NotFound):
                return await self._client.get(kind, key.name, key.namespace)
        return found

    async def _replace(self, owner: Kind, live: Object, done: ChildrenResult) -> None:
        """Delete a StatefulSet that cannot become what it should be; its pods run on and are adopted."""
        if live.deleting:
            return
        slot = ChildKey(live.RESOURCE.kind, live.metadata.name)
        with contextlib.suppress(NotFound, Conflict):
            namespace, name = live.key
            await self._client.delete(
                type(live), name, namespace, uid=live.metadata.uid, propagation="Orphan"
            )
            self._event(
                owner,
                "DeleteSucceeded",
                "Delete",
                f"Deleted {slot} to recreate it; its pods keep running",
                live,
            )
        self._applier.forget(type(live), live.key, live.metadata.uid)
        done.failed.add(slot)

    # ------------------------------------------------------------------------------------------------- remove
    async def _remove(self, owner: Kind, named: ObjectName, done: ChildrenResult) -> None:
        slot = ChildKey(named.kind, named.name)
        try:
            live = await self._existing(slot, owner.metadata.namespace)
            if live is None or live.deleting or not _is_controlled(owner, live):
                return
            if await self._applier.delete(live):
                self._event(owner, "DeleteSucceeded", "Delete", f"Deleted {slot}", live)
        except KubeError as error:
            self._failed(owner, slot, error, done, "Delete")

    async def _existing(self, slot: ChildKey, namespace: str) -> Object | None:
        """Return a child that a cache knows."""
        if slot.kind in self._lookups:
            return await self._lookups[slot.kind](Key(namespace, slot.name))
        return self.cached(slot, namespace)

    # -------------------------------------------------------------------------------------------------- speak
    def _failed(
        self, owner: Kind, slot: ChildKey, error: KubeError, done: ChildrenResult, action: str
    ) -> None:
        done.errors.append(error)
        done.failed.add(slot)
        if isinstance(error, Conflict):
            return  # another client was faster; the retry reads what it wrote
        note = failure(action, slot, error)
        done.troubles.append(WorkloadProblem(Reason.APPLY_FAILED, note))
        if isinstance(error, ApiError):
            self._events.event(owner, "Warning", f"{action}Failed", action, note, done.before.get(slot))

    def _event(self, owner: Kind, reason: str, action: str, note: str, child: Object | None) -> None:
        self._events.event(owner, "Normal", reason, action, note, child)


_VERBS: Final = {"Create": "create", "Patch": "update", "Delete": "delete"}


def failure(action: str, slot: ChildKey, error: KubeError) -> str:
    """Return the message about a child that could not be written."""
    return f"Cannot {_VERBS[action]} {slot}: {describe(error)}"


def _is_controlled(owner: Kind, live: Object) -> bool:
    controller = live.controller_owner
    return controller is not None and controller.uid == owner.metadata.uid


def name_conflict(owner: Kind, live: Object, manifest: Manifest) -> WorkloadProblem | None:
    """Return why an object of the right name is not ours to change; None if it is."""
    controller, name = live.controller_owner, ChildKey(live.RESOURCE.kind, live.metadata.name)
    if controller is None:
        ours: dict[str, str] = manifest["metadata"]["labels"]
        if all(live.metadata.labels.get(name) == ours[name] for name in _MARKS):
            return None  # it was made for this object, and has lost its owner
        advice = "delete it, or give this object another name"
        return WorkloadProblem(
            Reason.NAME_TAKEN, f"{name} already exists and was not created by this operator: {advice}"
        )
    if controller.uid == owner.metadata.uid:
        return None
    if (controller.kind, controller.name) == (owner.RESOURCE.kind, owner.metadata.name):
        return WorkloadProblem(
            Reason.NAME_TAKEN,
            f"{name} belongs to a deleted {controller.kind} of this name; waiting for its deletion",
        )
    return WorkloadProblem(
        Reason.NAME_TAKEN,
        f"{name} belongs to {controller.kind} {controller.name!r}: give one of the two another name",
    )


def as_running(live: Object | None) -> dict[str, Any] | None:
    """Return what decides whether the pods of a workload are left as they are; None if there is none."""
    if not isinstance(live, StatefulSetDetails | DeploymentDetails):
        return None
    fixed = {"serviceName": live.spec.service_name, "podManagementPolicy": live.spec.pod_management_policy}
    return {
        "metadata": {"annotations": live.metadata.annotations},
        "spec": {"template": live.spec.template, **(fixed if isinstance(live, StatefulSetDetails) else {})},
    }


def _with_its_own_ways(manifest: Manifest, live: Object | None) -> Manifest:
    """Return what to apply: a workload that runs is not restarted for what the user did not ask for."""
    if manifest["kind"] not in (
        StatefulSetDetails.RESOURCE.kind,
        DeploymentDetails.RESOURCE.kind,
    ) or is_settled(manifest):
        return manifest
    return settle(manifest, as_running(live))


def _must_be_replaced(live: Object, manifest: Manifest) -> bool:
    """Return whether a StatefulSet has another Service than it should; that cannot be changed in place."""
    return isinstance(live, StatefulSetDetails) and live.spec.service_name != manifest["spec"]["serviceName"]
