"""From what was found to the conditions `Ready`, `Progressing` and `Degraded`; pure.

`Ready` is True when everything that the spec asks for exists and runs, in the version of the spec that the
condition observed. `Progressing` is True while Kubernetes is on its way there by itself. `Degraded` is True
when a user or an administrator has to act; its message contains what to do. So a missing reference makes an
object not ready and degraded, and the message adds what still runs. Only a change that can no longer be made,
such as another storage class for an existing volume, does not affect `Ready`: waiting for it would never end.
`Stalled` is for tools that follow kstatus: True when only a correction of the object can help.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.controllers.conditions import condition, stalled
from slurm_operator.controllers.workload.rollout import Phase, Rollout
from slurm_operator.objects import desired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.api.shared import Condition, Kind

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

# Far below what a condition may hold, and more than anybody reads.
_LONGEST: Final = 4000


class Cause(StrEnum):
    """Why something is not as it should be, the most urgent first."""

    UNREADABLE = "ReferenceUnreadable"
    """It cannot be found out what an object says that this one depends on; everything stays as it is."""
    MISSING = desired.Reason.MISSING_REFERENCE.value
    INVALID = desired.Reason.INVALID_SPEC.value
    CONFLICT = "NameTaken"
    """An object that belongs to another owner has the name of one of ours."""
    FAILED = "ApplyFailed"
    """The API server refused an object."""
    STALLED = "RolloutStalled"
    PODS = "PodsFailing"
    """Pods cannot be placed, or their containers do not start or do not stay up."""
    IMMUTABLE = desired.Reason.IMMUTABLE.value


@dataclass(frozen=True, slots=True)
class Trouble:
    """One problem, as the conditions report it."""

    cause: Cause
    message: str
    field: str = ""

    @property
    def text(self) -> str:
        """Return a sentence with the field in it."""
        return f"{self.field}: {self.message}" if self.field else self.message


def troubles(problems: Iterable[desired.Problem]) -> tuple[Trouble, ...]:
    """Return what keeps objects from being built."""
    return tuple(Trouble(Cause(one.reason.value), one.message, one.field) for one in problems)


def conditions(
    live: Kind, rollout: Rollout | None, found: Iterable[Trouble], daemon: str
) -> tuple[Condition, Condition, Condition, Condition]:
    """Return the conditions of `TYPES`; no rollout means that the daemon is external."""
    bad = [*found]
    if rollout is not None and rollout.phase is Phase.STALLED:
        bad.append(Trouble(Cause.STALLED, rollout.message))
    order = [*Cause]
    bad.sort(key=lambda one: order.index(one.cause))
    blocking = [one for one in bad if one.cause is not Cause.IMMUTABLE]
    degraded = _degraded(live, bad)
    return (
        _ready(live, rollout, blocking, daemon),
        _progressing(live, rollout, blocking),
        degraded,
        stalled(live, degraded),
    )


def _ready(live: Kind, rollout: Rollout | None, blocking: list[Trouble], daemon: str) -> Condition:
    status: bool | None = False
    if blocking:
        first = blocking[0]
        status = None if first.cause is Cause.UNREADABLE else False
        still = rollout is not None and rollout.ready > 0 and first.cause is not Cause.STALLED
        meanwhile = f". Meanwhile {daemon} runs on as it is" if still else ""
        reason, message = str(first.cause), f"{_text(blocking)}{meanwhile}"
    elif rollout is None:
        status, reason = True, EXTERNAL
        message = f"{daemon} is run by somebody else; all that is needed for it is there"
    elif rollout.phase is Phase.COMPLETE:
        status, reason = True, AVAILABLE if rollout.wanted else SCALED_TO_ZERO
        message = rollout.message
    else:
        reason, message = str(rollout.phase), rollout.message
    return condition(wellknown.CONDITION_READY, status, reason, message, live)


def _progressing(live: Kind, rollout: Rollout | None, blocking: list[Trouble]) -> Condition:
    moving = rollout is not None and rollout.phase in (Phase.ROLLING, Phase.ABSENT) and not blocking
    if rollout is not None and moving:
        reason, message = str(Phase.ROLLING), rollout.message
    elif blocking:
        reason, message = HELD, f"waits until this is mended: {_text(blocking)}"
    else:
        reason, message = str(Phase.COMPLETE), "nothing is left to do"
    return condition(wellknown.CONDITION_PROGRESSING, moving, reason, message, live)


def _degraded(live: Kind, bad: list[Trouble]) -> Condition:
    reason, message = (str(bad[0].cause), _text(bad)) if bad else (AS_EXPECTED, "nothing is wrong")
    return condition(wellknown.CONDITION_DEGRADED, bool(bad), reason, message, live)


def _text(bad: Iterable[Trouble]) -> str:
    text = "; ".join(dict.fromkeys(one.text for one in bad))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
