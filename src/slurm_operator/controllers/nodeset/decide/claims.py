"""The volume claims of workers: whose they are before a pod is deleted, and when a new pod must wait.

A pod owns its claims only while it is being scaled in, and only where the policy says so (`slurmd_claims`);
that it is cordoned or replaced is no reason to lose its data. The owner is in place before the pod is
deleted. A pod of the same name waits for claims that are still on their way out.

A claim that disappears while its pod waits to start is made again, owned as the policy says: without it the
pod would wait for ever. That of a pod which is scaled in, or whose NodeSet is deleted, stays gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    Defer,
    OwnClaim,
    RemovalCause,
    RestoreClaims,
)
from slurm_operator.objects import slurmd_claims
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.slurmd_identity import claim_identity_of

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker


def obstacle(seen: Observation, identity: str, pod_name: str) -> Defer | None:
    """Say why a pod cannot be made with its claims yet."""
    if not seen.claims:
        return None
    wanted = slurmd_claims.claim_names(seen.nodeset, identity).values()
    existing = [seen.claims[name] for name in wanted if name in seen.claims]
    leaving = slurmd_claims.leaving(seen.nodeset, pod_name, existing)
    if not leaving:
        return None
    return Defer(Reason.CLAIMS_PENDING, messages.claim_leaving(leaving[0]))


def own_claims(
    seen: Observation, worker: Worker, cause: RemovalCause | None
) -> tuple[list[OwnClaim], list[Defer]]:
    """Return what to change about the owners of a worker's claims, and who is in the way."""
    if not seen.claims:
        return [], []
    changes, conflicts = [], []
    for name in _names(seen, worker):
        claim = seen.claims.get(name)
        if claim is None:
            continue
        decided = slurmd_claims.ownership(
            seen.nodeset, claim, worker.pod, scaled_in=cause is RemovalCause.SCALE_IN
        )
        if decided.patch is not None:
            changes.append(OwnClaim(decided.patch))
        if decided.conflict is not None:
            other = f"{decided.conflict.kind} {decided.conflict.name}"
            conflicts.append(Defer(Reason.CLAIM_CONFLICT, messages.claim_conflict(name, other)))
    return changes, conflicts


def restore(seen: Observation, worker: Worker) -> list[RestoreClaims]:
    """Return the claims to make again for a pod that stays and has not started."""
    if worker.phase != "Pending" or not seen.nodeset.spec.volume_claim_templates:
        return []
    try:
        wanted = _names(seen, worker)
    except Unbuildable:
        return []  # said when a pod is made
    mounted = worker.pod.claims
    missing = tuple(name for name in wanted if name in mounted and name not in seen.claims)
    identity = claim_identity_of(seen.nodeset, worker.pod)
    return [RestoreClaims(worker.name, identity, missing)] if missing else []


def _names(seen: Observation, worker: Worker) -> tuple[str, ...]:
    nodeset, pod = seen.nodeset, worker.pod
    era = nodeset.metadata.generation
    return seen.memo.claim_names(worker.uid, pod, era, lambda: slurmd_claims.claims_of(nodeset, pod))
