"""The way from the wire into the store: events and lists in, changes out to the handlers, nothing awaited.

The order of versions within one watch is the server's, so an event is applied as it comes. One thing can
overtake the stream: an object that did not decode is asked for by itself, and the answer may be newer than
events still on their way. Such an answer is kept with its version, and events of that key that are
strictly older are passed over until the stream has caught up. This is the only place where two
resourceVersions are compared. It is sound because Kubernetes declares versions of one resource to be
comparable decimal integers (1.35; etcd revisions before that), and it is not needed for the outcome: where
a version is not such an integer every event is applied, the object goes back for a moment, and the stream
brings it forward again.

An answer counts only while it is still wanted: any event of the key has told more meanwhile, and a list will
tell more. A list takes away the interest as it begins, not as it ends: its pages are a snapshot of its
beginning, and an answer applied between two of them may be newer than what the last one makes of the store.
That such an object is absent from the answer is not acted upon either; if it is gone, the
stream says so in its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple

import structlog

from slurm_operator.kube.decide.own_writes import is_older
from slurm_operator.kube.decide.reflector_state import ErrorLogFilter
from slurm_operator.kube.manifests.wire import BadObject
from slurm_operator.kube.models.meta import Key, ObjectMeta, T
from slurm_operator.kube.models.store import Change, Store, describe_failure
from slurm_operator.kube.process import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

Handler = Callable[[Change[T]], None]

log = structlog.get_logger(__name__)

# A handler that fails on one object is likely to fail on thousands.
_REMIND_SECONDS = 300.0


class Doubt(NamedTuple):
    """An object to ask for by itself; `ticket` tells one doubt about a key from a later one."""

    key: Key
    ticket: int


class Listing(Generic[T]):
    """The pages of one list, as far as they have arrived."""

    __slots__ = ("doubtful", "objects", "stand_ins", "unreadable")

    def __init__(self) -> None:
        self.objects: list[T] = []
        self.unreadable: dict[Key, str] = {}
        self.stand_ins: dict[Key, T] = {}
        self.doubtful: list[Key] = []


class Intake(Generic[T]):
    """Applies what the server sends to one store and tells the handlers.

    `ask` is called with each object that should be asked for by itself; the outcome comes back through
    `answered` or `settle`.
    """

    def __init__(
        self, kind: type[T], ask: Callable[[Doubt], None], transform: Callable[[T], T] | None = None
    ) -> None:
        self.store: Store[T] = Store()
        self.handlers: tuple[Handler[T], ...] = ()
        self._ask = ask
        self._type = kind
        self._kind = kind.RESOURCE.kind
        self._transform = transform
        self._unreadable = self.store.unreadable
        self._tickets: dict[Key, int] = {}
        self._next_ticket = 0
        self._overtook: dict[Key, str] = {}
        self._decode_errors = metrics.DECODE_ERRORS.labels(self._kind)
        self._handler_errors = metrics.HANDLER_ERRORS.labels(self._kind)
        self._cache_objects = metrics.CACHE_OBJECTS.labels(self._kind)
        self._counted = 0
        self._reporter = ErrorLogFilter(_REMIND_SECONDS)

    def add_handler(self, handler: Handler[T]) -> None:
        """Call the handler with every change from now on, and with an added one for what is there already."""
        self.handlers = (*self.handlers, handler)
        self.deliver([Change(None, obj) for obj in self.store.list()], (handler,))

    def deliver(self, changes: Iterable[Change[T]], handlers: tuple[Handler[T], ...]) -> None:
        """Tell the handlers; one that raises is logged and counted and spoils nothing else."""
        for change in changes:
            for handler in handlers:
                try:
                    handler(change)
                except Exception as error:
                    self._handler_errors.inc()
                    if self._reporter.due((_name(handler), type(error)), time.monotonic()):
                        log.exception(
                            "cache handler failed; the same again is counted, not logged",
                            kind=self._kind,
                            object=str(change.key),
                            handler=_name(handler),
                        )

    def count_objects(self) -> None:
        """Bring the gauge up to date; informers of one kind share it, so each adds its difference."""
        size = len(self.store)
        self._cache_objects.inc(size - self._counted)
        self._counted = size

    # --- watch

    def event(self, event_type: str, obj: T | BadObject | None) -> None:
        """Apply one watch event."""
        if obj is None or event_type == "BOOKMARK":
            return
        if (self._tickets or self._overtook) and self._overtaken(
            obj.key, obj.resource_version if isinstance(obj, BadObject) else obj.metadata.resource_version
        ):
            return
        if isinstance(obj, BadObject):
            changes = self._bad_event(event_type, obj)
        elif event_type == "DELETED":
            changes = self.store.remove(obj.key, obj.metadata.uid)
        else:
            changes = self._put(obj)
        if changes:
            self.deliver(changes, self.handlers)

    def _put(self, obj: T) -> list[Change[T]]:
        if self._transform is not None:
            try:
                obj = self._transform(obj)
            except Exception as error:  # noqa: BLE001 - foreign code; the object becomes unreadable instead
                return self._refuse(obj.key, describe_failure("transform", error), obj)
        known = self._unreadable.get(obj.key) if self._unreadable else None
        changes = self.store.put(obj)
        if self._unreadable:
            reason = self._unreadable.get(obj.key)
            if reason is not None:
                self._complain(obj.key, reason, known)
        return changes

    def _bad_event(self, event_type: str, bad: BadObject) -> list[Change[T]]:
        if event_type == "DELETED":
            # Only the name is needed to know that it is gone.
            self._decode_errors.inc()
            return self.store.remove(bad.key)
        changes = self._refuse(bad.key, bad.error, self._stand_in(bad))
        self._doubt(bad.key)
        return changes

    def _overtaken(self, key: Key, version: str) -> bool:
        """Return whether the stored version came from an answer newer than this event."""
        ahead = self._overtook.get(key)
        if ahead is not None:
            if is_older(version, ahead):
                return True
            del self._overtook[key]
        self._tickets.pop(key, None)
        return False

    # --- list

    def begin(self, namespace: str | None) -> Listing[T]:
        """Begin a list, which will tell more than any answer on its way now."""
        self._forget_doubts(namespace)
        return Listing()

    def collect(self, listing: Listing[T], objects: list[T], bad: Iterable[BadObject]) -> None:
        """Add one page to a list under way."""
        transform = self._transform
        if transform is None:
            listing.objects += objects
        else:
            for obj in objects:
                try:
                    listing.objects.append(transform(obj))
                except Exception as error:  # noqa: BLE001 - foreign code; the object becomes unreadable instead
                    listing.unreadable[obj.key] = describe_failure("transform", error)
                    listing.stand_ins[obj.key] = obj
        for item in bad:
            listing.unreadable[item.key] = item.error
            stand_in = self._stand_in(item)
            if stand_in is not None:
                listing.stand_ins[item.key] = stand_in
            listing.doubtful.append(item.key)

    def relist(self, listing: Listing[T], namespace: str | None) -> list[Change[T]]:
        """Make a complete list the contents of the store; the caller delivers the changes."""
        known = dict(self._unreadable)
        changes = self.store.replace(
            listing.objects,
            namespace=namespace,
            unreadable=listing.unreadable,
            stand_ins=listing.stand_ins,
        )
        for key, reason in self._unreadable.items():
            if namespace is None or key.namespace == namespace:
                self._complain(key, reason, known.get(key))
        for key in listing.doubtful:
            self._doubt(key)
        return changes

    def _forget_doubts(self, namespace: str | None) -> None:
        for key in {*self._tickets, *self._overtook}:
            if namespace is None or key.namespace == namespace:
                self._tickets.pop(key, None)
                self._overtook.pop(key, None)

    # --- objects asked for by themselves

    def wanted(self, doubt: Doubt) -> bool:
        """Return whether nothing newer has been heard of an object since the doubt arose."""
        return self._tickets.get(doubt.key) == doubt.ticket

    def answered(self, doubt: Doubt, obj: T) -> None:
        """Apply an object that was asked for by itself, if it is still wanted."""
        if not self.wanted(doubt):
            return
        del self._tickets[doubt.key]
        self._overtook[doubt.key] = obj.metadata.resource_version
        self.deliver(self._put(obj), self.handlers)

    def settle(self, doubt: Doubt) -> None:
        """Give up asking: the object is bad indeed, or gone; the next event or list will tell."""
        if self.wanted(doubt):
            del self._tickets[doubt.key]

    def _doubt(self, key: Key) -> None:
        if not key.name:
            return
        self._next_ticket += 1
        self._tickets[key] = self._next_ticket
        self._ask(Doubt(key, self._next_ticket))

    def _refuse(self, key: Key, reason: str, stand_in: T | None) -> list[Change[T]]:
        known = self._unreadable.get(key)
        changes = self.store.mark_unreadable(key, reason, stand_in)
        self._complain(key, reason, known)
        return changes

    def _stand_in(self, bad: BadObject) -> T | None:
        """Return an object of the kind that has only the metadata of one that did not decode."""
        if not bad.key.name:
            return None
        known = bad.metadata.name == bad.key.name
        meta = bad.metadata if known else ObjectMeta(namespace=bad.key.namespace, name=bad.key.name)
        try:
            return self._type(metadata=meta)
        except TypeError:
            # A kind that requires more than metadata has no stand-in.
            return None

    def _complain(self, key: Key, reason: str, known: str | None) -> None:
        """Count every time, log once: an object that stays bad may change ten times a second."""
        self._decode_errors.inc()
        if reason != known:
            log.error("object is unreadable", kind=self._kind, object=str(key), error=reason)


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", type(handler).__name__)
