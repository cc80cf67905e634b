"""Which nodes must not take new work, and which drains of ours to take back.

Four things keep work away from a worker: it is pending removal, its Kubernetes node is cordoned, a client
tries to evict it, or a person has put the annotation `pod-cordon` on it. For the first three the operator
sets that annotation itself, and a second one beside it that says why. So a cordon without the second is a
person's: Slurm is told, and the annotation stays until that person removes it.

Cordons of the Go operator have no second annotation. They are recognised by what it wrote into Slurm, which
is never written over; what cannot be recognised is taken for a person's.

The drain follows the annotation in both directions, and neither needs the other to have been written by this
process: a worker with no cause for a cordon, whose node carries a drain of ours, is undrained, no matter
which process drained it, and before or after which crash. A drain of ours keeps the reason that it has. Where
pods share a node in Slurm, one that must not get work outweighs one that may.

Nodes that are down although a new slurmd serves them.

A pod that ends takes its node down, and so does slurmctld with a node that falls silent. When a slurmd
registers, Slurm lifts that only with `ReturnToService=2`; by default an administrator has to resume the node,
in Kubernetes after every update. So the node is resumed here, on three conditions: what took it down was a
pod of ours or slurmctld's own "Not responding"; its slurmd was started after that, by Slurm's clock, so that
a terminating pod is never given work; and there is no cause to keep the node drained, nor a drain by another
client. As always before a node gets work, its pod must be protected.

A resume lifts a drain as well. It is sent instead of an undrain where both are due, since an undrain would
leave a reason that is younger than the slurmd.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages, protection
from slurm_operator.controllers.nodeset.decide.actions import (
    Allow,
    Blocked,
    Defer,
    DrainNodes,
    Note,
    RemovalCause,
    ResumeNodes,
    UndrainNodes,
    drain_reason,
)
from slurm_operator.controllers.nodeset.decide.deletion import foreign_drain, may_undrain
from slurm_operator.controllers.nodeset.decide.slurm_state import draining, failing
from slurm_operator.objects import node_fit
from slurm_operator.slurm.decide.node_changes import downed_by_us, powering_up, sanitise

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from slurm_operator.controllers.nodeset.decide.actions import Action
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
    from slurm_operator.kube.models.kinds import Node
    from slurm_operator.slurm.model.records import Node as SlurmNode

_GO_REASON: Final = re.compile(
    r"Pod \(.+\) is pending termination for scale-in|Node \(.+\) was cordoned, Pod \(.+\) must be cordoned"
)


class Author(Enum):
    """Who has cordoned a pod."""

    NONE = "none"
    OPERATOR = "operator"
    PERSON = "person"


@dataclass(slots=True)
class Changes:
    """Annotations to change on one pod; None removes. `guarded`: only if the pod has not changed since."""

    annotations: dict[str, str | None] = field(default_factory=dict)
    guarded: bool = False


@dataclass(slots=True)
class Cordons:
    """What to do about cordons and drains."""

    changes: dict[str, Changes] = field(default_factory=dict)
    """By the UID of the pod."""
    actions: list[Action] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def author(seen: Observation, slurm: SlurmState, worker: Worker) -> Author:
    """Return who has cordoned a pod."""
    if not worker.cordoned:
        return Author.NONE
    if worker.annotations.get(wellknown.ANNOTATION_POD_CORDON_BY):
        return Author.OPERATOR
    if pod_reason(worker) or not slurm.ours(worker.slurm_name):
        return Author.PERSON
    slurm_node = slurm.node(worker.slurm_name)
    said = "" if slurm_node is None else slurm_node.reason.removeprefix(wellknown.REASON_PREFIX)
    node = seen.nodes.get(worker.node)
    spoken = "" if node is None else spoken_reason(seen, node)
    by_operator = _GO_REASON.fullmatch(said) or (spoken and said == spoken)
    return Author.OPERATOR if by_operator else Author.PERSON


def spoken_reason(seen: Observation, node: Node) -> str:
    """Return why a Kubernetes node was cordoned, as its annotation or its conditions say; or nothing."""
    text = sanitise(
        node.metadata.annotations.get(wellknown.ANNOTATION_NODE_CORDON_REASON, ""), wellknown.MAX_NODE_REASON
    )
    if text:
        return text
    found = (node.condition(kind) for kind in seen.propagated)
    said = [f"({one.reason}: {one.message})" for one in found if one is not None and one.status == "True"]
    return sanitise("; ".join(said))


def pod_reason(worker: Worker) -> str:
    """Return why a user cordoned a pod, as its annotation says; or nothing."""
    text = worker.annotations.get(wellknown.ANNOTATION_POD_CORDON_REASON, "")
    return sanitise(text, wellknown.MAX_NODE_REASON)


def cordons(
    seen: Observation, slurm: SlurmState, workers: Iterable[Worker], going: dict[str, RemovalCause]
) -> Cordons:
    """Decide about all pods that stay for now; `going` has those pending removal, by UID."""
    found = Cordons()
    sharing: defaultdict[str, list[tuple[Worker, RemovalCause | None]]] = defaultdict(list)
    for worker in _concerned(seen, slurm, workers, going):
        who = author(seen, slurm, worker)
        cause = _cause(seen, worker, who, going)
        _annotate(worker, who, cause, found)
        sharing[worker.slurm_name].append((worker, cause))
    drains: defaultdict[str, list[str]] = defaultdict(list)
    unwanted = {name for name, users in sharing.items() if any(cause is not None for _, cause in users)}
    # One that goes right now is not among those that stay, and its node must not get work before it is gone.
    unwanted |= {worker.slurm_name for worker in seen.workers if worker.active and worker.uid in going}
    resumes = returned(slurm, seen.workers, unwanted)
    undrains = []
    for name, users in sharing.items():
        reasons = [(worker, cause) for worker, cause in users if cause is not None]
        if reasons:
            text = _drain(seen, slurm, *reasons[0], going, found)
            if text is not None:
                drains[text].append(name)
        elif (
            name not in resumes and name not in unwanted and _undrain(slurm, [one for one, _ in users], found)
        ):
            undrains.append(name)
    found.actions += [DrainNodes(text, tuple(sorted(some))) for text, some in sorted(drains.items())]
    if undrains:
        found.actions.append(UndrainNodes(tuple(sorted(undrains))))
    if resumes:
        found.actions.append(ResumeNodes(tuple(resumes)))
    return found


def _concerned(
    seen: Observation, slurm: SlurmState, workers: Iterable[Worker], going: dict[str, RemovalCause]
) -> list[Worker]:
    """Return the workers about which there is anything to decide, and those that share a node with one."""
    # What Slurm powers down needs no drain.
    every = [worker for worker in workers if going.get(worker.uid) is not RemovalCause.POWERED_DOWN]
    cordoned = {name for name, node in seen.nodes.items() if node_fit.cordoned(node)}
    nodes = {
        worker.slurm_name
        for worker in every
        if worker.uid in going
        or worker.request is not None
        or wellknown.ANNOTATION_POD_CORDON in worker.annotations
        or wellknown.ANNOTATION_POD_CORDON_BY in worker.annotations
        or worker.node in cordoned
        or ((node := slurm.node(worker.slurm_name)) is not None and draining(node))
    }
    return [worker for worker in every if worker.slurm_name in nodes] if nodes else []


def _cause(
    seen: Observation, worker: Worker, who: Author, going: dict[str, RemovalCause]
) -> RemovalCause | None:
    if worker.uid in going:
        return going[worker.uid]
    node = seen.nodes.get(worker.node)
    if node is not None and node_fit.cordoned(node):
        return RemovalCause.NODE_CORDON
    if protection.evicting(seen, worker):
        return RemovalCause.REQUESTED
    return RemovalCause.POD_CORDON if who is Author.PERSON else None


def _annotate(worker: Worker, who: Author, cause: RemovalCause | None, found: Cordons) -> None:
    written = worker.annotations.get(wellknown.ANNOTATION_POD_CORDON_BY)
    changes = Changes()
    if cause is None:
        if who is Author.OPERATOR:
            changes.annotations[wellknown.ANNOTATION_POD_CORDON] = None
        if written is not None:
            changes.annotations[wellknown.ANNOTATION_POD_CORDON_BY] = None
        # A user may have cordoned it in the meantime: a cordon that was not observed must not be removed.
        changes.guarded = True
    elif who is Author.NONE:
        changes.annotations[wellknown.ANNOTATION_POD_CORDON] = wellknown.TRUE
        changes.annotations[wellknown.ANNOTATION_POD_CORDON_BY] = cause.value
        changes.guarded = True
        if cause is RemovalCause.NODE_CORDON:
            text = messages.node_cordoned(worker.node, worker.name)
            found.notes.append(Note(Reason.NODE_CORDON, "Cordon", text, pod=worker.name))
    elif who is Author.OPERATOR and cause is not RemovalCause.POD_CORDON and written != cause:
        changes.annotations[wellknown.ANNOTATION_POD_CORDON_BY] = cause.value
        changes.guarded = True
    if changes.annotations:
        found.changes[worker.uid] = changes


def _drain(
    seen: Observation,
    slurm: SlurmState,
    worker: Worker,
    cause: RemovalCause,
    going: dict[str, RemovalCause],
    found: Cordons,
) -> str | None:
    """Return the reason to drain a worker's node with; None if it needs no drain or cannot have one."""
    # One that is pending removal says what it waits for already.
    says = worker.uid not in going
    name = worker.slurm_name
    node = slurm.node(name)
    if node is None:
        wait = slurm.blind(name)
        if wait is not None and says:
            found.blocked.append(Blocked(worker.name, name, cause, wait))
        return None
    if draining(node):
        return None
    if powering_up(node):
        # A drain would requeue the job for which it is powered up; when it is up, it is drained.
        if says:
            wait = Defer(Reason.POWERING_UP, messages.powering_up(name))
            found.blocked.append(Blocked(worker.name, name, cause, wait))
        return None
    if "FAIL" in node.state:
        # A drain would take that mark away (`node_changes`).
        if says:
            found.blocked.append(Blocked(worker.name, name, cause, failing(name)))
        return None
    spoken = ""
    if cause is RemovalCause.NODE_CORDON:
        spoken = spoken_reason(seen, seen.nodes[worker.node])
    elif cause is RemovalCause.POD_CORDON:
        spoken = pod_reason(worker)
    return spoken or drain_reason(cause, *seen.where)


