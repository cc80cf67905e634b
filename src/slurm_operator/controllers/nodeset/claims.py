"""The volume claims of workers: whose they are before a pod is deleted, and when a new pod must wait.

A pod owns its claims only while it is being scaled in, and only where the policy says so (`slurmd_claims`);
that it is cordoned or replaced is no reason to lose its data. The owner is in place before the pod is
deleted. A pod of the same name waits for claims that are still on their way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.controllers.nodeset.actions import Note, OwnClaim
from slurm_operator.controllers.nodeset.decisions import Cause, Hold, Wait
from slurm_operator.objects import slurmd_claims

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.observation import Observation, Worker


def obstacle(seen: Observation, identity: str, pod_name: str) -> Hold | None:
    """Say why a pod cannot be made with its claims yet."""
    if not seen.claims:
        return None
    wanted = slurmd_claims.claim_names(seen.nodeset, identity).values()
    existing = [seen.claims[name] for name in wanted if name in seen.claims]
    leaving = slurmd_claims.leaving(seen.nodeset, pod_name, existing)
    if not leaving:
        return None
    return Hold(Wait.CLAIMS_PENDING, f"claim {leaving[0]} of an earlier worker is still being deleted")


def own_claims(seen: Observation, worker: Worker, cause: Cause | None) -> tuple[list[OwnClaim], list[Note]]:
    """Return what to change about the owners of a worker's claims, and who is in the way."""
    if not seen.claims:
        return [], []
    changes, notes = [], []
    for name in slurmd_claims.claims_of(seen.nodeset, worker.pod):
        claim = seen.claims.get(name)
        if claim is None:
            continue
        decided = slurmd_claims.ownership(seen.nodeset, claim, worker.pod, scaled_in=cause is Cause.SCALE_IN)
        if decided.patch is not None:
            changes.append(OwnClaim(decided.patch))
        if decided.conflict is not None:
            text = f"Claim {name} is controlled by {decided.conflict.kind} {decided.conflict.name}"
            notes.append(Note("ConflictingController", "Info", text, warning=True))
    return changes, notes
