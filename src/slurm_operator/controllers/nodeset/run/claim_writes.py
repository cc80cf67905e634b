"""The volume claims of workers: made before their pod, given their owners before the pod goes.

A volume claim that is being deleted cannot be used again, and a pod that names it would wait for a volume
that is never provisioned; so its worker waits. One that exists under the right name without our labels is
regarded as created by a user for the worker: it gets the labels, by which it is watched from then on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import AlreadyExists, KubeError, NotFound
from slurm_operator.kube.models.kinds import PersistentVolumeClaim
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.objects import labels, slurmd_claims
from slurm_operator.objects.slurmd_identity import SLURMD

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.actions import OwnClaim, RestoreClaims
    from slurm_operator.controllers.nodeset.run.reconcile_state import PlannedWork
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.runtime.events import EventRecorder
    from slurm_operator.objects.desired import Manifest
    from slurm_operator.objects.slurmd_identity import WorkerIdentity

# The end of a claim that is not labelled as ours is no event.
_REQUEUE_SECONDS = 5.0


class ClaimWriter:
    """Makes claims and gives them owners."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._client = client
        self._events = events

    async def prepare(self, work: PlannedWork, worker: WorkerIdentity) -> bool:
        """Make the claims of a worker that do not exist; return whether its pod can use all of them."""
        nodeset = work.nodeset
        if not nodeset.spec.volume_claim_templates:
            return True
        for manifest in slurmd_claims.claims(nodeset, worker.claim_identity):
            name = manifest["metadata"]["name"]
            if name in work.seen.claims:
                continue
            try:
                if not await self._make(work, worker.name, manifest):
                    return False
            except KubeError as error:
                work.outcome.failed("create", f"PVC {name!r}", error)
                return False
        return True

    async def restore(self, work: PlannedWork, action: RestoreClaims) -> None:
        """Make the claims again that disappeared before a pod started."""
        for manifest in slurmd_claims.claims(work.nodeset, action.identity):
            name = manifest["metadata"]["name"]
            if name not in action.names:
                continue
            what = write_messages.lost_claim(name, action.pod)
            try:
                await self._make(work, action.pod, manifest, text=write_messages.claim_restored(what))
            except KubeError as error:
                work.outcome.failed("create", what, error)
                text = write_messages.failed("create", what, describe(error))
                self._events.event(work.nodeset, "Warning", Reason.FAILED_CREATE, "Create", text)

    async def _make(self, work: PlannedWork, pod_name: str, manifest: Manifest, *, text: str = "") -> bool:
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        try:
            made = await self._client.create(PersistentVolumeClaim, manifest)
        except AlreadyExists:
            live = await self._client.get(PersistentVolumeClaim, name, namespace)
        else:
            work.state.claims.made(made, asyncio.get_running_loop().time())
            if text:
                self._events.event(work.nodeset, "Normal", Reason.SUCCESSFUL_CREATE, "Create", text, made)
            return True
        if slurmd_claims.leaving(work.nodeset, pod_name, [live]):
            work.outcome.requeue_after(_REQUEUE_SECONDS)
            return False
        wanted = labels.selector_labels(SLURMD, work.nodeset.metadata.name)
        if not wanted.items() <= live.metadata.labels.items():
            body = {"metadata": {"uid": live.metadata.uid, "labels": wanted}}
            given = await self._client.patch(
                PersistentVolumeClaim, name, namespace, body, type=PatchType.MERGE
            )
            work.state.claims.made(given, asyncio.get_running_loop().time())
        return True

    async def own(self, work: PlannedWork, action: OwnClaim) -> None:
        """Give a claim other owners, if it is still the one that was observed."""
        patch, namespace = action.patch, work.nodeset.metadata.namespace
        try:
            answer = await self._client.patch(
                PersistentVolumeClaim, patch.claim, namespace, patch.body, type=PatchType.MERGE
            )
        except NotFound:
            return
        except KubeError as error:
            work.outcome.failed("set the owner of", f"PVC {patch.claim!r}", error)
        else:
            work.state.claims.changed(answer)
