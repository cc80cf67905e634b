"""Which workers of an older revision are replaced now.

Out of service at once may be `maxUnavailable` of the wanted workers, for whatever reason: missing, not ready,
not long enough ready, or taken out by this update. Old workers that do not serve anyway are replaced without
asking further. A worker that is already draining for the update stays chosen, so that each reconcile chooses
the same ones as the one before it, also after a crash.

Healthy workers that Slurm does not have.

A slurmd whose node slurmctld has forgotten does not register again by itself; only a restart helps. That is
a deletion like any other and as dangerous, so it happens late, one share of `maxUnavailable` at a time, and
not to pods that were lost with work on them (`deletion`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slurm_operator.api.reasons import Reason
from slurm_operator.api.updates import UpdateStrategyType
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    Allow,
    Blocked,
    Defer,
    Note,
    RemovalCause,
)
from slurm_operator.controllers.nodeset.decide.deletion import REGISTRATION_SECONDS, may_reregister
from slurm_operator.controllers.nodeset.decide.scale import marked, scale_in_order

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.scale import Demand
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState


def update(seen: Observation, slurm: SlurmState, demand: Demand) -> int:
    """Add the pods to replace to those that go; return how many more may be out of service."""
    candidates = [worker for worker in demand.stay if worker.uid not in demand.going]
    budget = max_unavailable(seen, demand.desired) - _unavailable(seen, candidates, demand.desired)
    kind = seen.nodeset.spec.update_strategy.type
    if kind == UpdateStrategyType.ON_DELETE:
        return max(0, budget)
    old = [worker for worker in candidates if worker.revision not in seen.revision.same]
    if slurm.budget is not None:
        # What goes now cannot be replaced: only what was chosen before goes on.
        old = [worker for worker in old if marked(worker, RemovalCause.UPDATE)]
    chosen = [worker for worker in old if not worker.healthy]
    healthy = [worker for worker in old if worker.healthy]
    if kind == UpdateStrategyType.SCHEDULED_UPDATE:
        chosen += [
            worker for worker in healthy if in_window(seen, slurm, worker) or _undecided(slurm, worker)
        ]
    else:
        begun = [worker for worker in healthy if marked(worker, RemovalCause.UPDATE)]
        picked = scale_in_order(begun, slurm, RemovalCause.UPDATE, max(0, budget))
        if len(picked) < budget:
            others = [worker for worker in healthy if not marked(worker, RemovalCause.UPDATE)]
            picked += scale_in_order(others, slurm, RemovalCause.UPDATE, budget - len(picked))
        chosen += picked
        budget -= len(picked)
    demand.going |= {worker.uid: RemovalCause.UPDATE for worker in chosen}
    fresh = [worker for worker in chosen if not marked(worker, RemovalCause.UPDATE)]
    if fresh:
        scheduled = kind == UpdateStrategyType.SCHEDULED_UPDATE
        reason, action = (
            (Reason.SCHEDULED_UPDATE, "ScheduledUpdate")
            if scheduled
            else (Reason.ROLLING_UPDATE, "RollingUpdate")
        )
        demand.notes.append(Note(reason, action, messages.replacing_old(len(fresh))))
    return max(0, budget)


def max_unavailable(seen: Observation, total: int) -> int:
    """Return how many workers may be out of service at once: at least one, or an update would never end."""
    value = seen.nodeset.spec.update_strategy.rolling_update.max_unavailable
    if isinstance(value, int):
        return max(1, value)
    number = value.removesuffix("%")
    if not (number.isascii() and number.isdecimal()):
        return 1
    share = math.ceil(total * int(number) / 100) if value.endswith("%") else int(number)
    return max(1, share)


def in_window(seen: Observation, slurm: SlurmState, worker: Worker) -> bool:
    """Return whether a worker's node is in the NodeSet's maintenance window."""
    node = slurm.node(worker.slurm_name)
    return (
        node is not None and "MAINTENANCE" in node.state and node.reservation == seen.nodeset.reservation_name
    )


def _undecided(slurm: SlurmState, worker: Worker) -> bool:
    """Return whether a worker was chosen when its node was last known: that counts while it is unknown."""
    return marked(worker, RemovalCause.UPDATE) and slurm.blind(worker.slurm_name) is not None


def _unavailable(seen: Observation, workers: list[Worker], desired: int) -> int:
    seconds = seen.nodeset.spec.min_ready_seconds
    serving = sum(
        # minReadySeconds is not for old workers: they were available long ago, or are about to be replaced.
        worker.available(seen.wall, seconds) if worker.revision in seen.revision.same else worker.healthy
        for worker in workers
    )
    return max(0, desired - serving)


def register_again(seen: Observation, slurm: SlurmState, demand: Demand, budget: int) -> list[Blocked]:
    """Let go healthy pods that Slurm has not listed for long, as many as may be out of service."""
    blocked = []
    for worker in demand.stay:
        if worker.uid in demand.going or not worker.healthy or slurm.absent(worker.slurm_name) is None:
            continue
        decision = may_reregister(worker, slurm, seen.wall, seen.nodeset.spec.min_ready_seconds)
        if isinstance(decision, Allow) and budget <= 0:
            decision = Defer(
                Reason.MAX_UNAVAILABLE,
                messages.no_more_unavailable(worker.slurm_name),
            )
        if isinstance(decision, Defer):
            blocked.append(Blocked(worker.name, worker.slurm_name, RemovalCause.REGISTRATION, decision))
            demand.requeue_after.append(REGISTRATION_SECONDS / 4)
            continue
        budget -= 1
        demand.going[worker.uid] = RemovalCause.REGISTRATION
        text = messages.replacing_unregistered(worker.name, worker.slurm_name)
        reason = Reason.SLURM_NODE_NOT_REGISTERED
        demand.notes.append(Note(reason, "Delete", text, warning=True, pod=worker.name))
    return blocked
