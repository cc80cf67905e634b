"""Workers that Kubernetes or a person wants to go, whatever the NodeSet asks for.

Kubernetes does not remove a protected worker; it asks. What was asked for is carried out here: the node is
drained, and the operator deletes the pod when it is idle.

    a deletion       that was refused, recorded on the pod as a request; it expires (`api.removal`)
    an eviction      likewise. Its client tries again, by the name of the pod: were the pod deleted here, the
                     next try would meet the new pod of that name, and so on for ever. So the worker is
                     drained and loses its protection when it is idle (`evicting`), and is deleted here only
                     if the client has given up, and never on a cordoned node: there a drain comes back
    a disruption     the condition with which the scheduler or the taint manager announces a deletion; since
                     Kubernetes takes the condition back after some minutes, it is recorded as a request. The
                     taint manager announces once; its request holds for as long as the taint is there
    a taint          with the effect NoExecute, which the pod does not tolerate
    out of service   a node that a person has declared to run nothing
    a cordon         of the Kubernetes node, under a worker that Slurm does not have (`protection`). Not under
                     one that has yet to start: if it tolerates cordoned nodes, the next would be made at once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.api import removal, wellknown
from slurm_operator.controllers.nodeset.decide.actions import Cause, Note
from slurm_operator.objects import nodefit

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.scale import Demand
    from slurm_operator.controllers.nodeset.decide.slurm_state import Sight

_KUBERNETES: Final = "Kubernetes: "
# The taint manager, when the seconds for which a pod tolerates a taint are over.
_BY_TAINT: Final = f"{_KUBERNETES}DeletionByTaintManager"


def carry_out(seen: Observation, sight: Sight, demand: Demand) -> None:
    """Add the workers that are asked to go to those that go."""
    for worker in demand.stay:
        if worker.uid in demand.going or _untouched(seen, worker):
            continue
        asked = _asked(seen, worker)
        if asked is not None:
            _note(seen, worker, asked, demand)
        cause = _cause(seen, sight, worker, asked)
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
    """Say what was asked for, and look again when the request is about to mean something else."""
    if asked.at is not None and asked.live(seen.wall):
        end = removal.RETRY if asked.retried(seen.wall) else removal.EXPIRES
        demand.looks.append(max(1.0, (asked.at + end - seen.wall).total_seconds()))
    if not worker.cordoned:
        by = f" ({asked.by})" if asked.by else ""
        text = f"Pod {worker.name} is asked to go{by}: it is drained, and goes when it is idle"
        demand.notes.append(Note("RemovalRequested", "Drain", text, pod=worker.name))


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
    """Return the request that holds now: the recorded one, or a disruption that was announced later."""
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
    return asked.by == _BY_TAINT and node is not None and nodefit.driven_away(worker.pod, node, at_last=True)


def _cause(
    seen: Observation, sight: Sight, worker: Worker, asked: removal.RemovalRequest | None
) -> Cause | None:
    node = seen.nodes.get(worker.node) if worker.scheduled else None
    drains = node is not None and nodefit.cordoned(node)
    evicted = asked is not None and asked.by.startswith(removal.EVICTION)
    if asked is not None and not (evicted and (drains or asked.retried(seen.wall))):
        return Cause.REQUESTED
    if node is None:
        return None
    if sight.out_of_service(worker) or nodefit.driven_away(worker.pod, node):
        return Cause.NODE_TAINT
    if (
        sight.protects
        and drains
        and worker.started  # one that waits for its containers is evicted without asking a budget
        and sight.absent(worker.slurm_name) is not None
    ):
        return Cause.NODE_CORDON
    return None
