"""Which workers of an older revision are replaced now.

Out of service at once may be `maxUnavailable` of the wanted workers, for whatever reason: missing, not ready,
not long enough ready, or taken out by this update. Old workers that do not serve anyway are replaced without
asking further. A worker that is already draining for the update stays chosen, so that each pass chooses the
same ones as the one before it, also after a crash.

Healthy workers that Slurm does not have.

A slurmd whose node slurmctld has forgotten does not register again by itself; only a restart helps. That is
a deletion like any other and as dangerous, so it happens late, one share of `maxUnavailable` at a time, and
not to pods that were lost with work on them (`deletion`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slurm_operator.api.updates import UpdateStrategyType
from slurm_operator.controllers.nodeset.decide.actions import Allow, Cause, Held, Hold, Note, Wait
from slurm_operator.controllers.nodeset.decide.deletion import REGISTRATION_SECONDS, may_reregister
from slurm_operator.controllers.nodeset.decide.scale import marked, scale_in_order

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.scale import Demand
    from slurm_operator.controllers.nodeset.decide.slurm_state import Sight


def update(seen: Observation, sight: Sight, demand: Demand) -> int:
    """Add the pods to replace to those that go; return how many more may be out of service."""
    candidates = [worker for worker in demand.stay if worker.uid not in demand.going]
    budget = max_unavailable(seen, demand.desired) - _unavailable(seen, candidates, demand.desired)
    kind = seen.nodeset.spec.update_strategy.type
    if kind == UpdateStrategyType.ON_DELETE:
        return max(0, budget)
    old = [worker for worker in candidates if worker.revision not in seen.revision.same]
    if sight.budget is not None:
        # What goes now cannot be replaced: only what was chosen before goes on.
        old = [worker for worker in old if marked(worker, Cause.UPDATE)]
    chosen = [worker for worker in old if not worker.healthy]
    healthy = [worker for worker in old if worker.healthy]
    if kind == UpdateStrategyType.SCHEDULED_UPDATE:
        chosen += [
            worker for worker in healthy if in_window(seen, sight, worker) or _undecided(sight, worker)
        ]
    else:
        ordered = sorted(
            scale_in_order(healthy, sight, Cause.UPDATE), key=lambda one: not marked(one, Cause.UPDATE)
        )
        picked = ordered[: max(0, budget)]
        chosen += picked
        budget -= len(picked)
    demand.going |= {worker.uid: Cause.UPDATE for worker in chosen}
    begun = [worker for worker in chosen if not marked(worker, Cause.UPDATE)]
    if begun:
        scheduled = kind == UpdateStrategyType.SCHEDULED_UPDATE
        reason, action = (
            ("Scheduled Update", "ScheduledUpdate") if scheduled else ("RollingUpdate", "RollingUpdate")
        )
        demand.notes.append(Note(reason, action, f"Replacing {len(begun)} pods of an older revision"))
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


def in_window(seen: Observation, sight: Sight, worker: Worker) -> bool:
    """Tell whether a worker's node is in the NodeSet's maintenance window."""
    node = sight.node(worker.slurm_name)
    return (
        node is not None and "MAINTENANCE" in node.state and node.reservation == seen.nodeset.reservation_name
    )


def _undecided(sight: Sight, worker: Worker) -> bool:
    """Tell whether a worker was chosen when its node was last known: while it is not, no mind is changed."""
    return marked(worker, Cause.UPDATE) and sight.blind(worker.slurm_name) is not None


def _unavailable(seen: Observation, workers: list[Worker], desired: int) -> int:
    seconds = seen.nodeset.spec.min_ready_seconds
    serving = sum(
        # minReadySeconds is not for old workers: they were available long ago, or are about to be replaced.
        worker.available(seen.wall, seconds) if worker.revision in seen.revision.same else worker.healthy
        for worker in workers
    )
    return max(0, desired - serving)


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
