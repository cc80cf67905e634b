"""Workers that Slurm's own scheduler wants: from the power states of its nodes to pods.

Slurm has a CLOUD record for each of `maxReplicas` workers (`node_records`). Its power saving decides which of
them are up, and the pods follow:

    powered down              no pod; one that exists is deleted, as soon as `deletion` allows it, except
                              one that a user has cordoned
    powered down, allocated   a job was given the node, and the power-up follows: a pod
    powering up               a pod
    up                        a pod; one that was lost is created again
    powering down             no pod: Slurm gives it no job any more
    unknown                   what there is stays, and nothing is created

What only a list can tell is never taken from an old one (`slurm_state`): an unknown state neither creates nor
deletes. Workers whose record is of the wrong kind, from before autoscaling was switched on or after it was
switched off, are drained and deleted, some at a time (`maxUnavailable`).
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import Defer, Note, RemovalCause
from slurm_operator.controllers.nodeset.decide.cordon import Author, author
from slurm_operator.controllers.nodeset.decide.observation import FailedResume
from slurm_operator.controllers.nodeset.decide.scale import (
    Demand,
    create_numbered,
    leave_lost_pins,
    leave_other_mode,
    marked,
    replace_finished,
    scale_in_order,
)
from slurm_operator.controllers.nodeset.decide.slurm_state import draining, node_busy
from slurm_operator.controllers.nodeset.decide.update import max_unavailable
from slurm_operator.slurm.decide.node_changes import downed_by_others, powering_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState
    from slurm_operator.slurm.model.records import Node
    from slurm_operator.slurm.model.view import ClusterView

RESUME_TIMEOUT: Final = "ResumeTimeout reached"


class Power(StrEnum):
    """What Slurm's power saving makes of the node of a worker."""

    UNKNOWN = "unknown"
    ABSENT = "without a record"
    PLAIN = "not managed by power saving"
    DOWN = "powered down"
    POWERING_DOWN = "powering down"
    POWERING_UP = "powering up"
    UP = "up"


WITH_POD: Final = frozenset({Power.POWERING_UP, Power.UP})
WITHOUT_POD: Final = frozenset({Power.DOWN, Power.POWERING_DOWN})


def power_of(node: Node) -> Power:
    """Return the power state of a node that Slurm lists."""
    state = frozenset(node.state)
    if not {"CLOUD", "DYNAMIC_NORM"} <= state:
        return Power.PLAIN
    if "POWERING_UP" in state:
        return Power.POWERING_UP
    if "POWERING_DOWN" in state:
        return Power.POWERING_DOWN
    if "POWERED_DOWN" in state:
        return Power.POWERING_UP if powering_up(node) or node_busy(node) else Power.DOWN
    return Power.UP


def power(slurm: SlurmState, name: str) -> Power:
    """Return the power state of the node of a name."""
    node = slurm.node(name)
    if node is not None:
        return power_of(node)
    return Power.ABSENT if slurm.absent(name) is not None else Power.UNKNOWN


def refused(seen: Observation) -> Defer | None:
    """Say why a NodeSet cannot be autoscaled, if so."""
    text = seen.lacks
    if seen.external:
        text = (
            "the slurmctld of the Controller is external, so the operator cannot configure its power saving"
        )
    if not text:
        return None
    return Defer(
        Reason.AUTOSCALING_UNSUPPORTED,
        f"spec.autoscaling has no effect, and workers stay as they are: {text}",
    )


