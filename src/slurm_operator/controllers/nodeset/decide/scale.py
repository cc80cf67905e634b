"""How many workers there should be, and which ones go: numbered workers.

Numbers are filled from below; a pod keeps its number until it is gone, also while it terminates, because its
name and its volumes are taken until then. So a replacement comes under the same name, and nothing is created
for a pod that is only on its way out. Which pods go is decided by `scale`, not by number: the numbers of a
set may have gaps.

Creating needs no answer from Slurm.

Which pod goes first.

The order is that of the reference, with three words put in. A pod on which no job runs goes before a busy
one: it is gone at once. A pod with a request for its removal goes before others. Among the busy ones, a pod
that this operator has already begun to drain for the same cause goes first: work has stopped coming to it,
and a change of mind would lose that.

How long a worker whose pods keep ending waits for its next pod.

The kubelet restarts containers that end. A pod ends as a whole when a kubelet evicts or refuses it, or its
node shuts down, and its replacement may end the same way. So each pod that follows comes later: the pause
doubles from a second to a quarter of an hour, for each worker by itself, and starts anew when a pod has run
for ten minutes.

The number of pods that ended in a row is an annotation of the pod that follows them, which costs no write and
survives a restart of the operator. Between the deletion of a pod and the creation of the next one only the
process knows it; an operator that ends right then starts with the first pause.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    CreatePod,
    Defer,
    Note,
    RemovalCause,
)
from slurm_operator.controllers.nodeset.decide.claims import obstacle
from slurm_operator.controllers.nodeset.decide.deletion import read_deadline
from slurm_operator.controllers.nodeset.decide.name_conflicts import name_conflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState

# A pod that gives up its name is heard of, but not a NodeSet that does not ask for a name any more.
NAME_TAKEN_SECONDS: Final = 30.0
# What stands in the way of the budget may go without an event.
BUDGET_SECONDS: Final = 30.0
# Events about pods to create, which are not recorded while none can be created.
CREATING: Final = frozenset({Reason.SCALING_UP, Reason.RESUMING})
# As many as take some ten seconds; the next portion follows when the result of this one was observed.
CREATES_PER_RECONCILE: Final = 1000
MORE_CREATES_SECONDS: Final = 1.0


@dataclass(slots=True)
class Demand:
    """Which pods are wanted, and why others must be removed."""

    desired: int
    stay: list[Worker] = field(default_factory=list)
    """Pods that are of the right kind and number; an update may still replace them."""
    going: dict[str, RemovalCause] = field(default_factory=dict)
    """UIDs of the pods that must be removed, and why; without those that terminate already."""
    creates: list[CreatePod] = field(default_factory=list)
    waits: list[Defer] = field(default_factory=list)
    requeue_after: list[float] = field(default_factory=list)
    """After how many seconds to reconcile again, whatever happens until then."""
    notes: list[Note] = field(default_factory=list)
    unfinished: bool = False
    """More pods are to be created than one reconcile creates."""


def numbered(seen: Observation, slurm: SlurmState) -> Demand:
    """Decide about numbered workers."""
    nodeset = seen.nodeset
    replicas, mode = nodeset.wanted_replicas, nodeset.spec.scaling_mode
    demand = Demand(replicas)
    same = [worker for worker in seen.workers if worker.mode == mode]
    if len(same) < len(seen.workers):
        leave_other_mode(seen, demand)

    active = [worker for worker in same if worker.active]
    excess = len(active) - replicas
    if excess > 0:
        for worker in scale_in_order(active, slurm, RemovalCause.SCALE_IN, excess):
            demand.going[worker.uid] = RemovalCause.SCALE_IN
    demand.stay = [worker for worker in active if worker.uid not in demand.going]
    replace_finished(seen, demand.stay, demand)
    leave_lost_pins(seen, demand)

    if len(same) < replicas:
        present = {worker.ordinal for worker in seen.workers}
        free = (ordinal for ordinal in itertools.count() if ordinal not in present)
        create_numbered(seen, demand, itertools.islice(free, replicas - len(same)))
    if demand.creates:
        message = messages.creating_to_reach(len(demand.creates), replicas)
        demand.notes.append(Note(Reason.SCALING_UP, "ScaleUp", message))
    return demand


def create_numbered(seen: Observation, demand: Demand, ordinals: Iterable[int]) -> None:
    """Add the creation of numbered workers, as far as nothing is in the way."""
    nodeset = seen.nodeset
    others = {
        worker.slurm_name: worker
        for worker in seen.workers
        if worker.mode != nodeset.spec.scaling_mode and not worker.finished
    }
    for ordinal in ordinals:
        if full(demand):
            break
        name = nodeset.pod_name(ordinal)
        create = CreatePod(name, ordinal, pin=_pin(seen, ordinal), failures=seen.failures.get(name, 0))
        hostname = nodeset.pod_hostname(ordinal)
        blocked = name_in_use(hostname, others) or obstacle(seen, nodeset.padded(ordinal), create.name)
        if (foreign := name_conflict(seen, hostname)) is not None:
            demand.waits.append(foreign)
            demand.requeue_after.append(NAME_TAKEN_SECONDS)
        elif blocked is None:
            demand.creates.append(create)
        else:
            demand.waits.append(blocked)
            demand.requeue_after.append(5.0)


def full(demand: Demand) -> bool:
    """Return whether this reconcile creates no more pods, and have the next one follow soon."""
    if len(demand.creates) < CREATES_PER_RECONCILE:
        return False
    demand.unfinished = True
    demand.requeue_after.append(MORE_CREATES_SECONDS)
    return True


def defer_creates(demand: Demand, wait: Defer) -> None:
    """Create no pods, because the budget that would protect them is not in place."""
    demand.creates.clear()
    demand.unfinished = False
    demand.notes = [note for note in demand.notes if note.reason not in CREATING]
    demand.waits.append(wait)
    demand.requeue_after.append(BUDGET_SECONDS)


def name_in_use(name: str, users: Mapping[str, Worker]) -> Defer | None:
    """Say why a worker cannot be made under a name in Slurm: two slurmd of one name fight for the node."""
    user = users.get(name)
    if user is None:
        return None
    return Defer(Reason.NAME_IN_USE, messages.name_in_use(name, user.name))


def leave_other_mode(seen: Observation, demand: Demand) -> None:
    """Let go the pods that were made under the other scaling mode."""
    for worker in seen.workers:
        if worker.active and worker.mode != seen.nodeset.spec.scaling_mode:
            demand.going[worker.uid] = RemovalCause.SCALING_MODE


def replace_finished(seen: Observation, workers: Iterable[Worker], demand: Demand) -> None:
    """Let go the pods that have ended, each after a pause (`scale`)."""
    for worker in workers:
        if not worker.finished or worker.uid in demand.going:
            continue
        due = next_try(worker, seen.wall)
        if due <= seen.wall:
            demand.going[worker.uid] = RemovalCause.FINISHED
            if seen.daemon and not marked(worker, RemovalCause.FINISHED):
                demand.notes.append(_daemon_ended(worker))
            continue
        times = failures(worker, seen.wall)
        demand.waits.append(Defer(Reason.BACKING_OFF, messages.backing_off(worker.name, times, due)))
        demand.requeue_after.append((due - seen.wall).total_seconds())


def _daemon_ended(worker: Worker) -> Note:
    """Return the event of the Slinky slurm-operator about a pod of a Kubernetes node that has ended."""
    succeeded = worker.phase == "Succeeded"
    reason = Reason.SUCCEEDED_DAEMON_POD if succeeded else Reason.FAILED_DAEMON_POD
    text = messages.replacing_ended(worker.name, worker.node, succeeded=succeeded)
    return Note(reason, "Info", text, warning=not succeeded, pod=worker.name)


def leave_lost_pins(seen: Observation, demand: Demand) -> None:
    """Let go the pods that wait for a Kubernetes node which is gone, or is not one for them any more."""
    for worker in demand.stay:
        if not worker.scheduled and worker.node and worker.uid not in demand.going:
            node = seen.nodes.get(worker.node)
            if node is None or not seen.fit.suits(node):
                demand.going[worker.uid] = RemovalCause.NODE_UNFIT


def _pin(seen: Observation, ordinal: int) -> str:
    """Return the Kubernetes node to which a number returns, if that node still fits."""
    if not seen.nodeset.spec.pin_to_node:
        return ""
    name = (seen.nodeset.status.ordinal_to_node or {}).get(str(ordinal), "")
    node = seen.nodes.get(name)
    return name if node is not None and seen.fit.suits(node) else ""


_PHASES: Final = {"Failed": 0, "Succeeded": 0, "Pending": 1, "Unknown": 2, "": 2, "Running": 3}
_INT32: Final = 2**31
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def scale_in_order(
    workers: Iterable[Worker], slurm: SlurmState, cause: RemovalCause, most: int | None = None
) -> list[Worker]:
    """Return pods in the order in which they go, only so many if that is given.

    Thousands of workers differ in little else than their number, so groups of equal ones are put in order
    first, and then those of the groups that are needed.
    """
    groups: defaultdict[tuple[Any, ...], list[Worker]] = defaultdict(list)
    for worker in workers:
        groups[_rank(worker, slurm, cause)].append(worker)
    found: list[Worker] = []
    for rank in sorted(groups):
        if most is not None and len(found) >= most:
            break
        found += sorted(groups[rank], key=_rank_among_equals)
    return found[:most]


def deletion_cost(worker: Worker) -> int:
    """Return what a person says that the loss of a pod costs; zero if it cannot be read."""
    text = worker.annotations.get(wellknown.ANNOTATION_POD_DELETION_COST)
    if text is None:
        return 0
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or (digits != "0" and digits.startswith("0")):
        return 0
    cost = int(text)
    return cost if -_INT32 <= cost < _INT32 else 0


def marked(worker: Worker, cause: RemovalCause) -> bool:
    """Return whether the operator has cordoned a pod for a cause."""
    return worker.cordoned and worker.annotations.get(wellknown.ANNOTATION_POD_CORDON_BY) == cause


def _rank(worker: Worker, slurm: SlurmState, cause: RemovalCause) -> tuple[Any, ...]:
    busy = slurm.busy(worker.slurm_name)
    begun = marked(worker, cause)
    # While it is unknown which nodes are busy, draining workers stay first: an outage changes no choice.
    idle = busy is False or (busy is None and begun)
    return (
        worker.scheduled,
        _PHASES.get(worker.phase, 2),
        worker.ready,
        not idle,
        worker.request is None,
        deletion_cost(worker),
        not begun,
        read_deadline(worker) or _EPOCH,
        not worker.cordoned,
    )


def _rank_among_equals(worker: Worker) -> tuple[Any, ...]:
    ready_since = worker.ready_since or datetime.max.replace(tzinfo=UTC)
    return (
        -(worker.ordinal if worker.ordinal is not None else _INT32),
        -(ready_since - _EPOCH).total_seconds(),
        -(worker.created - _EPOCH).total_seconds(),
        worker.name,
    )


# The bounds of the Slinky slurm-operator.
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 900.0
# As long as a container must run before a kubelet forgets that it crashed.
STAYED_UP_SECONDS: Final = 600.0
# More make no difference: 2^10 seconds are longer than the longest pause.
_MOST: Final = 1000


def pause_seconds(failures: int) -> float:
    """Return how long a worker waits after so many pods that ended in a row."""
    return min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(max(0, failures - 1), 30))


def failures(worker: Worker, wall: datetime) -> int:
    """Return how many pods of a worker have ended in a row, with this one, which has."""
    if _lasted(worker, wall) >= STAYED_UP_SECONDS:
        return 1
    text = worker.annotations.get(wellknown.ANNOTATION_POD_FAILURES, "")
    before = int(text) if text.isascii() and text.isdecimal() and len(text) < len(str(_MOST)) else 0
    return min(_MOST - 1, before + 1)


def next_try(worker: Worker, wall: datetime) -> datetime:
    """Return when a pod that has ended is replaced."""
    return _end(worker, wall) + timedelta(seconds=pause_seconds(failures(worker, wall)))


def _end(worker: Worker, wall: datetime) -> datetime:
    """Return when a pod ended; its creation if that is unknown, or in the future by another clock."""
    end = worker.finished_at
    return end if end is not None and end <= wall else worker.created


def _lasted(worker: Worker, wall: datetime) -> float:
    """Return for how many seconds containers of a pod that has ended ran."""
    ends = [
        one.state.terminated
        for one in worker.pod.status.container_statuses
        if one.state is not None and one.state.terminated is not None
    ]
    if not ends:
        return 0.0
    began = min((one.started_at or worker.created for one in ends), default=worker.created)
    return (_end(worker, wall) - began).total_seconds()
