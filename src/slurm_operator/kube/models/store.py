"""The cache of an informer: the objects of one kind, by name and by index, without any I/O.

Every mutation returns the `Change`s it made, in order, so that a view that is rebuilt from the changes
alone ends with exactly the contents of the store (the property tests verify that). A changed UID is
another object under an old name, hence two changes: one that deletes, one that adds. An object that comes
again with the resourceVersion already stored is no change at all.

A question about a key has three answers here, as it has for Slurm nodes. *Known*: `get` returns the
object. *Absent*: `get` returns None and the key is not in `unreadable`. *Unknown*: the key is in
`unreadable`, because the current version of the object did not decode, or a transform or an index function
failed on it. Whatever was readable before stays in the store then: the object does exist, and if it were
dropped, readers would create it a second time or treat its work as finished. It is not current either, which
is what the mark means; a decision that must not be based on an old version checks `unreadable` first. The
handlers get the mark, and its end, as an update from the object to itself: after the update that ended it, if
one did, so that no predicate filters out the end as an irrelevant update.

An object that never was readable is not in the store. Handlers are notified of it all the same: it comes as
an addition once it is readable, and if it is deleted before that, a stand-in with as much of its metadata as
is known is added and deleted at once.

Objects are shared, never copied: they are frozen structs, and a reader must leave their dicts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple

from slurm_operator.kube.models.meta import Key, T

if TYPE_CHECKING:
    import builtins

IndexFunction = Callable[[T], Iterable[str]]


class Change(NamedTuple, Generic[T]):
    """One step of the store: an object before (None: it was not there) and after (None: it is gone)."""

    old: T | None
    new: T | None

    @property
    def object(self) -> T:
        """Return the object as it is now, or as it was last if it is gone."""
        found = self.old if self.new is None else self.new
        if found is None:
            raise ValueError("a change needs an object before or after it")
        return found

    @property
    def key(self) -> Key:
        """Return the key of the object."""
        return self.object.key

    @property
    def added(self) -> bool:
        """Return whether the object was not there before."""
        return self.old is None

    @property
    def updated(self) -> bool:
        """Return whether the object was there before and still is."""
        return self.old is not None and self.new is not None

    @property
    def deleted(self) -> bool:
        """Return whether the object is gone."""
        return self.new is None


class _Index(Generic[T]):
    """The objects by each value a function gives them.

    The values of the object that leaves are computed again instead of being remembered: a pure function of a
    frozen object gives the same answer twice, and memory per cached object is the scarcer good.
    """

    __slots__ = ("_buckets", "_function", "_name")

    def __init__(self, name: str, function: IndexFunction[T]) -> None:
        self._name = name
        self._function = function
        self._buckets: dict[str, dict[Key, T]] = {}

    def values(self, obj: T) -> tuple[str, ...]:
        """Return the values of an object; a function that fails is named in the error."""
        try:
            values = self._function(obj)
            if isinstance(values, str):
                raise _OneString  # noqa: TRY301 - wrapped below, like what the function itself raises
            return tuple(values)
        except Exception as error:
            raise _IndexFailed(describe_failure(f"index {self._name!r}", error)) from error

    def move(self, key: Key, old: T | None, new: T | None, values: tuple[str, ...]) -> None:
        """Take the old object out and put the new one in, under values already computed."""
        buckets = self._buckets
        if old is not None:
            for value in self.values(old):
                bucket = buckets.get(value)
                # A function may give a value twice: the second time its bucket can be gone.
                if bucket is not None and value not in values:
                    bucket.pop(key, None)
                    if not bucket:
                        del buckets[value]
        if new is not None:
            for value in values:
                buckets.setdefault(value, {})[key] = new

    def find(self, value: str) -> builtins.list[T]:
        """Return the objects that have a value."""
        bucket = self._buckets.get(value)
        return [] if bucket is None else [*bucket.values()]


class _IndexFailed(Exception):  # noqa: N818 - it names what happened
    """An index function raised."""


class _OneString(TypeError):  # noqa: N818 - it names what happened
    """An index function returned a string, which would be taken letter by letter."""


def describe_failure(what: str, error: Exception) -> str:
    """Say what failed and where, without the error's own text: that may quote the value of a secret."""
    if isinstance(error, _OneString):
        return f"{what} returned a string: it must return a tuple or list of strings"
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    where = (
        ""
        if traceback is None
        else f" in {traceback.tb_frame.f_code.co_qualname}, line {traceback.tb_lineno}"
    )
    return f"{what} failed: {type(error).__name__}{where}"


