"""Whether a node is drained, as far as one reply can tell: its own state, and the jobs that list it.

Both have to agree. A node whose job is in its epilog is IDLE+DRAIN+COMPLETING with no CPU allocated; one with
a suspended job is MIXED+DRAIN with no CPU allocated either. So no single field decides, and a word that is
not known here decides against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.answers import Reason, Verdict
from slurm_operator.slurm.model import BASE_STATES, FREE_STATES

if TYPE_CHECKING:
    from slurm_operator.slurm.jobs import Jobs
    from slurm_operator.slurm.model import Node

# Flags whose meaning is known. What else is in a state may mean anything, also that work is on the node.
_FLAGS: Final = frozenset(
    {
        *("BLOCKED", "CLOUD", "COMPLETING", "DRAIN", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "FAIL", "INVALID_REG"),
        *("MAINTENANCE", "NOT_RESPONDING", "PLANNED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"),
        *("POWER_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE", "POWER_DRAIN", "POWER_UP", "REBOOT_CANCELED"),
        *("REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "RESUME", "UNDRAIN"),
    }
)
_NAMED_JOBS: Final = 5


def looks_drained(node: Node) -> bool:
    """Tell whether a node's own state says that it is drained; the jobs have to agree."""
    state = node.state
    if "DRAIN" not in state or "COMPLETING" in state or node.alloc_cpus:
        return False
    return any(word in FREE_STATES for word in state)


def work_in_state(node: Node, jobs: Jobs) -> Verdict | None:
    """Say what in a node's own state speaks against its being drained; None if nothing does."""
    state = frozenset(node.state)
    is_what = f"{node.name} is {'+'.join(node.state) or 'in no state'}"
    strange, base = state - BASE_STATES - _FLAGS, state & BASE_STATES
    allocated = bool(node.alloc_cpus) or not state.isdisjoint({"ALLOCATED", "MIXED"})
    free = len(base) == 1 and base <= FREE_STATES
    against = (
        (strange, Reason.STATE_UNKNOWN, f"which is unknown here: {', '.join(sorted(strange))}"),
        ("DRAIN" not in state, Reason.NOT_DRAINING, "not draining"),
        ("UNDRAIN" in state, Reason.UNDRAIN_PENDING, "its drain is being taken back"),
        (allocated, Reason.JOBS_RUNNING, _who(node.name, jobs)),
        ("COMPLETING" in state, Reason.JOBS_COMPLETING, _who(node.name, jobs)),
        (not free, Reason.STATE_UNKNOWN, "which does not say that it is free"),
        (node.alloc_cpus is None, Reason.STATE_UNKNOWN, "and Slurm does not say how many CPUs are allocated"),
    )
    return next((no(reason, f"{is_what}, {why}") for holds, reason, why in against if holds), None)


def work_in_jobs(name: str, jobs: Jobs) -> Verdict | None:
    """Say what in the list of jobs speaks against a node's being drained; None if nothing does."""
    if name in jobs.holds:
        return no(Reason.JOBS_RUNNING, f"{name} looks idle, but {_who(name, jobs)}")
    if jobs.unplaced:
        return no(Reason.JOBS_UNKNOWN, f"{jobs.unplaced[0]}; it may be on {name}")
    return None


def no(reason: Reason, message: str) -> Verdict:
    """Return the verdict that a node is not drained."""
    return Verdict(drained=False, reason=reason, message=message)


def _who(name: str, jobs: Jobs) -> str:
    hold = jobs.holds.get(name)
    if hold is None:
        return "a job is on it"
    some = ", ".join(map(str, hold.jobs[:_NAMED_JOBS])) + (", …" if len(hold.jobs) > _NAMED_JOBS else "")
    return f"job {some} is on it" if len(hold.jobs) == 1 else f"jobs {some} are on it"
