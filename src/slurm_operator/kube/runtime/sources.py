"""From what happened to the keys it concerns: channels, mappers and predicates.

A *mapper* turns one change into keys to reconcile. A *predicate* decides whether a change is worth mapping at
all. Both are plain functions of a `Change`, to be combined like any others. A predicate is an optimisation
and must never hide a change: in doubt it lets it through. That holds for additions and deletions, for
kinds without a generation, and for the change from an object to itself by which a store says that the object
became unreadable or readable again.

A `Channel` brings events from outside Kubernetes (a finished job, say) into the same queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from slurm_operator.kube.models.meta import Key, Object, T
from slurm_operator.kube.models.store import Change

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import ObjectMeta

E = TypeVar("E")

Mapper = Callable[[Change[T]], Iterable[Key]]
Predicate = Callable[[Change[T]], bool]


class Source(Protocol[T]):
    """What a controller needs of an informer: to be told every change, and at first all that is there."""

    def add_handler(self, handler: Callable[[Change[T]], None], /) -> object:
        """Call the handler with an addition for each object already known, and then with each change."""


class Channel(Generic[E]):
    """Hand events that no API server sends to every controller that watches the channel.

    An event reaches the queues before `send` returns. A channel stores nothing: an event that is sent before
    a controller subscribes is lost to it, so controllers are wired to channels before the sender starts.
    """

    def __init__(self) -> None:
        self._receivers: list[Callable[[E], None]] = []

    def subscribe(self, receiver: Callable[[E], None]) -> None:
        """Call the receiver with every event from now on; it must not raise."""
        self._receivers.append(receiver)

    def send(self, event: E) -> None:
        """Pass the event to every receiver; to be called from the loop's thread."""
        for receiver in self._receivers:
            receiver(event)


# --- mappers


def enqueue_self(change: Change[T]) -> Iterable[Key]:
    """Map an object to its own key."""
    return (change.key,)


def enqueue_owner(kind: type[Object]) -> Callable[[Change[T]], Iterable[Key]]:
    """Map an object to the owner that controls it, if that is of this kind; to both owners when it changed.

    The version in the reference does not matter: an owner keeps its children when its API version moves on.
    """
    group, owner_kind, namespaced = kind.RESOURCE.group, kind.RESOURCE.kind, kind.RESOURCE.namespaced

    def owners(change: Change[T]) -> Iterable[Key]:
        found: dict[Key, None] = {}
        for obj in (change.old, change.new):
            owner = None if obj is None else obj.controller_owner
            if obj is None or owner is None or owner.kind != owner_kind:
                continue
            owner_group, slash, _ = owner.api_version.rpartition("/")
            if (owner_group if slash else "") == group:
                found[Key(obj.metadata.namespace if namespaced else "", owner.name)] = None
        return found

    return owners


# --- predicates


def generation_changed(change: Change[T]) -> bool:
    """Return whether the spec changed: the generation moved, or the kind has none."""
    pair = _update(change)
    if pair is None:
        return True
    old, new = pair
    return old.generation != new.generation or new.generation == 0


def metadata_changed(change: Change[T]) -> bool:
    """Return whether labels, annotations, finalizers, owners or the deletion mark changed."""
    pair = _update(change)
    if pair is None:
        return True
    old, new = pair
    return (
        old.labels != new.labels
        or old.annotations != new.annotations
        or old.finalizers != new.finalizers
        or old.owner_references != new.owner_references
        or old.deletion_timestamp != new.deletion_timestamp
    )


def resource_version_changed(change: Change[T]) -> bool:
    """Return whether the API server wrote the object in between."""
    pair = _update(change)
    return pair is None or pair[0].resource_version != pair[1].resource_version


def any_of(*predicates: Callable[[Change[T]], bool]) -> Callable[[Change[T]], bool]:
    """Let a change through that at least one predicate lets through."""
    return lambda change: any(predicate(change) for predicate in predicates)


def all_of(*predicates: Callable[[Change[T]], bool]) -> Callable[[Change[T]], bool]:
    """Let a change through that every predicate lets through."""
    return lambda change: all(predicate(change) for predicate in predicates)


def ignore_status(change: Change[T]) -> bool:
    """Hide updates that touched only the status, for kinds that count generations."""
    return generation_changed(change) or metadata_changed(change)


def _update(change: Change[T]) -> tuple[ObjectMeta, ObjectMeta] | None:
    """Return both versions of an update; None for every change a predicate has to let through."""
    if change.old is None or change.new is None or change.old is change.new:
        return None
    return change.old.metadata, change.new.metadata
