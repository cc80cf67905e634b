"""What new workers are made from, or why none can be made.

The template needs the Controller and the content of Secrets. If one of them is missing, there is no template,
the condition `Degraded` reports why, no pod is created, and no existing pod becomes outdated by that. Without
a Controller there is no connection to Slurm either, so no pod in which a job may run is deleted, unless the
NodeSet is (`finalizer`). The template is built again only if something that it is made from has changed.

The ControllerRevisions of a NodeSet: which one its pods should have.

`kube.history` decides and writes; here is what a NodeSet puts into it, and the memory that spares a second
look at revisions that have not changed. The answers to our own writes count until the cache shows them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.observation import Fate, Revision
from slurm_operator.controllers.workload.contents import Contents
from slurm_operator.controllers.workload.verdict import Cause
from slurm_operator.kube.errors import Conflict, KubeError
from slurm_operator.kube.failures import describe
from slurm_operator.kube.history import HistoryOwner, plan_history, sync_history, truncate_history
from slurm_operator.kube.meta import Key
from slurm_operator.kube.revisions import hash_of
from slurm_operator.objects import slurmd, slurmd_revision
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.nodefit import Fit, node_fit

if TYPE_CHECKING:
    from slurm_operator.api import Controller, NodeSet
    from slurm_operator.controllers.nodeset.run.one_pass import Outcome
    from slurm_operator.controllers.nodeset.run.ownership import Adoption
    from slurm_operator.controllers.nodeset.run.state import Memory
    from slurm_operator.controllers.nodeset.run.watches import Caches
    from slurm_operator.controllers.wiring import Wiring
    from slurm_operator.kube.client import Client
    from slurm_operator.kube.history import History, HistoryPlan
    from slurm_operator.kube.meta import ObjectMeta
    from slurm_operator.objects.references import Found
    from slurm_operator.objects.slurmd import WorkerTemplate

CONTROLLER_REF: Final = "spec.controllerRef"


@dataclass(frozen=True, slots=True)
class Master:
    """The Controller of a NodeSet, and what becomes of it."""

    controller: Controller | None
    fate: Fate


class Templates:
    """Builds the templates of NodeSets."""

    def __init__(self, wiring: Wiring, caches: Caches, name: str) -> None:
        self._caches = caches
        self._contents = Contents(wiring, name)
        self._domain = wiring.cluster_domain

    def master(self, nodeset: NodeSet, outcome: Outcome) -> Master:
        """Return the Controller of a NodeSet."""
        name = nodeset.spec.controller_ref.name
        key = Key(nodeset.metadata.namespace, name)
        store = self._caches.controllers.store
        found = store.get(key)
        if key in store.unreadable:
            outcome.certain = False
            outcome.trouble(
                Cause.UNREADABLE,
                f"{CONTROLLER_REF}: Controller {name!r} cannot be read: {store.unreadable[key]}",
            )
            return Master(found, Fate.STAYS)
        if found is None:
            outcome.trouble(
                Cause.MISSING,
                f"{CONTROLLER_REF}: Controller {name!r} does not exist; create it. Until then no worker is "
                "made or removed",
            )
            return Master(None, Fate.GONE)
        return Master(found, Fate.LEAVES if found.deleting else Fate.STAYS)

    async def build(
        self, nodeset: NodeSet, controller: Controller | None, memory: Memory, outcome: Outcome
    ) -> WorkerTemplate | None:
        """Return what new workers are made from; None if there is no such thing now."""
        try:
            found = await self._contents.read(nodeset.key, slurmd.references(nodeset, controller))
        except KubeError as error:
            outcome.errors.append(error)
            outcome.trouble(Cause.UNREADABLE, describe(error))
            return None
        if controller is None:
            return None
        ground = _ground(nodeset, controller, found)
        if memory.template is not None and memory.template[0] == ground:
            return memory.template[1]
        # One that cannot be made leaves the last one in the memory: its hashes still tell who is old.
        try:
            built = slurmd.worker_template(nodeset, controller, found, cluster_domain=self._domain)
        except Unbuildable as error:
            outcome.unbuildable(error)
            return None
        memory.template = (ground, built)
        return built

    def fit(self, nodeset: NodeSet, memory: Memory, outcome: Outcome) -> Fit:
        """Return on which Kubernetes nodes workers belong."""
        generation = nodeset.metadata.generation
        if memory.fit is None or memory.fit[0] != generation:
            try:
                memory.fit = (generation, node_fit(nodeset))
            except Unbuildable as error:
                # It is unknown where pods belong, so none may be deleted because of the node it is on.
                outcome.certain = False
                outcome.unbuildable(error)
                return _NOWHERE
        return memory.fit[1]

    def release(self, key: Key) -> None:
        """Watch no Secrets for a NodeSet that is gone."""
        self._contents.release(key)


_NOWHERE: Final = Fit(node_name="", selector=(), terms=(), tolerations=())


def _ground(nodeset: NodeSet, controller: Controller, found: Found) -> Any:
    secrets = [(one.metadata.uid, one.metadata.resource_version) for one in found.secrets.values()]
    return _version(nodeset.metadata), _version(controller.metadata), sorted(secrets)


def _version(metadata: ObjectMeta) -> tuple[object, ...]:
    """Return what changes with everything of an object but its status."""
    return metadata.uid, metadata.generation, metadata.labels, metadata.annotations


@dataclass(slots=True)
class Known:
    """What was decided about the revisions of a NodeSet, and what that was decided on."""

    ground: object
    plan: HistoryPlan
    history: History
    truncated: bool = False

    @property
    def revision(self) -> Revision:
        """Return what pods of the newest revision carry."""
        return Revision(hash_of(self.history.current), self.history.current_hashes)


class Revisions:
    """Keeps the history of NodeSets."""

    def __init__(self, client: Client, caches: Caches, adoption: Adoption) -> None:
        self._client = client
        self._caches = caches
        self._adoption = adoption

    async def settle(self, nodeset: NodeSet, memory: Memory, outcome: Outcome) -> Revision:
        """Make the revision of the spec exist; return what pods of it carry."""
        if nodeset.deleting:
            return _remembered(nodeset)
        now = asyncio.get_running_loop().time()
        revisions = memory.revisions.newest(self._caches.revisions_of(nodeset), now)
        live = frozenset(
            pod.metadata.labels.get(wellknown.LABEL_REVISION_HASH, "")
            for pod in self._caches.owned_pods(nodeset)
        )
        status = nodeset.status
        trusted = slurmd_revision.trusted_hash(nodeset)
        ground = (
            nodeset.metadata.generation,
            trusted,
            status.collision_count,
            live,
            sorted((one.metadata.uid, one.metadata.resource_version) for one in revisions),
        )
        known = memory.history
        if known is not None and known.ground == ground:
            return known.revision
        plan = plan_history(
            _owner(nodeset),
            revisions,
            slurmd_revision.revision_data(nodeset),
            live=live,
            limit=nodeset.spec.revision_history_limit,
            collision_count=status.collision_count or 0,
            zero_fields=slurmd_revision.ZERO_FIELDS,
            trusted=trusted,
        )
        orphaned = any("ownerReferences" in patch.body["metadata"] for patch in plan.patches)
        if orphaned and not await self._adoption.exists(nodeset, outcome):
            outcome.certain = False
            return _remembered(nodeset)
        try:
            history = await sync_history(self._client, plan)
        except KubeError as error:
            # Without the revision it is unknown which pods are outdated.
            outcome.certain = False
            outcome.failed(f"the ControllerRevision of NodeSet {nodeset.metadata.name!r}", error)
            if isinstance(error, Conflict) and not outcome.looks:
                outcome.look(1.0)
            return _remembered(nodeset)
        for written in history.written:
            if any(one.metadata.uid == written.metadata.uid for one in revisions):
                memory.revisions.changed(written)
            else:
                memory.revisions.made(written, now)
        memory.history = Known(ground, plan, history)
        return memory.history.revision

    async def truncate(self, nodeset: NodeSet, memory: Memory, outcome: Outcome) -> None:
        """Delete the revisions beyond the limit that no pod has."""
        known = memory.history
        if known is None or not known.plan.delete or known.truncated:
            return
        try:
            await truncate_history(self._client, known.plan)
        except KubeError as error:
            outcome.failed(f"an old ControllerRevision of NodeSet {nodeset.metadata.name!r}", error)
        else:
            known.truncated = True
            for revision in known.plan.delete:
                memory.revisions.deleted(revision.metadata.uid)


def _remembered(nodeset: NodeSet) -> Revision:
    """Return what the status says, for passes in which no pod is made or replaced."""
    known = nodeset.status.node_set_hash
    return Revision(known, frozenset({known}))


def _owner(nodeset: NodeSet) -> HistoryOwner:
    return HistoryOwner(
        api_version=nodeset.RESOURCE.api_version,
        kind=nodeset.RESOURCE.kind,
        namespace=nodeset.metadata.namespace,
        name=nodeset.metadata.name,
        uid=nodeset.metadata.uid,
        labels=slurmd_revision.revision_labels(nodeset),
    )
