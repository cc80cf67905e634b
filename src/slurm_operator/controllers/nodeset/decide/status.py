"""What is reported to users: the fields of the status and its conditions, with counts.

`Ready` states whether all wanted workers are up to date and in service. `Progressing` states what is under
way, and what it waits for: everything it waits for is counted by its reason. `Degraded` states what needs an
administrator's attention. Numbers that come from Slurm stay as they were while Slurm cannot be queried. So
does, in the first seconds of a new process, what was wrong or drained in Slurm: a restart of the operator
alone does not change the conditions. All messages follow from the observation alone, so that the same state
always gives the same status.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import BLOCKING, Reason
from slurm_operator.api.shared import Condition, ConditionStatus, find_condition
from slurm_operator.api.updates import UpdateStrategyType
from slurm_operator.controllers.nodeset.decide import autoscale, messages, node_records, reservation
from slurm_operator.controllers.nodeset.decide.actions import CreatePod
from slurm_operator.controllers.nodeset.decide.autoscale import Power
from slurm_operator.controllers.nodeset.decide.slurm_state import drain_in, slurm_state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeset.decide.actions import Defer
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.controllers.nodeset.decide.slurm_state import SlurmState

# Waits of normal operation, or reported elsewhere; any other needs an administrator, or Slurm to recover.
_ORDINARY = frozenset(
    {
        *(
            Reason.DRAIN_PENDING,
            Reason.JOBS_RUNNING,
            Reason.JOBS_COMPLETING,
            Reason.CLAIMS_PENDING,
        ),
        *(
            Reason.BACKING_OFF,
            Reason.MAX_UNAVAILABLE,
            Reason.CACHE_BEHIND,
            Reason.NOT_READY,
            Reason.NODE_ABSENT,
        ),
        *(Reason.POWERING_UP, Reason.RECORD_PENDING, Reason.RECORD_SHAPE),
        *(
            Reason.FOREIGN_DRAIN,
            Reason.NODE_MISSING,
            Reason.CONTROLLER_JUST_STARTED,
            Reason.NAME_IN_USE,
        ),
        # Said once for all workers of which it is true, blocked or not.
        Reason.NAME_TAKEN,
    }
)

# What needs an administrator, and does not pass by itself.
_PROBLEMS: Final = (
    Reason.CONTROLLER_GONE,
    Reason.BUDGET_MISSING,
    Reason.NAME_TAKEN,
    Reason.CLAIM_CONFLICT,
    Reason.AUTOSCALING_UNSUPPORTED,
)
# Reasons that can be confirmed only by querying Slurm, or that report that it cannot be queried.
_OF_SLURM: Final = (BLOCKING - _ORDINARY - {*_PROBLEMS}) | {Reason.NODES_DOWN, Reason.NODES_REFUSED}


@dataclass(frozen=True, slots=True)
class Report:
    """The status of a NodeSet: its fields by their names on the wire, and its conditions."""

    fields: dict[str, Any]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class _Counts:
    desired: int
    exist: int
    updated: int
    ready: int
    available: int


def report(seen: Observation, decided: Plan, collision_count: int | None = None) -> Report:
    """Return the status that belongs to what is seen and to what was decided about it."""
    slurm = slurm_state_of(seen)
    counts = _count(seen, decided)
    blind = _blind(seen, slurm)
    fields: dict[str, Any] = {
        "replicas": counts.exist,
        "updatedReplicas": counts.updated,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "unavailableReplicas": max(0, counts.desired - counts.available),
        "desired": counts.desired,
        **_slurm_counts(seen, blind),
        "observedGeneration": seen.nodeset.metadata.generation,
        "nodeSetHash": seen.revision.hash,
        "selector": seen.nodeset.selector,
    }
    if collision_count is not None:
        fields["collisionCount"] = collision_count
    pins = ordinal_to_node(seen)
    if pins is not None:
        fields["ordinalToNode"] = pins
    conditions = (
        _ready(seen, decided, counts),
        _progressing(seen, slurm, decided, counts),
        _degraded(seen, slurm, decided, blind),
    )
    found = (*conditions, _reservation(seen), _autoscaling(seen, slurm))
    return Report(fields, tuple(one for one in found if one is not None))


def ordinal_to_node(seen: Observation) -> dict[str, str] | None:
    """Return where each number returns to: as far as the node still suits, where it is, else where it was."""
    if not seen.nodeset.spec.pin_to_node or seen.daemon:
        return None
    pins = dict(seen.nodeset.status.ordinal_to_node or {})
    pins |= {
        str(worker.ordinal): worker.node
        for worker in seen.workers
        if worker.ordinal is not None and worker.scheduled and worker.phase == "Running"
    }
    return {
        ordinal: name
        for ordinal, name in sorted(pins.items(), key=lambda item: (len(item[0]), item[0]))
        if name in seen.nodes and seen.fit.suits(seen.nodes[name])
    }


def _count(seen: Observation, decided: Plan) -> _Counts:
    exist = [worker for worker in seen.workers if worker.phase]
    seconds = seen.nodeset.spec.min_ready_seconds
    return _Counts(
        desired=decided.desired,
        exist=len(exist),
        updated=sum(_current(seen, worker) and worker.active for worker in exist),
        ready=sum(worker.ready and worker.phase == "Running" for worker in exist),
        available=sum(worker.available(seen.wall, seconds) for worker in exist),
    )


def _current(seen: Observation, worker: Worker) -> bool:
    return worker.revision in seen.revision.same


def _blind(seen: Observation, slurm: SlurmState) -> Defer | None:
    """Say why nothing is known about the node of a worker that Slurm could tell of."""
    waits = (slurm.blind(worker.slurm_name) for worker in seen.workers)
    return next((wait for wait in waits if wait is not None and wait.reason not in _ORDINARY), None)


def _slurm_counts(seen: Observation, blind: Defer | None) -> dict[str, int]:
    status = seen.nodeset.status
    if blind is not None:
        return {
            "slurmIdle": status.slurm_idle,
            "slurmAllocated": status.slurm_allocated,
            "slurmDown": status.slurm_down,
            "slurmDrain": status.slurm_drain,
        }
    listed = {} if seen.view is None else seen.view.nodes
    found = (listed.get(name) for name in {worker.slurm_name for worker in seen.workers})
    # Of thousands of nodes there are few different states.
    states = Counter(node.state for node in found if node is not None)

    def count(*words: str) -> int:
        return sum(number for state, number in states.items() if not {*words}.isdisjoint(state))

    return {
        "slurmIdle": count("IDLE"),
        "slurmAllocated": count("ALLOCATED", "MIXED"),
        "slurmDown": count("DOWN"),
        "slurmDrain": sum(number for state, number in states.items() if drain_in(state)),
    }


# ------------------------------------------------------------------------------------------------- conditions


def _condition(kind: str, *, status: bool, reason: Reason, message: str) -> Condition:
    word = ConditionStatus.TRUE if status else ConditionStatus.FALSE
    return Condition(type=kind, status=word.value, reason=reason.value, message=message)


def _ready(seen: Observation, decided: Plan, counts: _Counts) -> Condition:
    total = counts.desired
    by_hand = seen.nodeset.spec.update_strategy.type == UpdateStrategyType.ON_DELETE
    if seen.nodeset.deleting:
        reason, message = Reason.DELETING, messages.pods_remain(counts.exist)
    elif counts.available < total:
        reason, message = Reason.WORKERS_UNAVAILABLE, messages.available(counts.available, total)
    elif counts.updated < total and not by_hand:
        reason, message = Reason.UPDATING, messages.updated(counts.updated, total)
    elif decided.going:
        reason, message = Reason.REMOVING, messages.removing(len(decided.going), total)
    elif not seen.settled:
        # Workers were not counted, so it is unknown whether some are still pending removal.
        reason, message = Reason.CACHE_BEHIND, messages.CACHE_BEHIND
    else:
        text = messages.all_available(total)
        return _condition(wellknown.CONDITION_READY, status=True, reason=Reason.ALL_AVAILABLE, message=text)
    return _condition(wellknown.CONDITION_READY, status=False, reason=reason, message=message)


def _progressing(seen: Observation, slurm: SlurmState, decided: Plan, counts: _Counts) -> Condition:
    found = _under_way(decided, counts)
    return _with_last_words(found, _unasked_before(seen, slurm, found.type))


def _unasked_before(seen: Observation, slurm: SlurmState, kind: str) -> Condition | None:
    """Return a condition as it was, while Slurm has not had the time to say anything about it."""
    return find_condition(seen.nodeset.status.conditions, kind) if slurm.unasked else None


def _with_last_words(found: Condition, before: Condition | None) -> Condition:
    """Return a condition with what was said last in it before: that is what only Slurm can tell of."""
    if before is None or before.reason != found.reason or not before.message.startswith(f"{found.message}; "):
        return found
    return msgspec.structs.replace(found, message=before.message)


def _under_way(decided: Plan, counts: _Counts) -> Condition:
    creating = sum(isinstance(action, CreatePod) for action in decided.actions)
    parts = [messages.creating(creating)] if creating else []
    causes = Counter(decided.going.values())
    parts += [messages.removing_for(cause, number) for cause, number in sorted(causes.items())]
    waiting = Counter(one.wait.reason for one in decided.blocked if one.cause is not None)
    waiting += Counter(wait.reason for wait in decided.waits if wait.reason not in _PROBLEMS)
    if waiting:
        parts.append(messages.waiting(waiting))
        # In the order of their times, which are written so that texts sort like them.
        backing_off = [wait.message for wait in decided.waits if wait.reason is Reason.BACKING_OFF]
        parts += [min(backing_off, key=lambda text: text.rpartition(" ")[2])] if backing_off else []
    # What a user has drained is left alone, so nothing is pending; but the condition shows it.
    others = sorted(one.wait.message for one in decided.blocked if one.cause is None)
    drained = [messages.drained_by_others(others)] if others else []
    kind = wellknown.CONDITION_PROGRESSING
    if parts:
        reason = max(sorted(waiting), key=waiting.__getitem__) if waiting else Reason.WORKING
        return _condition(kind, status=True, reason=reason, message="; ".join(parts + drained))
    if counts.available < counts.desired:
        text = messages.available(counts.available, counts.desired)
        return _condition(kind, status=True, reason=Reason.PODS_STARTING, message=text)
    text = "; ".join([messages.NOTHING_PENDING, *drained])
    return _condition(kind, status=False, reason=Reason.SETTLED, message=text)


def _degraded(seen: Observation, slurm: SlurmState, decided: Plan, blind: Defer | None) -> Condition:
    kind = wellknown.CONDITION_DEGRADED
    before = _unasked_before(seen, slurm, kind)
    wrong = _wrong(seen, slurm, decided, blind, unasked=before is not None)
    if before is not None and before.reason in _OF_SLURM and not wrong:
        return _condition(kind, status=True, reason=Reason(before.reason), message=before.message)
    if not wrong:
        return _condition(kind, status=False, reason=Reason.AS_EXPECTED, message=messages.NO_PROBLEMS)
    message = "; ".join(text for _, text in wrong)
    found = _condition(kind, status=True, reason=wrong[0][0], message=message)
    return _with_last_words(found, before)


def _wrong(
    seen: Observation, slurm: SlurmState, decided: Plan, unable: Defer | None, *, unasked: bool
) -> list[tuple[Reason, str]]:
    """Return what needs attention, a word and a sentence each, the worst first."""
    found: list[tuple[Reason, str]] = []
    if unable is not None and not unasked:
        found.append((unable.reason, unable.message))
    # While the state of nodes cannot be determined, each blocked worker would only repeat that.
    stuck = [one.wait for one in decided.blocked if one.wait.reason not in _ORDINARY and unable is None]
    if stuck:
        found.append((stuck[0].reason, messages.blocked(len(stuck), stuck[0].message)))
    found += problems(decided.waits).items()
    failed = [worker.name for worker in seen.workers if worker.phase == "Failed" and worker.active]
    if failed:
        found.append((Reason.PODS_FAILED, messages.pods_failed(len(failed), min(failed))))
    running = [slurm.node(worker.slurm_name) for worker in seen.workers if worker.healthy]
    down = sorted(node.name for node in running if node is not None and "DOWN" in node.state)
    if down:
        found.append((Reason.NODES_DOWN, messages.nodes_down(len(down), down[0])))
    refused = {node.name: node for node in running if node is not None and "INVALID_REG" in node.state}
    if refused:
        first = refused[min(refused)]
        text = messages.nodes_refused(len(refused), first.name, first.reason)
        found.append((Reason.NODES_REFUSED, text))
    return found


def problems(waits: Iterable[Defer]) -> dict[Reason, str]:
    """Return one sentence for each kind of problem among what is waited for."""
    found: dict[Reason, list[str]] = {kind: [] for kind in _PROBLEMS}
    for wait in waits:
        if wait.reason in found:
            found[wait.reason].append(wait.message)
    return {kind: messages.similar(min(some), len(some)) for kind, some in found.items() if some}


def _autoscaling(seen: Observation, slurm: SlurmState) -> Condition | None:
    """Return the condition about Slurm's power saving, which is also the memory that it was used."""
    kind = wellknown.CONDITION_AUTOSCALING
    old = find_condition(seen.nodeset.status.conditions, kind)
    if not seen.nodeset.autoscaled or seen.nodeset.deleting:
        if old is None or (node_records.listed(seen, slurm) and not node_records.remaining(seen)):
            return None
        return _condition(kind, status=False, reason=Reason.LEAVING, message=messages.DELETING_RECORDS)
    if (wait := autoscale.refused(seen)) is not None:
        return _condition(kind, status=False, reason=wait.reason, message=wait.message)
    if not slurm.sees:
        return old
    counts = autoscale.counts(seen, slurm)
    listed = ", ".join(f"{counts[state]} {state.value}" for state in Power if counts[state])
    reason = Reason.RESUMING if counts[Power.POWERING_UP] else Reason.ACTIVE
    return _condition(kind, status=True, reason=reason, message=listed or messages.NO_WORKERS)


def _reservation(seen: Observation) -> Condition | None:
    """Return the condition about the maintenance window, which is also the memory that it was made."""
    kind = wellknown.CONDITION_RESERVATION_CREATED
    old = find_condition(seen.nodeset.status.conditions, kind)
    wanted, text = reservation.wanted(seen), reservation.window(seen)
    if reservation.open_ended(seen) and not reservation.known(seen):
        return old
    if wanted and text is not None and reservation.present(seen) is not None:
        return _condition(kind, status=True, reason=Reason.RESERVATION_CREATED, message=text)
    if old is None:
        return None
    # Another sentence than that of a window forgets it: the same window may be asked for again.
    remembers = wanted and text is not None and reservation.made(seen)
    message = text if remembers and text is not None else messages.NO_WINDOW
    return _condition(kind, status=False, reason=Reason.RESERVATION_NOT_EXISTS, message=message)
