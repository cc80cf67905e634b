"""What may be done to one worker, and if not, why not.

The first rule of all: a pod is deleted only if no job can be running in it. That is known in few cases.

    never scheduled      nothing ever ran in it (and the API server refuses the deletion if that has changed)
    drained              Slurm says so, in lists that were asked for after the last write to this node
    not in Slurm, and slurmd never started, or the pod has finished
    not in Slurm for long, and not lost with work on it

The last one needs care. Slurm refuses to delete a node with jobs, so a busy node that is not listed any more
was lost with slurmctld's state. Its jobs run on, and nobody else remembers them but the pod: by the label,
the conditions and the deadline that this operator wrote on it. Until that deadline, the pod stays.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset import names
from slurm_operator.controllers.nodeset.decisions import Allow, Decision, Hold, Wait
from slurm_operator.controllers.nodeset.sight import draining, node_busy

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.observation import Worker
    from slurm_operator.controllers.nodeset.sight import Sight
    from slurm_operator.slurm.model import Node

# A slurmd that is going to register does so within seconds of its start; its longest retry is 30 s.
REGISTRATION_SECONDS: Final = 120.0
# So many complete lists in a row without the node, beside what the view itself demands.
REGISTRATION_LISTS: Final = 3

_BUSY_CONDITIONS: Final = frozenset(
    f"{wellknown.POD_CONDITION_PREFIX}{state}" for state in ("Allocated", "Mixed", "Completing")
)
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)


def may_delete(worker: Worker, sight: Sight, wall: datetime) -> Decision:
    """Tell whether a pod may be deleted without killing a job."""
    if not worker.scheduled:
        return Allow("it was never scheduled", unchanged=True)
    if (blind := sight.blind(worker.slurm_name)) is not None:
        return blind
    if sight.absent(worker.slurm_name) is None:
        return sight.undrained(worker.slurm_name) or Allow(f"Slurm node {worker.slurm_name} is drained")
    if not worker.started:
        return Allow("slurmd never started in it, and Slurm does not list its node", unchanged=True)
    if worker.finished:
        return Allow("it has finished, and Slurm does not list its node")
    return _long_gone(worker, sight, wall) or Allow("Slurm has not listed its node for a long time")


def may_reregister(worker: Worker, sight: Sight, wall: datetime, min_ready_seconds: int) -> Decision:
    """Tell whether a healthy pod may be replaced because Slurm does not have its node."""
    if (blind := sight.blind(worker.slurm_name)) is not None:
        return blind
    if sight.absent(worker.slurm_name) is None:
        return Hold(Wait.NOT_READY, "Slurm lists the node")
    if not worker.available(wall, min_ready_seconds):
        return Hold(Wait.NOT_READY, "the pod is not available yet")
    return _long_gone(worker, sight, wall) or Allow("it runs, but Slurm has not listed its node for long")


def may_undrain(worker: Worker, sight: Sight) -> Decision:
    """Tell whether a node may take work again: the drain must be ours and the pod ready for work."""
    if (blind := sight.blind(worker.slurm_name)) is not None:
        return blind
    node = sight.node(worker.slurm_name)
    if node is None:
        return Hold(Wait.NODE_ABSENT, "Slurm does not list the node")
    if not draining(node):
        return Hold(Wait.NOT_READY, "the node does not drain")
    if not sight.ours(worker.slurm_name):
        return foreign_drain(node)
    if not worker.healthy:
        return Hold(Wait.NOT_READY, f"{worker.slurm_name} takes work again when its pod is ready")
    return Allow("the operator drained it, and nothing asks for that any more")


def foreign_drain(node: Node) -> Hold:
    """Say that somebody else has drained a node."""
    why = f"with the reason {node.reason!r}" if node.reason else "without a reason"
    return Hold(Wait.FOREIGN_DRAIN, f"{node.name} was drained by somebody else, {why}: it stays drained")


def lost_until(worker: Worker, sight: Sight) -> datetime | None:
    """Return until when a pod that Slurm lost may still run jobs; None if it was not busy when last seen."""
    last = sight.last_known(worker.slurm_name)
    seen_busy = (
        worker.labels.get(wellknown.LABEL_POD_PROTECT) == wellknown.TRUE
        or any(one.type in _BUSY_CONDITIONS and one.status == "True" for one in worker.conditions)
        or (last is not None and node_busy(last))
    )
    deadline = read_deadline(worker)
    if deadline is None:
        return _FOR_EVER if seen_busy else None
    return deadline


def read_deadline(worker: Worker) -> datetime | None:
    """Return when the last job on a worker ends at the latest, as the pod says; never if unreadable."""
    text = worker.annotations.get(wellknown.ANNOTATION_POD_DEADLINE)
    if not text or text == names.NO_DEADLINE:
        return _FOR_EVER if text else None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _FOR_EVER
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _long_gone(worker: Worker, sight: Sight, wall: datetime) -> Hold | None:
    """Say why a running pod whose node is absent must stay, if so."""
    until = lost_until(worker, sight)
    if until is not None and until > wall:
        when = "somebody deletes the pod" if until == _FOR_EVER else f"{until:%Y-%m-%dT%H:%M:%SZ}"
        return Hold(
            Wait.LOST_WHILE_BUSY,
            f"Slurm lost {worker.slurm_name} while jobs ran on it; they may run on, so it stays until {when}",
        )
    evidence = sight.absent(worker.slurm_name)
    since = worker.ready_since or worker.created
    if (
        evidence is None
        or evidence.lists < REGISTRATION_LISTS
        or (wall - since).total_seconds() < REGISTRATION_SECONDS
    ):
        return Hold(Wait.NODE_ABSENT, f"Slurm does not list {worker.slurm_name}, which may still register")
    return None
