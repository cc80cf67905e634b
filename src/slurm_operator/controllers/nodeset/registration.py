"""Healthy workers that Slurm does not have.

A slurmd whose node slurmctld has forgotten does not register again by itself; only a restart helps. That is
a deletion like any other and as dangerous, so it happens late, one share of `maxUnavailable` at a time, and
not to pods that were lost with work on them (`policies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.controllers.nodeset.actions import Held, Note
from slurm_operator.controllers.nodeset.decisions import Allow, Cause, Hold, Wait
from slurm_operator.controllers.nodeset.policies import REGISTRATION_SECONDS, may_reregister

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.observation import Observation
    from slurm_operator.controllers.nodeset.scaling import Demand
    from slurm_operator.controllers.nodeset.sight import Sight


def register_again(seen: Observation, sight: Sight, demand: Demand, budget: int) -> list[Held]:
    """Let go healthy pods that Slurm has not listed for long, as many as may be out of service."""
    held = []
    for worker in demand.stay:
        if worker.uid in demand.going or not worker.healthy or sight.absent(worker.slurm_name) is None:
            continue
        decision = may_reregister(worker, sight, seen.wall, seen.nodeset.spec.min_ready_seconds)
        if isinstance(decision, Allow) and budget <= 0:
            decision = Hold(
                Wait.MAX_UNAVAILABLE,
                f"{worker.slurm_name} is not in Slurm, but no more workers may be out of service at once",
            )
        if isinstance(decision, Hold):
            held.append(Held(worker.name, worker.slurm_name, Cause.REGISTRATION, decision))
            demand.looks.append(REGISTRATION_SECONDS / 4)
            continue
        budget -= 1
        demand.going[worker.uid] = Cause.REGISTRATION
        text = f"Slurm node {worker.slurm_name} of pod {worker.name} is not registered"
        demand.notes.append(Note("SlurmNodeNotRegistered", "Delete", text, warning=True, pod=worker.name))
    return held
