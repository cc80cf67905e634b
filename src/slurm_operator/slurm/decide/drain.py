"""Whether a node is drained or powered down, as far as one reply can tell: its own state, and the jobs on it.

Both have to agree. A node whose job is in its epilog is IDLE+DRAIN+COMPLETING with no CPU allocated; one with
a suspended job is MIXED+DRAIN with no CPU allocated either. So no single field decides, and a word that is
not known here decides against.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.model.answers import AnswerReason, DrainAnswer
from slurm_operator.slurm.model.records import BASE_STATES, FREE_STATES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.slurm.model.jobs import UnfinishedJobs
    from slurm_operator.slurm.model.records import Node

# Flags whose meaning is known. What else is in a state may mean anything, also that work is on the node.
_FLAGS: Final = frozenset(
    {
        *("BLOCKED", "CLOUD", "COMPLETING", "DRAIN", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "FAIL", "INVALID_REG"),
        *("MAINTENANCE", "NOT_RESPONDING", "PLANNED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"),
        *("POWER_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE", "POWER_DRAIN", "POWER_UP", "REBOOT_CANCELED"),
        *("REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "RESUME", "UNDRAIN"),
    }
)
_KNOWN: Final = BASE_STATES | _FLAGS
_POWER: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"})
_NAMED_JOBS: Final = 5


def looks_drained(node: Node) -> bool:
    """Return whether a node's own state says that it is drained; the jobs have to agree."""
    state = node.state
    if "DRAIN" not in state or "COMPLETING" in state or node.alloc_cpus:
        return False
    return any(word in FREE_STATES for word in state)


def looks_powered_down(node: Node) -> bool:
    """Return whether Slurm powers a node down, or has, and no work is on it; the jobs have to agree."""
    state = node.state
    if "COMPLETING" in state or node.alloc_cpus or not powered_off(node):
        return False
    return any(word in FREE_STATES for word in state)


@dataclass(frozen=True, slots=True)
class OutOfService:
    """Which nodes of a list drain, or are powered up or down by Slurm."""

    draining: frozenset[str] = frozenset()
    """They drain, and do not look drained yet."""
    drained: Mapping[str, float | None] = field(default_factory=dict)
    """They look drained by their own state; since when they drain, by slurmctld's clock."""
    powered_down: frozenset[str] = frozenset()
    """They look powered down by their own state."""
    saving: bool = False
    """Slurm saves power with some nodes."""


def out_of_service(nodes: Mapping[str, Node]) -> OutOfService:
    """Return which nodes of a list drain or follow Slurm's power saving."""
    draining, drained, powered_down, saving = set[str](), dict[str, float | None](), set[str](), False
    for name, node in nodes.items():
        # Nearly all nodes are neither, and have one of few states.
        drains, saves = _leaves_service(node.state)
        if drains and looks_drained(node):
            drained[name] = node.reason_changed_at.value
        elif drains:
            draining.add(name)
        if saves:
            saving = True
            if looks_powered_down(node):
                powered_down.add(name)
    return OutOfService(frozenset(draining), drained, frozenset(powered_down), saving)


@functools.lru_cache(maxsize=1024)
def _leaves_service(words: tuple[str, ...]) -> tuple[bool, bool]:
    """Return whether a node in this state drains, and whether Slurm saves power with it."""
    return "DRAIN" in words, _saves_power(words)


def drain_times(nodes: Mapping[str, Node]) -> dict[str, float]:
    """Return since when nodes drain, by slurmctld's clock; not of those of which that is not known."""
    return {name: since for name, node in nodes.items() if (since := _draining_since(node))}


def lasting_drains(before: Mapping[str, float], nodes: Mapping[str, Node]) -> dict[str, float]:
    """Return which of the drains in `before`, what `drain_times` said, have lasted without a break.

    A node that was resumed and drained again has another time, and may have got a job in between.
    """
    return {
        name: since
        for name, since in before.items()
        if (node := nodes.get(name)) is not None and _draining_since(node) == since
    }


def _draining_since(node: Node) -> float | None:
    return node.reason_changed_at.value if _drains(node.state) else None


@functools.lru_cache(maxsize=1024)
def _drains(words: tuple[str, ...]) -> bool:
    return "DRAIN" in words and "UNDRAIN" not in words


def saves_power(node: Node) -> bool:
    """Return whether Slurm powers a node up or down, or has powered it down, and a pod follows that."""
    return _saves_power(node.state)


@functools.lru_cache(maxsize=1024)
def _saves_power(words: tuple[str, ...]) -> bool:
    return {"CLOUD", "DYNAMIC_NORM"} <= {*words} and not _POWER.isdisjoint(words)


