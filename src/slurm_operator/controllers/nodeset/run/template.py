"""What new workers are made from, or why none can be made.

The template needs the Controller and the content of Secrets. If one of them is missing, there is no template,
the condition `Degraded` reports why, no pod is created, and no existing pod becomes outdated by that. Without
a Controller there is no connection to Slurm either, so no pod in which a job may run is deleted, unless the
NodeSet is (`finalizer`). The template is built again only if something that it is made from has changed.

`Revisions` keeps the ControllerRevisions of a NodeSet, which say what its pods should have.
`kube.runtime.revision_history` decides and writes; here is what a NodeSet puts into it, and what is
remembered, so that revisions that have not changed are not read again. The answers to our own writes count
until the cache shows them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.observation import ControllerState, Revision
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.controllers.shared.contents import Contents
from slurm_operator.kube.decide.own_writes import OwnWrites
from slurm_operator.kube.errors import Conflict, KubeError
from slurm_operator.kube.manifests.revisions import hash_of
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.kube.runtime.revision_history import (
    HistoryOwner,
    plan_history,
    sync_history,
    truncate_history,
)
from slurm_operator.objects import slurmd, slurmd_revision
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.node_fit import Fit, node_fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_operator.api import Controller, NodeSet
    from slurm_operator.controllers.nodeset.run.ownership import Adoption
    from slurm_operator.controllers.nodeset.run.reconcile_state import ReconcileOutcome
    from slurm_operator.controllers.nodeset.run.watches import Caches
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.kinds import ControllerRevision
    from slurm_operator.kube.models.meta import ObjectMeta
    from slurm_operator.kube.runtime.revision_history import History, HistoryPlan
    from slurm_operator.objects.content_references import Found
    from slurm_operator.objects.slurmd import WorkerTemplate


@dataclass(frozen=True, slots=True)
class ControllerRef:
    """The Controller of a NodeSet, and what becomes of it."""

    controller: Controller | None
    state: ControllerState


@dataclass(slots=True)
class KnownTemplate:
    """What was last built for a NodeSet, and what from. Without it, it is built again.

    While nothing can be built, for example because a Secret cannot be read, a new process does not know the
    hashes of the last template, and calls no pod outdated for them.
    """

    template: tuple[Any, WorkerTemplate] | None = None
    """By what it was built from."""
    fit: tuple[int, Fit] | None = None
    """By the generation it was built for."""

    @property
    def hashes(self) -> Mapping[str, str]:
        """Return the hashes of the last template that could be built: a failure makes no worker newer."""
        return {} if self.template is None else self.template[1].hashes


class Templates:
    """Builds the templates of NodeSets."""

    def __init__(self, wiring: Wiring, caches: Caches, name: str) -> None:
        self._caches = caches
        self._contents = Contents(wiring, name)
        self._domain = wiring.cluster_domain

    def controller_ref(self, nodeset: NodeSet, outcome: ReconcileOutcome) -> ControllerRef:
        """Return the Controller of a NodeSet."""
        name = nodeset.spec.controller_ref.name
        key = Key(nodeset.metadata.namespace, name)
        store = self._caches.controllers.store
        found = store.get(key)
        if key in store.unreadable:
            outcome.certain = False
            outcome.trouble(
                Reason.REFERENCE_UNREADABLE,
                write_messages.controller_unreadable(name, store.unreadable[key]),
                Reason.CONTROLLER_REF_FAILED,
            )
            return ControllerRef(found, ControllerState.STAYS)
        if found is None:
            outcome.trouble(
                Reason.MISSING_REFERENCE,
                write_messages.controller_missing(name),
                Reason.CONTROLLER_REF_FAILED,
            )
            return ControllerRef(None, ControllerState.GONE)
        return ControllerRef(found, ControllerState.LEAVES if found.deleting else ControllerState.STAYS)

    async def build(
        self, nodeset: NodeSet, controller: Controller | None, known: KnownTemplate, outcome: ReconcileOutcome
    ) -> WorkerTemplate | None:
        """Return what new workers are made from; None if there is no such thing now."""
        try:
            found = await self._contents.read(nodeset.key, slurmd.references(nodeset, controller))
        except KubeError as error:
            outcome.errors.append(error)
            outcome.trouble(Reason.REFERENCE_UNREADABLE, describe(error))
            return None
        if controller is None:
            return None
        built_from = _built_from(nodeset, controller, found)
        if known.template is not None and known.template[0] == built_from:
            return known.template[1]
        # One that cannot be built leaves the last one known: its hashes still tell which pods are outdated.
        try:
            built = slurmd.worker_template(nodeset, controller, found, cluster_domain=self._domain)
        except Unbuildable as error:
            outcome.unbuildable(error)
            return None
        known.template = (built_from, built)
        return built

    def fit(self, nodeset: NodeSet, known: KnownTemplate, outcome: ReconcileOutcome) -> Fit:
        """Return on which Kubernetes nodes workers belong."""
        generation = nodeset.metadata.generation
        if known.fit is None or known.fit[0] != generation:
            try:
                known.fit = (generation, node_fit(nodeset))
            except Unbuildable as error:
                # It is unknown where pods belong, so none may be deleted because of the node it is on.
                outcome.certain = False
                outcome.unbuildable(error)
                return _NOWHERE
        return known.fit[1]

    def release(self, key: Key) -> None:
        """Watch no Secrets for a NodeSet that is gone."""
        self._contents.release(key)


_NOWHERE: Final = Fit(node_name="", selector=(), terms=(), tolerations=())


def _built_from(nodeset: NodeSet, controller: Controller, found: Found) -> Any:
    secrets = [(one.metadata.uid, one.metadata.resource_version) for one in found.secrets.values()]
    return _version(nodeset.metadata), _version(controller.metadata), sorted(secrets)


def _version(metadata: ObjectMeta) -> tuple[object, ...]:
    """Return what changes with everything of an object but its status."""
    return metadata.uid, metadata.generation, metadata.labels, metadata.annotations


@dataclass(slots=True)
class KnownRevisions:
    """What was decided about the revisions of a NodeSet, and what that was decided on."""

    decided_on: object
    plan: HistoryPlan
    history: History
    truncated: bool = False

    @property
    def revision(self) -> Revision:
        """Return what pods of the newest revision carry."""
        return Revision(hash_of(self.history.current), self.history.current_hashes)


@dataclass(slots=True)
class RevisionWrites:
    """The ControllerRevisions as we last wrote them, and what was decided about them.

    Without it they are decided on again, from the cache; a revision that the cache does not show yet is
    created again, which the API server answers with the one that exists.
    """

    answers: OwnWrites[ControllerRevision] = field(default_factory=OwnWrites)
    known: KnownRevisions | None = None

    @property
    def collision_count(self) -> int | None:
        """Return how many names of revisions collided, as the status reports it."""
        return None if self.known is None else self.known.history.collision_count or None

    def written(self, history: History, before: Sequence[ControllerRevision], now: float) -> None:
        """Note what was written; what did not exist before was created."""
        existed = {one.metadata.uid for one in before}
        for written in history.written:
            if written.metadata.uid in existed:
                self.answers.changed(written)
            else:
                self.answers.made(written, now)

    def truncated(self, known: KnownRevisions) -> None:
        """Note that the revisions beyond the limit were deleted."""
        known.truncated = True
        for revision in known.plan.delete:
            self.answers.deleted(revision.metadata.uid)


class Revisions:
    """Keeps the history of NodeSets."""

    def __init__(self, client: Client, caches: Caches, adoption: Adoption) -> None:
        self._client = client
        self._caches = caches
        self._adoption = adoption

    async def settle(self, nodeset: NodeSet, state: RevisionWrites, outcome: ReconcileOutcome) -> Revision:
        """Make the revision of the spec exist; return what pods of it carry."""
        if nodeset.deleting:
            return _remembered(nodeset)
        now = asyncio.get_running_loop().time()
        revisions = state.answers.newest(self._caches.revisions_of(nodeset), now)
        live = frozenset(
            pod.metadata.labels.get(wellknown.LABEL_REVISION_HASH, "")
            for pod in self._caches.owned_pods(nodeset)
        )
        status = nodeset.status
        trusted = slurmd_revision.trusted_hash(nodeset)
        decided_on = (
            nodeset.metadata.generation,
            trusted,
            status.collision_count,
            live,
            sorted((one.metadata.uid, one.metadata.resource_version) for one in revisions),
        )
        known = state.known
        if known is not None and known.decided_on == decided_on:
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
            outcome.failed("write", f"the ControllerRevision of NodeSet {nodeset.metadata.name!r}", error)
            if isinstance(error, Conflict) and not outcome.requeues:
                outcome.requeue_after(1.0)
            return _remembered(nodeset)
        state.written(history, revisions, now)
        state.known = KnownRevisions(decided_on, plan, history)
        return state.known.revision

    async def truncate(self, nodeset: NodeSet, state: RevisionWrites, outcome: ReconcileOutcome) -> None:
        """Delete the revisions beyond the limit that no pod has."""
        known = state.known
        if known is None or not known.plan.delete or known.truncated:
            return
        try:
            await truncate_history(self._client, known.plan)
        except KubeError as error:
            outcome.failed("delete", f"an old ControllerRevision of NodeSet {nodeset.metadata.name!r}", error)
        else:
            state.truncated(known)


def _remembered(nodeset: NodeSet) -> Revision:
    """Return what the status says, for reconciles in which no pod is made or replaced."""
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
