"""Which workers Kubernetes must not remove.

A worker with the label `pod-protect` is neither evicted, because of the budget, nor deleted, because of the
admission policy of the chart. Workers are created with it, so that it is there before slurmd can register,
and they lose it only while all of this is so:

    - a cordon, of the Kubernetes node or of the pod, asks for it;
    - the Slurm node is listed and drained, in lists that were asked for just before (`deletion.confirm`).

A node that Slurm does not list is no ground to give up the label: its slurmd may register at any moment, and
then nothing keeps work from it. Such a worker on a cordoned node is deleted instead (`carry_out`).

A worker gets the label back and loses its cordon before its node takes work again (`deletion.may_undrain`,
`cordon`): without the cordon no release of before can take effect any more. It gets the label at once when
its node is no longer known to be drained.

Workers that Kubernetes or a person wants to go, whatever the NodeSet asks for.

Kubernetes does not remove a protected worker; it asks. What was asked for is carried out here: the node is
drained, and the operator deletes the pod when it is idle.

    a deletion       that was refused, recorded on the pod as a request; it expires (`api.removal`)
    an eviction      likewise. Its client tries again, by the name of the pod: were the pod deleted here, the
                     next try would meet the new pod of that name, and so on for ever. So the worker is
                     drained and loses its protection when it is idle (`evicting`), and is deleted here only
                     if the client has given up, and never on a cordoned node: there a drain comes back
    a disruption     the condition with which the scheduler or the taint manager announces a deletion; since
                     Kubernetes takes the condition back after some minutes, it is recorded as a request. The
                     taint manager announces once; its request is valid for as long as the taint is there
    a taint          with the effect NoExecute, which the pod does not tolerate
    out of service   a node that a person has declared to run nothing
    a cordon         of the Kubernetes node, under a worker that Slurm does not have (above). Not under
                     one that has yet to start: if it tolerates cordoned nodes, the next would be made at once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.api import removal, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import Note, ReleasePod, RemovalCause
from slurm_operator.objects import node_fit

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.scale import Demand
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState


_KUBERNETES: Final = "Kubernetes: "
# The taint manager, when the seconds for which a pod tolerates a taint are over.
_BY_TAINT: Final = f"{_KUBERNETES}DeletionByTaintManager"


def wanted(worker: Worker, slurm: SlurmState, *, cordoned: bool) -> bool:
    """Return whether a worker must have the label; one that has it keeps it until it is released."""
    if not slurm.protects or worker.given_up:
        return False
    return worker.protected or not (cordoned and _released(worker, slurm))


def release(worker: Worker, slurm: SlurmState, *, cordoned: bool) -> ReleasePod | None:
    """Return how a worker that is asked to go loses its label, if its node is drained."""
    if not (cordoned and worker.protected and slurm.protects) or worker.given_up:
        return None
    if not worker.scheduled or slurm.absent(worker.slurm_name) is not None:
        return None
    if slurm.undrained(worker.slurm_name) is not None:
        return None
    return ReleasePod(worker.name, worker.uid, worker.slurm_name, worker.version)


def _released(worker: Worker, slurm: SlurmState) -> bool:
    """Return whether a worker without the label may go on without it."""
    name = worker.slurm_name
    if slurm.unheard(name):
        return True  # a process that has just started waits for Slurm's first answer
    return slurm.absent(name) is None and slurm.undrained(name) is None


def carry_out(seen: Observation, slurm: SlurmState, demand: Demand) -> None:
    """Add the workers that are asked to go to those that go."""
    for worker in demand.stay:
        if worker.uid in demand.going or _untouched(seen, worker):
            continue
        asked = _asked(seen, worker)
        if asked is not None:
            _note(seen, worker, asked, demand)
        cause = _cause(seen, slurm, worker, asked)
        if cause is not None:
            demand.going[worker.uid] = cause


def _untouched(seen: Observation, worker: Worker) -> bool:
    """Return whether nothing asks for a worker: no request, no disruption, no cordon and no taint."""
    if worker.request is not None or worker.disruption is not None:
        return False
    node = seen.nodes.get(worker.node)
    return node is None or not (node.spec.unschedulable or node.spec.taints)


def evicting(seen: Observation, worker: Worker) -> bool:
    """Return whether a worker is asked to go by a client that evicts it once it may."""
    asked = _asked(seen, worker)
    return asked is not None and asked.retried(seen.wall)


def _note(seen: Observation, worker: Worker, asked: removal.RemovalRequest, demand: Demand) -> None:
    """Say what was asked for, and requeue for the time when the request is about to mean something else."""
    if asked.at is not None and asked.live(seen.wall):
        end = removal.RETRY if asked.retried(seen.wall) else removal.EXPIRES
        demand.requeue_after.append(max(1.0, (asked.at + end - seen.wall).total_seconds()))
    if not worker.cordoned:
        text = messages.removal_requested(worker.name, asked.by)
        demand.notes.append(Note(Reason.REMOVAL_REQUESTED, "Drain", text, pod=worker.name))


def annotation(seen: Observation, worker: Worker) -> dict[str, str | None]:
    """Return the change of the recorded request: a disruption is recorded, an expired request removed."""
    if worker.request is None and worker.disruption is None:
        return {}
    asked = _asked(seen, worker)
    if asked is not None and asked != worker.request:
        at = asked.at or seen.wall
        return {wellknown.ANNOTATION_REMOVAL_REQUESTED: removal.text(at, asked.by)}
    if asked is None and worker.request is not None:
        return {wellknown.ANNOTATION_REMOVAL_REQUESTED: None}
    return {}


def _asked(seen: Observation, worker: Worker) -> removal.RemovalRequest | None:
    """Return the request that is valid now: the recorded one, or a disruption that was announced later."""
    known, found = worker.request, worker.disruption
    if found is not None:
        # Without fractions, as it is recorded.
        at = (found.last_transition_time or seen.wall).replace(microsecond=0)
        new = removal.RemovalRequest(at, f"{_KUBERNETES}{found.reason}")
        if known is None or (known.at is not None and known.at < at):
            known = new
    if known is None or known.live(seen.wall) or _still_tainted(seen, worker, known):
        return known
    return None


def _still_tainted(seen: Observation, worker: Worker, asked: removal.RemovalRequest) -> bool:
    """Return whether the taint is still there for which Kubernetes wanted to delete a worker."""
    node = seen.nodes.get(worker.node) if worker.scheduled else None
    return asked.by == _BY_TAINT and node is not None and node_fit.driven_away(worker.pod, node, at_last=True)


def _cause(
    seen: Observation, slurm: SlurmState, worker: Worker, asked: removal.RemovalRequest | None
) -> RemovalCause | None:
    node = seen.nodes.get(worker.node) if worker.scheduled else None
    drains = node is not None and node_fit.cordoned(node)
    evicted = asked is not None and asked.by.startswith(removal.EVICTION)
    if asked is not None and not (evicted and (drains or asked.retried(seen.wall))):
        return RemovalCause.REQUESTED
    if node is None:
        return None
    if slurm.out_of_service(worker) or node_fit.driven_away(worker.pod, node):
        return RemovalCause.NODE_TAINT
    if (
        slurm.protects
        and drains
        and worker.started  # one that waits for its containers is evicted without asking a budget
        and slurm.absent(worker.slurm_name) is not None
    ):
        return RemovalCause.NODE_CORDON
    return None