class Store(Generic[T]):
    """The objects of one kind, kept by `put`, `remove`, `replace` and `mark_unreadable`."""

    def __init__(self) -> None:
        # Two levels instead of one dict by Key: a namespace can be listed and replaced alone, and no key
        # objects are kept.
        self._spaces: dict[str, dict[str, T]] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._unreadable: dict[Key, str] = {}
        self._stand_ins: dict[Key, T] = {}
        self._size = 0

    # --- reading

    def get(self, key: Key) -> T | None:
        """Return the object of this name, or None."""
        space = self._spaces.get(key[0])
        return None if space is None else space.get(key[1])

    def list(self, namespace: str | None = None) -> builtins.list[T]:
        """Return every object, or those of one namespace, in a new list of the shared objects."""
        if namespace is None:
            return [obj for space in self._spaces.values() for obj in space.values()]
        space = self._spaces.get(namespace)
        return [] if space is None else [*space.values()]

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        """Return the objects to which the index function gives this value."""
        found = self._indexes.get(index)
        if found is None:
            known = ", ".join(sorted(self._indexes)) or "none"
            raise KeyError(f"no index {index!r} in this store (it has: {known}); add it with add_index")
        return found.find(value)

    def keys(self) -> builtins.list[Key]:
        """Return the keys of all objects."""
        return [Key(namespace, name) for namespace, space in self._spaces.items() for name in space]

    @property
    def unreadable(self) -> Mapping[Key, str]:
        """Return the keys whose current version is unknown, each with the reason."""
        return MappingProxyType(self._unreadable)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    # --- changing

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Keep the objects by each string the function returns; the function must be pure."""
        if name in self._indexes:
            raise ValueError(f"index {name!r} exists already; give the second one another name")
        index = _Index(name, function)
        for obj in self.list():
            index.move(obj.key, None, obj, index.values(obj))
        self._indexes[name] = index

    def put(self, obj: T) -> builtins.list[Change[T]]:
        """Store the current version of an object."""
        meta = obj.metadata
        namespace, name = meta.namespace, meta.name
        space = self._spaces.get(namespace)
        old = None if space is None else space.get(name)
        was_unreadable = bool(self._unreadable) and Key(namespace, name) in self._unreadable
        if old is not None and old.metadata.uid == meta.uid:
            version = meta.resource_version
            if version and old.metadata.resource_version == version:
                return self._mark_readable(old) if was_unreadable else []
        if self._indexes:
            key = Key(namespace, name)
            try:
                self._reindex(key, old, obj)
            except _IndexFailed as error:
                return self.mark_unreadable(key, str(error), obj)
        if was_unreadable:
            self._unmark(Key(namespace, name))
        if space is None:
            space = self._spaces[namespace] = {}
        space[name] = obj
        if old is None:
            self._size += 1
            return [Change(None, obj)]
        if old.metadata.uid == meta.uid:
            return [Change(old, obj), Change(obj, obj)] if was_unreadable else [Change(old, obj)]
        return [Change(old, None), Change(None, obj)]

    def remove(self, key: Key, uid: str | None = None) -> builtins.list[Change[T]]:
        """Forget an object; with a UID, only if the stored one has it or is of unknown UID (unreadable)."""
        old = self.get(key)
        marked = key in self._unreadable
        if old is not None and uid is not None and old.metadata.uid != uid and not marked:
            return []
        stand_in = self._unmark(key) if marked else None
        if old is None:
            return [] if stand_in is None else [Change(None, stand_in), Change(stand_in, None)]
        for index in self._indexes.values():
            index.move(key, old, None, ())
        space = self._spaces[key.namespace]
        del space[key.name]
        if not space:
            del self._spaces[key.namespace]
        self._size -= 1
        return [Change(old, None)]

    def replace(
        self,
        objects: Iterable[T],
        *,
        namespace: str | None = None,
        unreadable: Mapping[Key, str] = MappingProxyType({}),
        stand_ins: Mapping[Key, T] = MappingProxyType({}),
    ) -> builtins.list[Change[T]]:
        """Make a complete list the contents (of one namespace only, if given); what it lacks is deleted."""
        listed = {(obj.metadata.namespace, obj.metadata.name): obj for obj in objects}
        changes: builtins.list[Change[T]] = []
        spaces = self._spaces if namespace is None else {namespace: self._spaces.get(namespace, {})}
        gone = [
            Key(space_name, name)
            for space_name, space in spaces.items()
            for name in space
            if (space_name, name) not in listed and (space_name, name) not in unreadable
        ]
        for key in gone:
            changes += self.remove(key)
        for key in [key for key in self._unreadable if namespace is None or key.namespace == namespace]:
            if key not in unreadable and key not in listed:
                changes += self.remove(key)
        for obj in listed.values():
            changes += self.put(obj)
        for key, reason in unreadable.items():
            changes += self.mark_unreadable(key, reason, stand_ins.get(key))
        return changes

    def mark_unreadable(self, key: Key, reason: str, stand_in: T | None = None) -> builtins.list[Change[T]]:
        """Note that the object exists in a version that cannot be read; what was readable before stays."""
        known = key in self._unreadable
        self._unreadable[key] = reason
        old = self.get(key)
        if old is None and stand_in is not None:
            self._stand_ins[key] = stand_in
        return [] if known or old is None else [Change(old, old)]

    def _mark_readable(self, obj: T) -> builtins.list[Change[T]]:
        self._unmark(obj.key)
        return [Change(obj, obj)]

    def _unmark(self, key: Key) -> T | None:
        """End a mark; return what stands in for the object, if it never was readable."""
        del self._unreadable[key]
        return self._stand_ins.pop(key, None)

    def _reindex(self, key: Key, old: T | None, new: T) -> None:
        """Move an object in every index, or in none if one function fails: all of them answer first."""
        indexes = self._indexes.values()
        for index, values in [(index, index.values(new)) for index in indexes]:
            index.move(key, old, new, values)
