"""Conditions of an object: how they are built, compared and found; pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import Condition, ConditionStatus, Kind, find_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_operator.kube.models.store import Change

K = TypeVar("K", bound=Kind)


def condition(
    type_: str,
    status: bool | None,  # noqa: FBT001 - the second word of a condition
    reason: str,
    message: str,
    live: Kind,
) -> Condition:
    """Build a condition of an object as it is now; None is Unknown."""
    word = {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}[status]
    return Condition(
        type=type_,
        status=word.value,
        reason=reason,
        message=message,
        observed_generation=live.metadata.generation,
    )


# For these, waiting does not help: the object itself, or what it names, must be corrected.
_STALLED: Final = frozenset(
    {
        *(Reason.INVALID_SPEC, Reason.ROLLOUT_STALLED),
        *(Reason.KEY_INVALID, Reason.EXPIRED),
        *("InvalidServer", "SecretNotSet", "InvalidToken", "InvalidCA"),
    }
)


def stalled(live: Kind, cause: Condition) -> Condition:
    """Return the condition by which kstatus tells a failure from progress; `cause` says what is wrong."""
    if cause.reason in _STALLED:
        return condition(
            wellknown.CONDITION_STALLED, status=True, reason=cause.reason, message=cause.message, live=live
        )
    return condition(
        wellknown.CONDITION_STALLED,
        status=False,
        reason=Reason.AS_EXPECTED,
        message="Not stalled",
        live=live,
    )


def set_condition(existing: Sequence[Condition], new: Condition, now: datetime) -> tuple[Condition, ...]:
    """Put a condition among others; its transition time moves only when its status does."""
    old = find_condition(existing, new.type)
    since = old.last_transition_time if old is not None and old.status == new.status else None
    moved = msgspec.structs.replace(new, last_transition_time=since or _whole_second(now))
    if old is None:
        return (*existing, moved)
    return tuple(moved if one.type == new.type else one for one in existing)


def condition_changed(type_: str) -> Callable[[Change[K]], bool]:
    """Return a predicate that lets through whatever touched the condition of one type."""

    def changed(change: Change[K]) -> bool:
        if change.old is None or change.new is None:
            return True
        before, after = (find_condition(conditions_of(one), type_) for one in (change.old, change.new))
        return before != after

    return changed


def true_since(live: Kind, type_: str) -> datetime | None:
    """Return since when the condition of one type is True; None if it is not."""
    found = find_condition(conditions_of(live), type_)
    return found.last_transition_time if found and found.status == ConditionStatus.TRUE else None


def condition_rose(type_: str) -> Callable[[Change[K]], bool]:
    """Return a predicate that lets through whatever made the condition of one type True, be it once more."""

    def rose(change: Change[K]) -> bool:
        if change.old is None or change.new is None:
            return True
        before, after = (true_since(one, type_) for one in (change.old, change.new))
        return after is not None and before != after

    return rose


def same_status(live: Any, wanted: Mapping[str, Any]) -> bool:
    """Return whether a status has all that is wanted of it; conditions of other types do not count."""
    decoded = msgspec.convert(wanted, type(live))
    names = {field.encode_name: field.name for field in msgspec.structs.fields(live)}
    return all(
        all(find_condition(live.conditions, one.type) == one for one in decoded.conditions)
        if name == "conditions"
        else getattr(live, names[name]) == getattr(decoded, names[name])
        for name in wanted
    )


def status_of(live: Kind) -> Any:
    """Return the status of an object of any kind."""
    return getattr(live, "status")  # noqa: B009 - every kind has one, each of its own type


def conditions_of(live: Kind) -> tuple[Condition, ...]:
    """Return the conditions of an object of any kind."""
    found: tuple[Condition, ...] = status_of(live).conditions
    return found


def observed_generation(live: Kind) -> int:
    """Return of which version of its spec the status of an object of any kind speaks."""
    found: int = status_of(live).observed_generation
    return found


def _whole_second(moment: datetime) -> datetime:
    # Kubernetes' own times have no fractions; one with them would not survive a trip through other tools.
    return moment.astimezone(UTC).replace(microsecond=0)