def powered(seen: Observation, slurm: SlurmState) -> Demand:
    """Decide about the workers of a NodeSet that Slurm scales."""
    nodeset = seen.nodeset
    active = [one for one in seen.workers if one.active and one.mode == nodeset.spec.scaling_mode]
    demand = Demand(0)
    leave_other_mode(seen, demand)
    if (wait := refused(seen)) is not None:
        demand.desired, demand.stay = len(active), active
        demand.waits.append(wait)
        return demand
    limit = nodeset.most_replicas
    for worker in active:
        if worker.ordinal is None or worker.ordinal >= limit:
            demand.going[worker.uid] = RemovalCause.SCALE_IN
        elif power(slurm, worker.slurm_name) in WITHOUT_POD and not _cordoned_by_user(seen, slurm, worker):
            demand.going[worker.uid] = RemovalCause.POWERED_DOWN
        else:
            demand.stay.append(worker)
    _note_powered_down(seen, demand)
    replace_finished(seen, demand.stay, demand)
    leave_lost_pins(seen, demand)
    convert(seen, slurm, demand)
    present = {worker.ordinal for worker in seen.workers}
    bearers = {worker.slurm_name for worker in seen.workers}
    missing = [
        ordinal
        for ordinal in range(limit)
        if ordinal not in present
        and (name := nodeset.pod_hostname(ordinal)) not in bearers
        and power(slurm, name) in WITH_POD
    ]
    create_numbered(seen, demand, missing)
    demand.desired = len(demand.stay) + len(missing)
    if demand.creates:
        demand.notes.append(Note(Reason.RESUMING, "ScaleUp", messages.resuming(len(demand.creates))))
    return demand


def _cordoned_by_user(seen: Observation, slurm: SlurmState, worker: Worker) -> bool:
    """Return whether a user has cordoned a pod, which alone remembers that: its drain in Slurm is ours."""
    return author(seen, slurm, worker) is Author.PERSON


def _note_powered_down(seen: Observation, demand: Demand) -> None:
    number = sum(demand.going.get(worker.uid) is RemovalCause.POWERED_DOWN for worker in seen.workers)
    if number:
        text = messages.removing_powered_down(number)
        demand.notes.append(Note(Reason.POWERING_DOWN, "ScaleDown", text))


def convert(seen: Observation, slurm: SlurmState, demand: Demand) -> None:
    """Replace workers whose record is of the wrong kind: some at a time, idle ones first.

    Those that Slurm has powered down since take no work, and are not among the ones that wait for their turn.
    """
    wrong = [
        worker
        for worker in demand.stay
        if worker.uid not in demand.going and _replaceable(seen, slurm, slurm.node(worker.slurm_name))
    ]
    if not wrong or slurm.budget is not None:
        return
    ordered = sorted(
        scale_in_order(wrong, slurm, RemovalCause.AUTOSCALING),
        key=lambda one: not marked(one, RemovalCause.AUTOSCALING),
    )
    off = [one.uid for one in ordered if power(slurm, one.slurm_name) in WITHOUT_POD]
    serving = [one.uid for one in ordered if power(slurm, one.slurm_name) not in WITHOUT_POD]
    for uid in (*off, *serving[: max_unavailable(seen, len(demand.stay))]):
        demand.going[uid] = RemovalCause.AUTOSCALING


def _replaceable(seen: Observation, slurm: SlurmState, node: Node | None) -> bool:
    """Return whether a record is of the wrong kind and may be deleted.

    The drain of an administrator would be forgotten with the record, so both stay until it ends; and so would
    be that the node was taken down.
    """
    if node is None or (power_of(node) is Power.PLAIN) != seen.nodeset.autoscaled:
        return False
    if downed_by_others(node, wellknown.REASON_PREFIX):
        return False
    return not draining(node) or slurm.ours(node.name)


def counts(seen: Observation, slurm: SlurmState) -> Counter[Power]:
    """Return how many of the names of a NodeSet are in each power state."""
    names = map(seen.nodeset.pod_hostname, range(seen.nodeset.most_replicas))
    return Counter(power(slurm, name) for name in names)


def failed_resumes(
    before: Mapping[str, FailedResume], view: ClusterView | None, names: Iterable[str], now: float
) -> dict[str, FailedResume]:
    """Return how often in a row nodes did not come up in time, by what was known before and a newer list."""
    found = dict(before)
    if view is None:
        return found
    for name in names:
        node = view.nodes.get(name)
        if node is None:
            continue
        stamp = node.reason_changed_at.value or 0.0
        known = found.get(name)
        if "DOWN" in node.state and node.reason.startswith(RESUME_TIMEOUT):
            if known is None or known.stamp != stamp:
                found[name] = FailedResume(1 if known is None else known.times + 1, now, stamp)
        elif known is not None and power_of(node) is Power.UP and "DOWN" not in node.state:
            del found[name]
    return found
