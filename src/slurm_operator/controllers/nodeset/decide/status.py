"""What is reported to users: the fields of the status and its conditions, with counts.

`Ready` states whether all wanted workers are up to date and in service. `Progressing` states what is under
way, and what it waits for: every hold is counted by its reason. `Degraded` states what needs an
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
from slurm_operator.api.shared import Condition, ConditionStatus, find_condition
from slurm_operator.api.updates import UpdateStrategyType
from slurm_operator.controllers.nodeset.decide import reservation
from slurm_operator.controllers.nodeset.decide.actions import TROUBLES, CreatePod, Wait, troubles
from slurm_operator.controllers.nodeset.decide.slurm_state import draining, look

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.controllers.nodeset.decide.slurm_state import Sight

# Waits of normal operation, or reported elsewhere; any other needs an administrator, or Slurm to recover.
_ORDINARY = frozenset(
    {
        *(Wait.DRAIN_PENDING, Wait.JOBS_RUNNING, Wait.JOBS_COMPLETING, Wait.CLAIMS_PENDING),
        *(Wait.BACKING_OFF, Wait.MAX_UNAVAILABLE, Wait.CACHE_BEHIND, Wait.NOT_READY, Wait.NODE_ABSENT),
        *(Wait.FOREIGN_DRAIN, Wait.NODE_MISSING, Wait.CONTROLLER_JUST_STARTED, Wait.NAME_IN_USE),
        # Said once for all workers of which it is true, held or not.
        Wait.NAME_TAKEN,
    }
)

_NODES_DOWN: Final = "NodesDown"
_NODES_REFUSED: Final = "NodesRefused"
# Reasons that can be confirmed only by querying Slurm, or that report that it cannot be queried.
_OF_SLURM = frozenset(
    {
        _NODES_DOWN,
        _NODES_REFUSED,
        *(wait.value for wait in Wait if wait not in _ORDINARY and wait not in TROUBLES),
    }
)


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
    sight = look(seen)
    counts = _count(seen, decided)
    fields: dict[str, Any] = {
        "replicas": counts.exist,
        "updatedReplicas": counts.updated,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "unavailableReplicas": max(0, counts.desired - counts.available),
        "desired": counts.desired,
        **_slurm_counts(seen, sight),
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
        _progressing(seen, sight, decided, counts),
        _degraded(seen, sight, decided),
    )
    window = _reservation(seen)
    return Report(fields, conditions if window is None else (*conditions, window))


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


def _slurm_counts(seen: Observation, sight: Sight) -> dict[str, int]:
    status = seen.nodeset.status
    blind = (sight.blind(worker.slurm_name) for worker in seen.workers)
    if any(hold is not None and hold.reason not in _ORDINARY for hold in blind):
        return {
            "slurmIdle": status.slurm_idle,
            "slurmAllocated": status.slurm_allocated,
            "slurmDown": status.slurm_down,
            "slurmDrain": status.slurm_drain,
        }
    listed = {} if seen.view is None else seen.view.nodes
    found = (listed.get(name) for name in {worker.slurm_name for worker in seen.workers})
    nodes = [node for node in found if node is not None]
    return {
        "slurmIdle": sum("IDLE" in node.state for node in nodes),
        "slurmAllocated": sum("ALLOCATED" in node.state or "MIXED" in node.state for node in nodes),
        "slurmDown": sum("DOWN" in node.state for node in nodes),
        "slurmDrain": sum(draining(node) for node in nodes),
    }


# ------------------------------------------------------------------------------------------------- conditions


def _condition(kind: str, *, status: bool, reason: str, message: str) -> Condition:
    word = ConditionStatus.TRUE if status else ConditionStatus.FALSE
    return Condition(type=kind, status=word.value, reason=reason, message=message)


def _ready(seen: Observation, decided: Plan, counts: _Counts) -> Condition:
    total = counts.desired
    by_hand = seen.nodeset.spec.update_strategy.type == UpdateStrategyType.ON_DELETE
    if seen.nodeset.deleting:
        reason, message = "Deleting", f"{counts.exist} pods are left"
    elif counts.available < total:
        reason, message = "WorkersUnavailable", f"{counts.available} of {total} workers are available"
    elif counts.updated < total and not by_hand:
        reason, message = "Updating", f"{counts.updated} of {total} workers are of the newest revision"
    elif decided.going:
        reason, message = "Removing", f"{len(decided.going)} workers have to go; {total} are wanted"
    elif not seen.settled:
        # Workers were not counted, so it is unknown whether some are still pending removal.
        reason, message = Wait.CACHE_BEHIND.value, "the cache of pods does not show the last writes yet"
    else:
        text = f"{total} workers are available"
        return _condition(wellknown.CONDITION_READY, status=True, reason="AllAvailable", message=text)
    return _condition(wellknown.CONDITION_READY, status=False, reason=reason, message=message)


def _progressing(seen: Observation, sight: Sight, decided: Plan, counts: _Counts) -> Condition:
    found = _under_way(decided, counts)
    return _with_last_words(found, _unasked_before(seen, sight, found.type))


def _unasked_before(seen: Observation, sight: Sight, kind: str) -> Condition | None:
    """Return a condition as it was, while Slurm has not had the time to say anything about it."""
    return find_condition(seen.nodeset.status.conditions, kind) if sight.unasked else None


def _with_last_words(found: Condition, before: Condition | None) -> Condition:
    """Return a condition with what was said last in it before: that is what only Slurm can tell of."""
    if before is None or before.reason != found.reason or not before.message.startswith(f"{found.message}; "):
        return found
    return msgspec.structs.replace(found, message=before.message)


def _under_way(decided: Plan, counts: _Counts) -> Condition:
    creating = sum(isinstance(action, CreatePod) for action in decided.actions)
    causes = Counter(cause.value for cause in decided.going.values())
    parts = []
    if creating:
        parts.append(f"{creating} pods are being created")
    parts += [f"{number} pods have to go: {cause}" for cause, number in sorted(causes.items())]
    waiting = Counter(held.hold.reason.value for held in decided.holds if held.cause is not None)
    waiting += Counter(hold.reason.value for hold in decided.waits if hold.reason not in TROUBLES)
    if waiting:
        total = sum(waiting.values())
        listed = ", ".join(f"{number} {reason}" for reason, number in sorted(waiting.items()))
        parts.append(f"{total} wait: {listed}")
        # In the order of their times, which are written so that texts sort like them.
        backing_off = [hold.message for hold in decided.waits if hold.reason is Wait.BACKING_OFF]
        parts += [min(backing_off, key=lambda text: text.rpartition(" ")[2])] if backing_off else []
    # What a person has drained is left alone, so it is nothing to do; but it should be seen.
    others = sorted(held.hold.message for held in decided.holds if held.cause is None)
    aside = [f"{len(others)} {Wait.FOREIGN_DRAIN.value}: {others[0]}"] if others else []
    if parts:
        reason = max(sorted(waiting), key=waiting.__getitem__) if waiting else "Working"
        return _condition(
            wellknown.CONDITION_PROGRESSING, status=True, reason=reason, message="; ".join(parts + aside)
        )
    if counts.available < counts.desired:
        text = f"{counts.available} of {counts.desired} workers are available"
        return _condition(wellknown.CONDITION_PROGRESSING, status=True, reason="PodsStarting", message=text)
    text = "; ".join(["nothing is left to do", *aside])
    return _condition(wellknown.CONDITION_PROGRESSING, status=False, reason="Settled", message=text)


def _degraded(seen: Observation, sight: Sight, decided: Plan) -> Condition:
    kind = wellknown.CONDITION_DEGRADED
    before = _unasked_before(seen, sight, kind)
    wrong = _wrong(seen, sight, decided, unasked=before is not None)
    if before is not None and before.reason in _OF_SLURM and not wrong:
        return _condition(kind, status=True, reason=before.reason, message=before.message)
    if not wrong:
        return _condition(kind, status=False, reason="AsExpected", message="nothing is wrong")
    message = "; ".join(text for _, text in wrong)
    found = _condition(kind, status=True, reason=wrong[0][0], message=message)
    return _with_last_words(found, before)


def _wrong(seen: Observation, sight: Sight, decided: Plan, *, unasked: bool) -> list[tuple[str, str]]:
    """Return what needs attention, a word and a sentence each, the worst first."""
    found: list[tuple[str, str]] = []
    blind = (sight.blind(worker.slurm_name) for worker in seen.workers)
    unable = next((hold for hold in blind if hold is not None and hold.reason not in _ORDINARY), None)
    if unable is not None and not unasked:
        found.append((unable.reason.value, unable.message))
    # While the state of nodes cannot be determined, each hold would only repeat that.
    stuck = [held.hold for held in decided.holds if held.hold.reason not in _ORDINARY and unable is None]
    if stuck:
        found.append((stuck[0].reason.value, f"{len(stuck)} workers; {stuck[0].message}"))
    found += troubles(decided.waits).items()
    failed = [worker.name for worker in seen.workers if worker.phase == "Failed" and worker.active]
    if failed:
        found.append(("PodsFailed", f"{len(failed)} pods have failed, such as {min(failed)}"))
    running = [sight.node(worker.slurm_name) for worker in seen.workers if worker.healthy]
    down = sorted(node.name for node in running if node is not None and "DOWN" in node.state)
    if down:
        text = f"{len(down)} workers run, but Slurm has their nodes down, such as {down[0]}"
        found.append((_NODES_DOWN, text))
    refused = {node.name: node for node in running if node is not None and "INVALID_REG" in node.state}
    if refused:
        first = refused[min(refused)]
        text = (
            f"{len(refused)} workers run, but Slurm refuses what they register with, such as {first.name} "
            f"({first.reason or 'no reason given'}): compare extraConf, resources.limits and gres.conf"
        )
        found.append((_NODES_REFUSED, text))
    return found


def _reservation(seen: Observation) -> Condition | None:
    """Return the condition about the maintenance window, which is also the memory that it was made."""
    kind = wellknown.CONDITION_RESERVATION_CREATED
    old = find_condition(seen.nodeset.status.conditions, kind)
    wanted, text = reservation.wanted(seen), reservation.window(seen)
    if reservation.open_ended(seen) and not reservation.known(seen):
        return old
    if wanted and text is not None and reservation.present(seen) is not None:
        return _condition(kind, status=True, reason=wellknown.REASON_RESERVATION_CREATED, message=text)
    if old is None:
        return None
    # Another sentence than that of a window forgets it: the same window may be asked for again.
    remembers = wanted and text is not None and reservation.made(seen)
    message = text if remembers and text is not None else "no maintenance window has been made"
    return _condition(kind, status=False, reason=wellknown.REASON_RESERVATION_NOT_EXISTS, message=message)
