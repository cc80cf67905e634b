"""From what was found to the conditions `Ready`, `Progressing` and `Degraded`; pure.

`Ready` is True when everything that the spec asks for exists and runs, in the version of the spec that the
condition observed. `Progressing` is True while Kubernetes is on its way there by itself. `Degraded` is True
when a user or an administrator has to act; its message contains what to do. So a missing reference makes an
object not ready and degraded, and the message adds what still runs. Only a change that can no longer be made,
such as another storage class for an existing volume, does not affect `Ready`: waiting for it would never end.
`Stalled` is for tools that follow kstatus: True when only a correction of the object can help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.shared.conditions import condition, stalled
from slurm_operator.controllers.shared.problems import URGENCY, WorkloadProblem
from slurm_operator.controllers.workload.decide.rollout import Phase, Rollout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api.shared import Condition, Kind
    from slurm_operator.objects import desired

TYPES: Final = (
    wellknown.CONDITION_READY,
    wellknown.CONDITION_PROGRESSING,
    wellknown.CONDITION_DEGRADED,
    wellknown.CONDITION_STALLED,
)

AVAILABLE: Final = "Available"
AS_EXPECTED: Final = "AsExpected"
EXTERNAL: Final = "External"
SCALED_TO_ZERO: Final = "ScaledToZero"
HELD: Final = "Held"

# Far below what a condition may hold.
_LONGEST: Final = 4000


def troubles(problems: Iterable[desired.Problem]) -> tuple[WorkloadProblem, ...]:
    """Return what keeps objects from being built."""
    return tuple(WorkloadProblem(one.reason, one.message, one.field) for one in problems)


def conditions(
    live: Kind, rollout: Rollout | None, found: Iterable[WorkloadProblem], daemon: str
) -> tuple[Condition, Condition, Condition, Condition]:
    """Return the conditions of `TYPES`; no rollout means that the daemon is external."""
    bad = [*found]
    if rollout is not None and rollout.phase is Phase.STALLED:
        bad.append(WorkloadProblem(Reason.ROLLOUT_STALLED, rollout.message))
    bad.sort(key=lambda one: URGENCY.index(one.cause))
    blocking = [one for one in bad if one.cause is not Reason.IMMUTABLE_FIELD]
    degraded = _degraded(live, bad)
    return (
        _ready(live, rollout, blocking, daemon),
        _progressing(live, rollout, blocking),
        degraded,
        stalled(live, degraded),
    )


def _ready(live: Kind, rollout: Rollout | None, blocking: list[WorkloadProblem], daemon: str) -> Condition:
    status: bool | None = False
    if blocking:
        first = blocking[0]
        status = None if first.cause is Reason.REFERENCE_UNREADABLE else False
        still = rollout is not None and rollout.ready > 0 and first.cause is not Reason.ROLLOUT_STALLED
        meanwhile = f". Meanwhile {daemon} keeps running unchanged" if still else ""
        reason, message = str(first.cause), f"{_text(blocking)}{meanwhile}"
    elif rollout is None:
        status, reason = True, EXTERNAL
        message = f"{daemon} is external, and all objects for it exist"
    elif rollout.phase is Phase.COMPLETE:
        status, reason = True, AVAILABLE if rollout.wanted else SCALED_TO_ZERO
        message = rollout.message
    else:
        reason, message = str(rollout.phase), rollout.message
    return condition(wellknown.CONDITION_READY, status, reason, message, live)


def _progressing(live: Kind, rollout: Rollout | None, blocking: list[WorkloadProblem]) -> Condition:
    moving = rollout is not None and rollout.phase in (Phase.ROLLING, Phase.ABSENT) and not blocking
    if rollout is not None and moving:
        reason, message = str(Phase.ROLLING), rollout.message
    elif blocking:
        reason, message = HELD, f"Blocked until this is fixed: {_text(blocking)}"
    else:
        reason, message = str(Phase.COMPLETE), "Up to date"
    return condition(wellknown.CONDITION_PROGRESSING, moving, reason, message, live)


def _degraded(live: Kind, bad: list[WorkloadProblem]) -> Condition:
    reason, message = (str(bad[0].cause), _text(bad)) if bad else (AS_EXPECTED, "No problems found")
    return condition(wellknown.CONDITION_DEGRADED, bool(bad), reason, message, live)


def _text(bad: Iterable[WorkloadProblem]) -> str:
    text = "; ".join(dict.fromkeys(one.text for one in bad))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
