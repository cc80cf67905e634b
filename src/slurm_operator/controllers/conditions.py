"""Conditions and the rest of a status: written when they change, and only by who owns them.

Several controllers speak about the same object: of a Controller, one says whether slurmctld runs and another
whether slurmrestd answers. Each writes with server-side apply on the status subresource under a field manager
of its own. The list of conditions is keyed by type, so the API server keeps the others' conditions, and what
a controller says no longer disappears with its next apply. No read before the write, no conflict, no lost
entry.

A status that is there already is not written again. What counts as *there* is the newest version known: the
cache, or the server's answer to our last write while the cache has not caught up with it. Without that memory
a second reconcile within the cache's delay would take the condition for new and move its transition time.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.shared import Condition, ConditionStatus, Kind, find_condition
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.texts import MESSAGE_BYTES, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_operator.kube.client import Client
    from slurm_operator.kube.meta import Key
    from slurm_operator.kube.store import Change

K = TypeVar("K", bound=Kind)

# An answer that is dropped too early costs one write that changes nothing.
_MAX_ANSWERS = 16_384


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
        *("InvalidSpec", "RolloutStalled"),
        *("KeyInvalid", "Expired"),
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
        reason="AsExpected",
        message="nothing is stalled",
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
    """Tell whether a status has all that is wanted of it; conditions of other types do not count."""
    decoded = msgspec.convert(wanted, type(live))
    names = {field.encode_name: field.name for field in msgspec.structs.fields(live)}
    return all(
        all(find_condition(live.conditions, one.type) == one for one in decoded.conditions)
        if name == "conditions"
        else getattr(live, names[name]) == getattr(decoded, names[name])
        for name in wanted
    )


class StatusWriter:
    """Writes the part of a status that one controller owns.

    Give each write all that this controller has to say: what it leaves out is removed by the next one that
    has something new to say.
    """

    def __init__(self, client: Client, field_manager: str) -> None:
        self._client = client
        self._field_manager = field_manager
        self._answers: OrderedDict[tuple[type[Kind], Key], Kind] = OrderedDict()

    def newest(self, live: K) -> K:
        """Return the object as it was last seen: in the cache, or in the answer to our own last write."""
        answer = self._answers.get((type(live), live.key))
        return answer if isinstance(answer, type(live)) and _newer(answer, live) else live

    async def write(
        self,
        live: K,
        *conditions: Condition,
        now: datetime | None = None,
        **fields: Any,
    ) -> bool:
        """Write conditions and other fields of the status; tell whether there was anything to write.

        `fields` are named as on the wire: `write(live, ready, isReady=True)`. An object that is gone is not
        made anew. One of the same name that took its place may get a status that was meant for it: for a
        status, the API server checks no UID. The newcomer's own reconcile puts that right.
        """
        known = self.newest(live)
        moment = now or datetime.now(UTC)
        said = [
            found
            for one in map(_bounded, conditions)
            for found in set_condition(conditions_of(known), one, moment)
            if found.type == one.type
        ]
        status = {**fields, "conditions": [_wire(one) for one in said]}
        if same_status(_status(known), status):
            return False
        namespace, name = live.key
        body = {"metadata": {"name": name, "namespace": namespace}, "status": status}
        try:
            answer = await self._client.apply(
                type(live), body, field_manager=self._field_manager, subresource="status"
            )
        except NotFound:
            return False
        self._remember(answer)
        return True

    def forget(self, kind: type[Kind], key: Key) -> None:
        """Drop the memory of an object that is gone."""
        self._answers.pop((kind, key), None)

    def _remember(self, answer: Kind) -> None:
        slot = (type(answer), answer.key)
        self._answers[slot] = answer
        self._answers.move_to_end(slot)
        if len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)


def _status(live: Kind) -> Any:
    return getattr(live, "status")  # noqa: B009 - every kind has one, each of its own type


def conditions_of(live: Kind) -> tuple[Condition, ...]:
    """Return the conditions of an object of any kind."""
    found: tuple[Condition, ...] = _status(live).conditions
    return found


def observed_generation(live: Kind) -> int:
    """Return of which version of its spec the status of an object of any kind speaks."""
    found: int = _status(live).observed_generation
    return found


def _bounded(one: Condition) -> Condition:
    """Return a condition whose message the API server takes, whatever it quotes."""
    message = shorten(one.message, MESSAGE_BYTES)
    return one if message is one.message else msgspec.structs.replace(one, message=message)


def _wire(one: Condition) -> dict[str, Any]:
    """Return a condition with every required field, also those that are empty."""
    wire: dict[str, Any] = {"reason": "", "message": "", **msgspec.to_builtins(one)}
    return wire


def _whole_second(moment: datetime) -> datetime:
    # Kubernetes' own times have no fractions; one with them would not survive a trip through other tools.
    return moment.astimezone(UTC).replace(microsecond=0)


def _newer(answer: Kind, live: Kind) -> bool:
    """Tell whether our last answer is of the same object and later than the cache."""
    ours, cached = answer.metadata.resource_version, live.metadata.resource_version
    return (
        answer.metadata.uid == live.metadata.uid
        and ours.isdecimal()
        and cached.isdecimal()
        and int(ours) > int(cached)
    )
