"""How many workers there should be, and which ones go: numbered workers.

Numbers are filled from below; a pod keeps its number until it is gone, also while it terminates, because its
name and its volumes are taken until then. So a replacement comes under the same name, and nothing is created
for a pod that is only on its way out. Which pods go is decided by `order`, not by number: the numbers of a
set may have gaps.

Creating needs no answer from Slurm.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.nodeset import recreation
from slurm_operator.controllers.nodeset.actions import CreatePod, Note
from slurm_operator.controllers.nodeset.claims import obstacle
from slurm_operator.controllers.nodeset.decisions import Cause, Hold, Wait
from slurm_operator.controllers.nodeset.neighbours import taken
from slurm_operator.controllers.nodeset.order import marked, scale_in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.sight import Sight

# A pod that gives up its name is heard of, but not a NodeSet that does not ask for a name any more.
NAME_TAKEN_SECONDS: Final = 30.0
# What stands in the way of the budget may go without an event.
BUDGET_SECONDS: Final = 30.0
SCALING_UP: Final = "ScalingUp"
# As many as take some ten seconds; the next portion follows after a look at what became of this one.
CREATES_PER_RECONCILE: Final = 1000
MORE_CREATES_SECONDS: Final = 1.0


@dataclass(slots=True)
class Demand:
    """Which pods are wanted, and why others have to go."""

    desired: int
    stay: list[Worker] = field(default_factory=list)
    """Pods that are of the right kind and number; an update may still replace them."""
    going: dict[str, Cause] = field(default_factory=dict)
    """UIDs of the pods that have to go, and why; without those that terminate already."""
    creates: list[CreatePod] = field(default_factory=list)
    waits: list[Hold] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    """In how many seconds another look is wanted, whatever happens until then."""
    notes: list[Note] = field(default_factory=list)


def numbered(seen: Observation, sight: Sight) -> Demand:
    """Decide about numbered workers."""
    nodeset = seen.nodeset
    replicas = nodeset.wanted_replicas
    demand = Demand(replicas)
    same = [worker for worker in seen.workers if worker.mode == nodeset.spec.scaling_mode]
    leave_other_mode(seen, demand)

    active = [worker for worker in same if worker.active]
    excess = len(active) - replicas
    if excess > 0:
        for worker in scale_in_order(active, sight, Cause.SCALE_IN)[:excess]:
            demand.going[worker.uid] = Cause.SCALE_IN
    demand.stay = [worker for worker in active if worker.uid not in demand.going]
    replace_finished(seen, demand.stay, demand)
    _leave_lost_pins(seen, demand)

    present = {worker.ordinal for worker in seen.workers}
    free = (ordinal for ordinal in itertools.count() if ordinal not in present)
    others = {
        worker.slurm_name: worker
        for worker in seen.workers
        if worker.mode != nodeset.spec.scaling_mode and not worker.finished
    }
    for ordinal in itertools.islice(free, max(0, replicas - len(same))):
        if full(demand):
            break
        name = nodeset.pod_name(ordinal)
        create = CreatePod(name, ordinal, pin=_pin(seen, ordinal), failures=seen.failures.get(name, 0))
        hostname = nodeset.pod_hostname(ordinal)
        blocked = name_in_use(hostname, others) or obstacle(seen, nodeset.padded(ordinal), create.name)
        if (foreign := taken(seen, hostname)) is not None:
            demand.waits.append(foreign)
            demand.looks.append(NAME_TAKEN_SECONDS)
        elif blocked is None:
            demand.creates.append(create)
        else:
            demand.waits.append(blocked)
            demand.looks.append(5.0)
    if demand.creates:
        message = f"Creating {len(demand.creates)} pods to have {replicas}"
        demand.notes.append(Note("ScalingUp", "ScaleUp", message))
    return demand


def full(demand: Demand) -> bool:
    """Return whether this reconcile creates no more pods, and have the next one follow soon."""
    if len(demand.creates) < CREATES_PER_RECONCILE:
        return False
    demand.looks.append(MORE_CREATES_SECONDS)
    return True


def hold_creates(demand: Demand, hold: Hold) -> None:
    """Make no pods, because the budget that would protect them is not in place."""
    demand.creates.clear()
    demand.notes = [note for note in demand.notes if note.reason != SCALING_UP]
    demand.waits.append(hold)
    demand.looks.append(BUDGET_SECONDS)


def name_in_use(name: str, users: Mapping[str, Worker]) -> Hold | None:
    """Say why a worker cannot be made under a name in Slurm: two slurmd of one name fight for the node."""
    user = users.get(name)
    if user is None:
        return None
    return Hold(Wait.NAME_IN_USE, f"pod {user.name} is {name} in Slurm until it is gone")


def leave_other_mode(seen: Observation, demand: Demand) -> None:
    """Let go the pods that were made under the other scaling mode."""
    for worker in seen.workers:
        if worker.active and worker.mode != seen.nodeset.spec.scaling_mode:
            demand.going[worker.uid] = Cause.SCALING_MODE


def replace_finished(seen: Observation, workers: Iterable[Worker], demand: Demand) -> None:
    """Let go the pods that have ended, each after a pause (`recreation`)."""
    for worker in workers:
        if not worker.finished or worker.uid in demand.going:
            continue
        due = recreation.next_try(worker, seen.wall)
        if due <= seen.wall:
            demand.going[worker.uid] = Cause.FINISHED
            if seen.daemon and not marked(worker, Cause.FINISHED):
                demand.notes.append(_daemon_ended(worker))
            continue
        times = recreation.failures(worker, seen.wall)
        often = "once" if times == 1 else f"{times} times in a row"
        text = f"pod {worker.name} has ended {often}; it is replaced at {due:%Y-%m-%dT%H:%M:%SZ}"
        demand.waits.append(Hold(Wait.BACKING_OFF, text))
        demand.looks.append((due - seen.wall).total_seconds())


def _daemon_ended(worker: Worker) -> Note:
    """Return the event of the Slinky slurm-operator about a pod of a Kubernetes node that has ended."""
    where = f"pod {worker.name} on Kubernetes node {worker.node}"
    if worker.phase == "Succeeded":
        return Note("SucceededDaemonPod", "Info", f"Replacing {where}, which has succeeded", pod=worker.name)
    text = f"Replacing {where}, which has failed"
    return Note("FailedDaemonPod", "Info", text, warning=True, pod=worker.name)


def _leave_lost_pins(seen: Observation, demand: Demand) -> None:
    """Let go the pods that wait for a Kubernetes node which is gone, or is not one for them any more."""
    for worker in demand.stay:
        if not worker.scheduled and worker.node and worker.uid not in demand.going:
            node = seen.nodes.get(worker.node)
            if node is None or not seen.fit.suits(node):
                demand.going[worker.uid] = Cause.NODE_UNFIT


def _pin(seen: Observation, ordinal: int) -> str:
    """Return the Kubernetes node to which a number returns, if that node still fits."""
    if not seen.nodeset.spec.pin_to_node:
        return ""
    name = (seen.nodeset.status.ordinal_to_node or {}).get(str(ordinal), "")
    node = seen.nodes.get(name)
    return name if node is not None and seen.fit.suits(node) else ""