def powered_off(node: Node) -> bool:
    """Return whether no job starts on a node with the slurmd that it has now: Slurm powers it down.

    Such a node gets work again only after a power-up, and then from a slurmd that was started after that
    (`slurmd -b`). POWER_UP beside POWERING_DOWN is a power-up that waits for the power-down to end.
    """
    return _powered_off(node.state)


@functools.lru_cache(maxsize=1024)
def _powered_off(words: tuple[str, ...]) -> bool:
    state = frozenset(words)
    if not {"CLOUD", "DYNAMIC_NORM"} <= state or "POWERING_UP" in state:
        return False
    return "POWERING_DOWN" in state or ("POWERED_DOWN" in state and "POWER_UP" not in state)


def work_in_power_state(node: Node, jobs: UnfinishedJobs) -> DrainAnswer | None:
    """Say what in a node's own state speaks against its being powered down; None if nothing does."""
    return _work_in_state(node, jobs, (not powered_off(node), AnswerReason.NOT_DRAINING, "not powered down"))


def work_in_state(node: Node, jobs: UnfinishedJobs) -> DrainAnswer | None:
    """Say what in a node's own state speaks against its being drained; None if nothing does."""
    return _work_in_state(
        node,
        jobs,
        ("DRAIN" not in node.state, AnswerReason.NOT_DRAINING, "not draining"),
        ("UNDRAIN" in node.state, AnswerReason.UNDRAIN_PENDING, "its drain is being taken back"),
    )


def _work_in_state(
    node: Node, jobs: UnfinishedJobs, *own: tuple[bool, AnswerReason, str]
) -> DrainAnswer | None:
    """Return the first entry that applies; `own` is what speaks against being drained or powered down."""
    if node.alloc_cpus == 0 and _certainly_idle(node.state) and not any(applies for applies, *_ in own):
        return None
    state = frozenset(node.state)
    is_what = f"{node.name} is {'+'.join(node.state) or 'in no state'}"
    strange, base = state - _KNOWN, state & BASE_STATES
    allocated = bool(node.alloc_cpus) or not state.isdisjoint({"ALLOCATED", "MIXED"})
    free = len(base) == 1 and base <= FREE_STATES
    against = (
        (
            bool(strange),
            AnswerReason.STATE_UNKNOWN,
            f"which this operator does not know: {', '.join(sorted(strange))}",
        ),
        *own,
        (allocated, AnswerReason.JOBS_RUNNING, _who(node.name, jobs)),
        ("COMPLETING" in state, AnswerReason.JOBS_COMPLETING, _who(node.name, jobs)),
        (not free, AnswerReason.STATE_UNKNOWN, "which does not confirm that it is idle"),
        (
            node.alloc_cpus is None,
            AnswerReason.STATE_UNKNOWN,
            "and Slurm does not report how many CPUs are allocated",
        ),
    )
    return next((no(reason, f"{is_what}, {why}") for applies, reason, why in against if applies), None)


# Of thousands of nodes there are few different states.
@functools.lru_cache(maxsize=1024)
def _certainly_idle(words: tuple[str, ...]) -> bool:
    """Return whether a state speaks of no work, drained or not, and every word of it is known."""
    state = frozenset(words)
    base = state & BASE_STATES
    return len(base) == 1 and base <= FREE_STATES and "COMPLETING" not in state and state <= _KNOWN


def work_in_jobs(name: str, jobs: UnfinishedJobs) -> DrainAnswer | None:
    """Say what in the list of jobs speaks against a node's being drained; None if nothing does."""
    if name in jobs.by_node:
        return no(AnswerReason.JOBS_RUNNING, f"{name} looks idle, but {_who(name, jobs)}")
    if jobs.unplaced:
        return no(AnswerReason.JOBS_UNKNOWN, f"{jobs.unplaced[0]}; it may be on {name}")
    return None


def no(reason: AnswerReason, message: str) -> DrainAnswer:
    """Return the verdict that a node is not drained."""
    return DrainAnswer(drained=False, reason=reason, message=message)


def _who(name: str, jobs: UnfinishedJobs) -> str:
    hold = jobs.by_node.get(name)
    if hold is None:
        return "a job is on it"
    some = ", ".join(map(str, hold.jobs[:_NAMED_JOBS])) + (", …" if len(hold.jobs) > _NAMED_JOBS else "")
    return f"job {some} is on it" if len(hold.jobs) == 1 else f"jobs {some} are on it"
