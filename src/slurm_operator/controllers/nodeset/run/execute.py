"""Carry out a plan: its actions in their order, equal ones together.

An action that fails is noted and does not keep the others from their turn: what depended on it finds the
world unchanged and is planned again. Only a lost lease ends everything at once.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import NodeSet, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import actions as do
from slurm_operator.controllers.nodeset.decide import finalizer
from slurm_operator.controllers.nodeset.decide.deletion import SETTLES_SECONDS, settling
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.controllers.nodeset.run.background import each
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.models.kinds import Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_operator.controllers.nodeset.run.claim_writes import ClaimWriter
    from slurm_operator.controllers.nodeset.run.pod_writes import Pods
    from slurm_operator.controllers.nodeset.run.reconcile_state import PlannedWork
    from slurm_operator.controllers.nodeset.run.slurm_nodes import Slurm
    from slurm_operator.controllers.nodeset.run.slurm_records import Records
    from slurm_operator.controllers.shared.problems import NodeSetProblem
    from slurm_operator.kube.client.client import Client

# How troubles begin that have an Event of their own.
FINALIZERS: Final = "the finalizers of NodeSet"
# About half a second of an API server that has nothing else to do. While no worker comes or goes it is a part
# of many workers, since reconciles of all of them are few then.
_CONDITIONS: Final = 200
_CONDITIONS_PART: Final = 10
# The end of a pod that is in no cache is no event.
_REQUEUE_SECONDS: Final = 10.0
_GUARDS: Final = {do.AddFinalizer(wellknown.FINALIZER_DRAIN), do.RecordExternal(external=True)}
_TOGETHER = {
    do.UndrainNodes: do.DrainNodes,
    do.ResumeNodes: do.DrainNodes,
    do.ResumeCloudNodes: do.DrainNodes,
    do.PowerUpNodes: do.DrainNodes,
    do.RemoveFinalizer: do.AddFinalizer,
    do.RecordExternal: do.AddFinalizer,
    do.ReleasePod: do.DeletePod,
}


class Actor:
    """Carries out plans."""

    def __init__(
        self,
        client: Client,
        pods: Pods,
        claims: ClaimWriter,
        slurm: Slurm,
        records: Records,
        answered: Callable[[NodeSet], None],
    ) -> None:
        self._client = client
        # Takes a NodeSet as the API server answered.
        self._answered = answered
        self._pods = pods
        self._claims = claims
        self._slurm = slurm
        self._records = records

    async def act(self, work: PlannedWork) -> None:
        """Do what a plan says, all but the conditions of pods; what it wants of Slurm is only ordered."""
        self._slurm.recall(work)
        self._records.recall(work)
        done = (action for action in work.plan.actions if not isinstance(action, do.PatchPodStatus))
        guarded = True
        for kind, group in itertools.groupby(done, _kind):
            some: list[Any] = [*group]
            if kind is do.AddFinalizer:
                kept = await self._finalizers(work, some)
                guarded = kept or not {*some} & _GUARDS
            elif kind is do.CreatePod and not guarded:
                # If the NodeSet were deleted now, they would be deleted with it, whatever runs in them.
                if work.outcome.errors:
                    work.outcome.trouble(Reason.APPLY_FAILED, write_messages.NOT_GUARDED)
            else:
                await self._do(work, kind, some)

    async def tell_pods(self, work: PlannedWork) -> list[NodeSetProblem]:
        """Write the conditions of pods, some hundred at most, and return what went wrong.

        This comes last, after the status of the NodeSet, and the rest waits for the next reconcile: a client
        that watches the NodeSet should not have to wait until each of a thousand pods has its conditions.
        """
        waiting = [action for action in work.plan.actions if isinstance(action, do.PatchPodStatus)]
        if waiting and (moving := _settling(work)):
            waiting = [action for action in waiting if action.uid not in moving]
            work.outcome.requeue_after(SETTLES_SECONDS)
        before = set(work.outcome.troubles)
        workers = 0 if work.plan.moves else len(work.seen.workers)
        most = max(_CONDITIONS, workers // _CONDITIONS_PART)
        await self._pods.patch_status(work, waiting[:most], 0.0 if work.plan.moves else _pause(work))
        if len(waiting) > most:
            work.outcome.requeue_after(0.05)
        return [trouble for trouble in work.outcome.troubles if trouble not in before]

    async def _do(self, work: PlannedWork, kind: type[Any], group: Sequence[Any]) -> None:
        match kind:
            case do.CreatePod:
                await self._pods.create(work, group)
            case do.PatchPod:
                await self._pods.patch(work, group)
            case do.DeletePod:
                await self._pods.remove(work, group)
            case do.OwnClaim:
                await each(group, lambda action: self._claims.own(work, action))
            case do.RestoreClaims:
                await each(group, lambda action: self._claims.restore(work, action))
            case do.DrainNodes:
                self._slurm.change_states(work, group)
            case do.WriteNodes:
                self._slurm.tell(work, group)
            case do.CreateRecords:
                self._records.create(work, group[0])
            case do.DeleteRecord:
                self._records.delete(work, group)
            case do.WriteReservation:
                self._records.write_reservation(work, group[0])
            case do.DeleteReservation:
                self._records.delete_reservation(work, group[0])
            case _:
                raise TypeError(f"no step carries out {kind.__name__}")

    async def _finalizers(
        self, work: PlannedWork, group: Sequence[do.AddFinalizer | do.RemoveFinalizer | do.RecordExternal]
    ) -> bool:
        """Change the finalizers, and write down where Slurm is; return whether both are as planned."""
        meta = work.nodeset.metadata
        if do.RemoveFinalizer(wellknown.FINALIZER_DRAIN) in group and not await self._lets_go(work):
            return False
        wanted = dict.fromkeys(meta.finalizers)
        metadata: dict[str, Any] = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        for action in group:
            if isinstance(action, do.AddFinalizer):
                wanted[action.name] = None
            elif isinstance(action, do.RemoveFinalizer):
                wanted.pop(action.name, None)
            else:
                value = wellknown.TRUE if action.external else None
                metadata["annotations"] = {wellknown.ANNOTATION_EXTERNAL_SLURM: value}
        body = {"metadata": {**metadata, "finalizers": [*wanted]}}
        try:
            answer = await self._client.patch(NodeSet, meta.name, meta.namespace, body, type=PatchType.MERGE)
        except KubeError as error:
            what = f"the finalizers of NodeSet {meta.name!r}"
            work.outcome.failed("change", what, error, Reason.SYNC_FINALIZER_FAILED)
            return False
        self._answered(answer)
        return True

    async def _lets_go(self, work: PlannedWork) -> bool:
        """Return whether Kubernetes may delete, or leave alone, whatever pods the NodeSet still has.

        Of one that is drained none must be left; of one that needs no drain none must be protected. The API
        server is asked for all pods, once in the life of a NodeSet, since some may be in no cache.
        """
        if finalizer.orphans(work.seen):
            return True
        meta = work.nodeset.metadata
        try:
            page = await self._client.list_all(Pod, meta.namespace)
        except KubeError as error:
            work.outcome.failed("list", f"the pods of namespace {meta.namespace!r}", error)
            return False
        why = finalizer.strays(meta.uid, page.items, page.bad)
        if not work.nodeset.deleting or finalizer.lets_go(work.seen):
            why = finalizer.still_protected(meta.uid, page.items)
        if why is not None:
            work.outcome.trouble(Reason.PODS_LEFT, why)
            work.outcome.requeue_after(_REQUEUE_SECONDS)
        return why is None


def _pause(work: PlannedWork) -> float:
    """Return for how long the next reconcile would have to wait in any case."""
    return work.state.pace.left(len(work.seen.workers), work.generation())


def _settling(work: PlannedWork) -> set[str]:
    """Return the pods whose nodes have just been moved."""
    seen, nodes = work.seen, work.state.nodes
    if not nodes.changing and not nodes.written:
        return set()
    names = {name for name in nodes.changing.keys() | nodes.written if settling(seen, nodes, name)}
    return {worker.uid for worker in seen.workers if worker.slurm_name in names} if names else set()


def _kind(action: do.Action) -> type[Any]:
    kind = type(action)
    return _TOGETHER.get(kind, kind)