def _undrain(slurm: SlurmState, users: list[Worker], found: Cordons) -> bool:
    worker = users[0]
    node = slurm.node(worker.slurm_name)
    if node is None or not draining(node):
        return False
    if "DOWN" in node.state and ("NOT_RESPONDING" in node.state or not _newer_slurmd(node)):
        # Left from the pod before. When the new slurmd has registered, a resume lifts both (`returned`); an
        # undrain now would give the node a reason that is younger than the slurmd, and it would stay down.
        return False
    decisions = [may_undrain(one, slurm) for one in users]
    decision = next((one for one in decisions if isinstance(one, Defer)), decisions[0])
    if isinstance(decision, Allow):
        return True
    if decision == foreign_drain(node):
        found.blocked.append(Blocked(worker.name, worker.slurm_name, None, decision))
    return False


def returned(slurm: SlurmState, workers: Iterable[Worker], unwanted: Container[str]) -> list[str]:
    """Return the nodes to resume; `unwanted` are those that must take no work."""
    found: dict[str, bool] = {}
    for worker in workers:
        name = worker.slurm_name
        node = slurm.node(name)
        if node is None or "DOWN" not in node.state or name in unwanted:
            continue
        # Two pods may share a name for a while: only when each of them serves is it certain who registered.
        ready = worker.healthy and slurm.safe(worker)
        found[name] = found.get(name, True) and ready and _lifts(node) and _newer_slurmd(node)
    return sorted(name for name, due in found.items() if due)


def _lifts(node: SlurmNode) -> bool:
    return (
        not {"FAIL", "NOT_RESPONDING", "INVALID_REG"} & set(node.state)
        and downed_by_us(node, wellknown.REASON_PREFIX)
        and (not draining(node) or node.reason.startswith(wellknown.REASON_PREFIX))
    )


def _newer_slurmd(node: SlurmNode) -> bool:
    started, downed = node.slurmd_start_time.value, node.reason_changed_at.value
    return started is not None and downed is not None and started > downed
