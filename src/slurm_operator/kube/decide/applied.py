"""What was applied, and how to tell that nothing is left to apply; pure.

The fingerprint of a kind with `metadata.generation` is that number plus labels, annotations, owners and
finalizers: changes of status do not count. Kinds without one (ConfigMap, Secret, Service, ServiceAccount) are
told apart by their resourceVersion. A cache that has not caught up with our own last write is recognised by
its older resourceVersion; its next event brings the key back.
"""

from __future__ import annotations

import dataclasses
import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from slurm_operator.kube.decide.own_writes import is_older
from slurm_operator.kube.models.meta import Object

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T", bound=Object)


class ApplyOutcome(StrEnum):
    """What became of an apply."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    TERMINATING = "terminating"
    IMMUTABLE = "immutable"


@dataclasses.dataclass(frozen=True)
class Applied(Generic[T]):
    """The outcome, and the object: the server's answer, or the live one when the server was not asked."""

    outcome: ApplyOutcome
    object: T | None

    @property
    def changed(self) -> bool:
        """Return whether the server's state is another one now."""
        return self.outcome in (ApplyOutcome.CREATED, ApplyOutcome.UPDATED)

    @property
    def held(self) -> bool:
        """Return whether the desired state could not be applied; at most an owner was replaced."""
        return self.outcome in (ApplyOutcome.TERMINATING, ApplyOutcome.IMMUTABLE)


class AppliedObject:
    """What was wanted of an object, and what the server answered."""

    __slots__ = ("fingerprint", "uid", "version", "wanted")

    def __init__(self, wanted: bytes, answer: Object) -> None:
        self.wanted = wanted
        self.fingerprint = fingerprint(answer)
        self.uid = answer.metadata.uid
        self.version = answer.metadata.resource_version


def hash_desired(desired: Mapping[str, Any]) -> bytes:
    """Return a hash of a desired object that does not depend on the order of its keys."""
    text = msgspec.json.encode(desired, order="deterministic")
    return hashlib.blake2b(text, digest_size=16).digest()


def fingerprint(live: Object) -> bytes:
    """Return what changes with everything of an object that an apply could have to correct."""
    metadata = live.metadata
    if metadata.generation:
        state: Any = (
            metadata.generation,
            metadata.labels,
            metadata.annotations,
            sorted(metadata.finalizers),
            sorted(metadata.owner_references, key=lambda owner: owner.uid),
        )
    else:
        state = metadata.resource_version
    text = msgspec.json.encode((metadata.uid, state), order="deterministic")
    return hashlib.blake2b(text, digest_size=16).digest()


def is_current(record: AppliedObject, wanted: bytes, live: Object) -> bool:
    """Return whether an apply would change nothing, as far as is known."""
    if record.wanted != wanted or record.uid != live.metadata.uid:
        return False
    return record.fingerprint == fingerprint(live) or is_older(live.metadata.resource_version, record.version)


def outcome_of(live: Object | None, record: AppliedObject | None, answer: Object) -> ApplyOutcome:
    """Return what became of an object: as it was before, if at all, and as it was answered."""
    if live is not None and live.metadata.uid == answer.metadata.uid:
        unchanged = fingerprint(live) == fingerprint(answer)
    elif record is not None and record.uid == answer.metadata.uid:
        # Not in the cache yet, but we made it: the cache is late.
        unchanged = record.fingerprint == fingerprint(answer)
    else:
        return ApplyOutcome.CREATED
    return ApplyOutcome.UNCHANGED if unchanged else ApplyOutcome.UPDATED
