"""The ControllerRevisions of a NodeSet: which one its pods should have.

`kube.history` decides and writes; here is what a NodeSet puts into it, and the memory that spares a second
look at revisions that have not changed. The answers to our own writes count until the cache shows them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.observation import Revision
from slurm_operator.kube.errors import Conflict, KubeError
from slurm_operator.kube.history import HistoryOwner, plan_history, sync_history, truncate_history
from slurm_operator.kube.revisions import hash_of
from slurm_operator.objects import slurmd_revision

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.engine.adoption import Adoption
    from slurm_operator.controllers.nodeset.engine.caches import Caches
    from slurm_operator.controllers.nodeset.engine.memory import Memory
    from slurm_operator.controllers.nodeset.engine.outcome import Outcome
    from slurm_operator.kube.client import Client
    from slurm_operator.kube.history import History, HistoryPlan


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
            # Without the revision nobody can tell which pods are old.
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
