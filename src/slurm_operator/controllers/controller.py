"""Controller: slurmctld as a StatefulSet, its Services, its configuration, and a ServiceMonitor.

slurm.conf tells about a Controller, its NodeSets and its Accounting, so these are watched; and so are the
ConfigMaps and Secrets that it refers to, the claims with its state, its pods, and the pings that say which
slurmctld is in charge. Nothing here polls Slurm.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from slurm_operator.api import Accounting, Controller, NodeSet, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.shared.problems import WorkloadProblem
from slurm_operator.controllers.workload.active_slurmctld import ActiveLabel, pings_changed
from slurm_operator.controllers.workload.children import (
    REQUEUE_SECONDS,
    ChildKey,
    Children,
    ChildrenResult,
    as_running,
)
from slurm_operator.controllers.workload.decide import rollout
from slurm_operator.controllers.workload.decide.read_models import MonitorObject, StatefulSetDetails
from slurm_operator.controllers.workload.decide.stuck import stuck_pods
from slurm_operator.controllers.workload.monitors import PERIOD_SECONDS, Monitors
from slurm_operator.controllers.workload.reconcile import WorkloadController, WorkloadPlan, hold_unreadable
from slurm_operator.controllers.workload.volume_claims import ClaimGrower, claim_trouble
from slurm_operator.kube.cache.referenced_objects import enqueue_owners
from slurm_operator.kube.errors import Conflict, KubeError, NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Pod, Service
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.controller import Requeue
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.kube.runtime.sources import Channel, any_of, ignore_status
from slurm_operator.objects import corrections, hosts, slurmctld
from slurm_operator.objects.desired import ObjectName
from slurm_operator.objects.slurm_conf import SlurmCluster
from slurm_operator.objects.slurmctld_claim import Growth, growths, keep_claims

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.controllers.workload.decide.read_models import VolumeClaim, Workload
    from slurm_operator.controllers.workload.decide.rollout import Rollout
    from slurm_operator.kube.models.meta import Object
    from slurm_operator.kube.models.store import Change
    from slurm_operator.kube.runtime import controller as runtime
    from slurm_operator.objects.desired import Desired
    from slurm_operator.slurm.model.view import ViewUpdate
    from slurm_operator.slurm.rest.connections import ConnectionKey

log = structlog.get_logger(__name__)

_MONITOR = MonitorObject.RESOURCE.kind
# Helm and kubectl make the objects of a cluster one after another, and each NodeSet is in slurm.conf: a
# slurmctld that started with the first of them would be replaced for the last, after its grace period.
_COMPANY_SECONDS: Final = 1.5


def build(wiring: Wiring) -> runtime.Controller:
    """Wire the controller."""
    return ControllerController(wiring).controller


@dataclass(frozen=True, slots=True)
class ControllerPlan(WorkloadPlan):
    """What should be of a Controller: its children, and claims with more space."""

    growths: tuple[tuple[VolumeClaim, Growth], ...] = ()


class ControllerController(WorkloadController[Controller]):
    """Keeps the slurmctld of every Controller."""

    NAME: ClassVar = "controller-controller"
    WORKERS: ClassVar = "controller"
    DAEMON: ClassVar = "slurmctld"
    APP: ClassVar = wellknown.APP_SLURMCTLD

    def __init__(self, wiring: Wiring, discovery_period: float = PERIOD_SECONDS) -> None:
        self._monitors = Monitors(wiring.client, self.NAME, discovery_period)
        children = Children(
            wiring, Service, ConfigMap, StatefulSetDetails, lookups={_MONITOR: self._monitors.find}
        )
        super().__init__(wiring, Controller, children)
        self._node_sets = wiring.manager.informer(NodeSet)
        self._accountings = wiring.manager.informer(Accounting)
        self._active = ActiveLabel(wiring, self._pods)
        self._claims = ClaimGrower(wiring.client, self.NAME)
        self._pings: Channel[Key] = Channel()
        # From when on a Controller without a slurmctld gets one.
        self._due: dict[Key, float] = {}
        # Whose slurmctlds stay as they are until their Services are there.
        self._waiting: set[Key] = set()
        (
            self.controller.watch(self._node_sets, node_set_controllers, any_of(ignore_status, size_changed))
            .watch(self._accountings, self._of_accounting, ignore_status)
            .watch_channel(self._monitors.changes, lambda _: [one.key for one in self._objects.store.list()])
            .watch_channel(self._monitors.references.changes, enqueue_owners(self.NAME))
            .watch_channel(self._claims.references.changes, enqueue_owners(self.NAME))
            .watch_channel(self._pings, lambda key: (key,))
        )
        wiring.connections.subscribe(self._updated)
        for name, run in (
            ("ServiceMonitor discovery", self._monitors.run),
            ("named ServiceMonitors", self._monitors.references.run),
            ("claims of slurmctld", self._claims.references.run),
        ):
            wiring.manager.add_runnable(run, name=name, leader_only=True)

    # ----------------------------------------------------------------------------------------------- watches
    def _of_accounting(self, change: Change[Accounting]) -> Iterable[Key]:
        namespace, name = change.key
        return [
            controller.key
            for controller in self._objects.store.list(namespace)
            if controller.spec.accounting_ref is not None and controller.spec.accounting_ref.name == name
        ]

    def _updated(self, key: ConnectionKey, update: ViewUpdate) -> None:
        if key.kind == Controller.RESOURCE.kind and pings_changed(update):
            self._pings.send(Key(key.namespace, key.name))

    def forget(self, key: Key) -> None:
        """Watch nothing for a Controller that is gone."""
        self._due.pop(key, None)
        self._waiting.discard(key)
        self._claims.release(key)
        self._monitors.want(key, None)

    # --------------------------------------------------------------------------------------------- reconcile
    async def reconcile(self, key: Key) -> Requeue | None:
        """Wait a moment for what belongs to a new Controller, then do as with all kinds."""
        live = self._objects.store.get(key)
        if live is not None and not live.deleting and self.workload(live) and self._cached(live) is None:
            now = asyncio.get_running_loop().time()
            due = self._due.setdefault(key, now + _COMPANY_SECONDS)
            if now < due:
                return Requeue(due - now)
        return await super().reconcile(key)

    # -------------------------------------------------------------------------------------------------- plan
    def workload(self, live: Controller) -> ChildKey | None:
        """Return the StatefulSet, if slurmctld runs here."""
        return None if live.spec.external else ChildKey(StatefulSetDetails.RESOURCE.kind, live.workload_name)

    async def plan(self, live: Controller) -> ControllerPlan:
        """Decide what should be."""
        found = await self._contents.read(live.key, slurmctld.references(live))
        written, running = self._written_config(live), self._running_config(live)
        cluster = hosts.keep_running(self._cluster(live), found, written, running)
        served = await self._monitors.served()
        self._monitors.want(live.key, Key(live.metadata.namespace, live.workload_name) if served else None)
        desired = slurmctld.desired(cluster, found, service_monitors=served)
        desired = await self._without_unknown_monitor(live, desired)
        kept = self._kept(cluster, desired)
        desired = kept.desired
        there = self._host_services(live)
        if hosts.complete(cluster, there):
            self._waiting.discard(live.key)
        else:
            self._waiting.add(live.key)
        desired = hosts.in_order(cluster, desired, there, settled=self._settled(live))
        claims = await self._claims.read(live)
        plan = ControllerPlan(
            desired, found, reconfigures=live.spec.inplace_reconfigure, waiting=kept.waiting
        )
        return self._with_claims(live, plan, claims)

    def _kept(self, cluster: SlurmCluster, desired: Desired) -> corrections.Kept:
        """Return what to apply, with the configuration of Slinky slurm-operator where that can stay."""
        live = cluster.controller
        if live.spec.external or corrections.consented(live):
            return corrections.Kept(desired)
        return corrections.keep(
            desired,
            corrections.Files("ConfigMap", live.config_name, wellknown.ANNOTATION_SLURM_CONFIG_HASH),
            ObjectName("apps/v1", "StatefulSet", live.workload_name),
            as_running(self._cached(live)),
            self._written_files(live),
            corrections.former_slurm_lines(cluster),
        )

    def _cluster(self, live: Controller) -> SlurmCluster:
        """Return the Controller with all that its slurm.conf tells about."""
        namespace, ref = live.metadata.namespace, live.spec.accounting_ref
        store = self._node_sets.store
        hold_unreadable(self._node_sets, *(key for key in store.unreadable if key.namespace == namespace))
        node_sets = [
            node_set
            for node_set in store.list(namespace)
            if node_set.spec.controller_ref.name == live.metadata.name
        ]
        accounting = None
        if ref is not None:
            key = Key(namespace, ref.name)
            hold_unreadable(self._accountings, key)
            accounting = self._accountings.store.get(key)
        return SlurmCluster(live, node_sets, accounting)

    def _written_files(self, live: Controller) -> dict[str, str]:
        """Return the files that were written last."""
        slot = ChildKey(ConfigMap.RESOURCE.kind, live.config_name)
        existing = self._children.cached(slot, live.metadata.namespace)
        data = existing.data if isinstance(existing, ConfigMap) else None
        return data or {}

    def _written_config(self, live: Controller) -> str:
        """Return the slurm.conf that was written last; empty if there is none."""
        return self._written_files(live).get(wellknown.FILE_SLURM_CONF, "")

    def _running_config(self, live: Controller) -> str:
        """Return the hash of the configuration in the template of the pods; empty if there is none."""
        existing = self._cached(live)
        annotations = {} if existing is None else existing.spec.template_annotations
        return annotations.get(wellknown.ANNOTATION_SLURM_CONFIG_HASH, "")

    def _host_services(self, live: Controller) -> set[str]:
        """Return the names of the Services in front of single slurmctlds that are there and are ours."""
        there = set()
        for name in hosts.possible(live):
            found = self._children.cached(ChildKey(Service.RESOURCE.kind, name), live.metadata.namespace)
            owner = None if found is None or found.deleting else found.controller_owner
            if owner is not None and owner.uid == live.metadata.uid:
                there.add(name)
        return there

    def _settled(self, live: Controller) -> bool:
        """Return whether no pod is left from before the last change."""
        if self.workload(live) is None:
            return True
        existing = self._cached(live)
        return (
            existing is not None
            and existing.spec.replicas == live.replicas
            and rollout.assess(existing, self.DAEMON).phase is rollout.Phase.COMPLETE
        )

    def _rollout(self, live: Controller, workload: Workload | None) -> Rollout | None:
        """Assess the StatefulSet, which is not what it should be while it waits for Services."""
        seen = super()._rollout(live, workload)
        if seen is None or seen.phase is not rollout.Phase.COMPLETE or live.key not in self._waiting:
            return seen
        message = f"{seen.message}; waiting for the Service of each slurmctld before the pods are changed"
        return replace(seen, phase=rollout.Phase.ROLLING, message=message)

    async def _without_unknown_monitor(self, live: Controller, desired: Desired) -> Desired:
        """Do not remove a ServiceMonitor that the operator may not even read: then it created none."""
        unwanted = [one for one in desired.unwanted if one.kind == _MONITOR]
        if not unwanted:
            return desired
        try:
            await self._monitors.find(Key(live.metadata.namespace, unwanted[0].name))
        except KubeError as error:
            log.debug("cannot read ServiceMonitors", error=describe(error))
            kept = tuple(one for one in desired.unwanted if one.kind != _MONITOR)
            return replace(desired, unwanted=kept)
        return desired

    def _with_claims(
        self, live: Controller, plan: ControllerPlan, claims: dict[str, VolumeClaim]
    ) -> ControllerPlan:
        slot = self.workload(live)
        wanted = None if slot is None else plan.desired.find(*slot)
        if slot is None or wanted is None:
            return plan
        others = tuple(one for one in plan.desired.objects if one is not wanted)
        if live.claim_in_use:
            trouble = claim_trouble(live, claims.get(live.claim_in_use))
            if trouble is not None:
                blocked = trouble.cause is Reason.INVALID_SPEC
                desired = replace(plan.desired, objects=others if blocked else plan.desired.objects)
                plan = replace(plan, desired=desired, troubles=(trouble,))
                if blocked:
                    return plan
        existing = self._children.cached(slot, live.metadata.namespace)
        if (
            isinstance(existing, StatefulSetDetails)
            and existing.spec.service_name == wanted["spec"]["serviceName"]
        ):
            volumes = existing.spec.template.get("spec", {}).get("volumes", ())
            kept, problems = keep_claims(wanted, existing.spec.volume_claim_templates, volumes)
            desired = replace(
                plan.desired, objects=(*others, kept), problems=(*plan.desired.problems, *problems)
            )
            plan = replace(plan, desired=desired)
        requested = {name: claim.requested for name, claim in claims.items()}
        return replace(plan, growths=tuple((claims[one.claim], one) for one in growths(wanted, requested)))

    # --------------------------------------------------------------------------------------------------- act
    async def act(self, live: Controller, plan: WorkloadPlan, done: ChildrenResult) -> list[WorkloadProblem]:
        """Grow claims, and lead the Service to the slurmctld in charge."""
        found: list[WorkloadProblem] = []
        if isinstance(plan, ControllerPlan):
            for claim, growth in plan.growths:
                trouble = await self._claims.grow(claim, growth)
                if trouble is not None:
                    found.append(trouble)
                    done.requeue_after = REQUEUE_SECONDS
        if (slot := self.workload(live)) is not None:
            try:
                await self._active.follow(live)
                await self._unblock(live, done.after.get(slot))
            except KubeError as error:
                done.errors.append(error)
                found.append(WorkloadProblem(Reason.APPLY_FAILED, f"Cannot change a pod: {describe(error)}"))
        return found

    async def _unblock(self, live: Controller, workload: Object | None) -> None:
        """Delete pods that keep their own replacement from being made.

        Caches may be behind: the StatefulSet of ours may still name the version before, and the pod of the
        newest version would be taken for an old one. So the StatefulSet is read, and a pod that has changed
        since it was seen is left for the next reconcile.
        """
        pods = self._pods.store.list(live.metadata.namespace)
        if not isinstance(workload, StatefulSetDetails) or not stuck_pods(workload, pods):
            return
        with contextlib.suppress(NotFound, Conflict):
            namespace, name = workload.key
            newest = await self._client.get(StatefulSetDetails, name, namespace)
            for pod in stuck_pods(newest, pods):
                version = pod.metadata.resource_version
                await self._client.delete(
                    Pod, pod.metadata.name, namespace, uid=pod.metadata.uid, resource_version=version
                )
                note = f"Deleted Pod {pod.metadata.name!r}, which cannot start, to apply the new revision"
                self._events.event(live, "Normal", "DeleteSucceeded", "Delete", note, pod)


def node_set_controllers(change: Change[NodeSet]) -> Iterable[Key]:
    """Map a NodeSet to the Controllers that it belonged and belongs to."""
    versions = [version for version in (change.old, change.new) if version is not None]
    return dict.fromkeys(
        Key(version.metadata.namespace, version.spec.controller_ref.name) for version in versions
    )


def size_changed(change: Change[NodeSet]) -> bool:
    """Let through what can change the number of nodes that slurm.conf must have room for, or power saving."""
    if change.old is None or change.new is None:
        return True
    old, new = change.old.status, change.new.status
    saved, saves = (find_condition(one.conditions, wellknown.CONDITION_AUTOSCALING) for one in (old, new))
    return old.desired != new.desired or (saved is None) != (saves is None)
