"""What this process has written and its own cache has not shown yet.

A controller counts pods in a cache that lags behind its own writes. Between a create and its watch event
the new pod is missing from the count, and a second reconcile would create one too many; after a delete it
would delete one too many. So the controller raises an expectation immediately before each write, the watch
handlers lower it, and the controller does not scale while any is open.

A creation is expected by name, so names are chosen here and not by the API server (`generated_name`); a
repeated create after a lost answer then hits AlreadyExists instead of making a second object. Once the
answer is known, `created` pins the expectation to the UID: a late event about an older object of that name
does not count. A deletion is expected by UID. Observing the same thing twice, or before the write has
returned, is harmless.

A write that certainly failed lowers its expectation (`creation_failed`, `deletion_failed`). So does a create
whose outcome is unknown, where the name is fixed: the next one finds out. A deletion of unknown outcome is
expected for `UNKNOWN_EXPIRY` (`deletion_unknown`), for another object may be chosen next. What never comes
true (a pod deleted by a third party before its create was seen) ends with `EXPIRY`; `expires_in` tells the
controller when to reconcile again.

Pure: time is an argument, nothing is awaited. One key is reconciled by one worker at a time, so `satisfied`
is never asked while a write of that key is under way.
"""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

K = TypeVar("K", bound="Hashable")

# What the ReplicaSet and DaemonSet controllers of Kubernetes use.
EXPIRY = 300.0
# kube-apiserver gives up a request after a minute at most; what it has done by then, the watch shows.
UNKNOWN_EXPIRY = 60.0

# Kubernetes' alphabet for generated names: no vowels, so no words, and no characters that look alike.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_PREFIX = 58


class Pending(NamedTuple):
    """What is still expected for a key: names to appear, UIDs to disappear."""

    creations: tuple[str, ...]
    deletions: tuple[str, ...]


class _Creation:
    """One expected object: the UID it got, once known, and the UIDs seen under its name meanwhile."""

    __slots__ = ("seen", "uid")

    def __init__(self) -> None:
        self.uid = ""
        self.seen: set[str] = set()

    @property
    def open(self) -> bool:
        return self.uid not in self.seen if self.uid else not self.seen


class _Record:
    __slots__ = ("creations", "deletions", "since", "unknown")

    def __init__(self, now: float) -> None:
        self.creations: dict[str, _Creation] = {}
        self.deletions: set[str] = set()
        self.since = now
        self.unknown: dict[str, float] = {}
        """Until when deletions of unknown outcome are expected, by UID."""


class Expectations(Generic[K]):
    """Open creations and deletions per key."""

    def __init__(self, expiry: float = EXPIRY) -> None:
        self._expiry = expiry
        self._records: dict[K, _Record] = {}

    def __len__(self) -> int:
        return len(self._records)

    def expect_creations(self, key: K, names: Iterable[str], now: float) -> None:
        """Announce objects about to be created; call immediately before the writes."""
        record = self._raise(key, now)
        for name in names:
            record.creations[name] = _Creation()

    def expect_deletions(self, key: K, uids: Iterable[str], now: float) -> None:
        """Announce objects about to be deleted; call immediately before the writes."""
        record = self._raise(key, now)
        for uid in uids:
            record.deletions.add(uid)
            record.unknown.pop(uid, None)

    def created(self, key: K, name: str, uid: str) -> None:
        """Pin an expected creation to the UID that the API server answered."""
        creation = self._creation(key, name)
        if creation is not None:
            creation.uid = uid

    def creation_failed(self, key: K, name: str) -> None:
        """Withdraw an expected creation: it had no effect, or the next one under that name finds out."""
        record = self._records.get(key)
        if record is not None:
            record.creations.pop(name, None)

    def deletion_failed(self, key: K, uid: str) -> None:
        """Withdraw an expected deletion whose write certainly had no effect."""
        self.deletion_observed(key, uid)

    def deletion_unknown(self, key: K, uid: str, now: float) -> None:
        """Expect a deletion for less time, as it is not known whether the write had any effect."""
        record = self._records.get(key)
        if record is not None and uid in record.deletions:
            record.unknown[uid] = now + UNKNOWN_EXPIRY

    def creation_observed(self, key: K, name: str, uid: str) -> None:
        """Note that the cache shows an object."""
        creation = self._creation(key, name)
        if creation is not None:
            creation.seen.add(uid)

    def deletion_observed(self, key: K, uid: str) -> None:
        """Note that the cache no longer shows an object, or shows it terminating."""
        record = self._records.get(key)
        if record is not None:
            record.deletions.discard(uid)
            record.unknown.pop(uid, None)

    def satisfied(self, key: K, now: float) -> bool:
        """Return whether the cache has caught up with the writes of this key, or has had its time."""
        record = self._records.get(key)
        if record is None:
            return True
        for uid in [uid for uid, until in record.unknown.items() if now >= until]:
            self.deletion_observed(key, uid)
        expired = now - record.since >= self._expiry
        if expired or not (record.deletions or any(item.open for item in record.creations.values())):
            del self._records[key]
            return True
        return False

    def pending(self, key: K) -> Pending:
        """Return what is still expected, for logs and conditions."""
        record = self._records.get(key)
        if record is None:
            return Pending((), ())
        names = sorted(name for name, creation in record.creations.items() if creation.open)
        return Pending(tuple(names), tuple(sorted(record.deletions)))

    def expires_in(self, key: K, now: float) -> float | None:
        """Return the seconds until a key's expectations expire, or None when it has none."""
        record = self._records.get(key)
        if record is None:
            return None
        return max(0.0, min(record.since + self._expiry, *record.unknown.values(), math.inf) - now)

    def forget(self, key: K) -> None:
        """Drop everything about a key, when its object is gone."""
        self._records.pop(key, None)

    def _raise(self, key: K, now: float) -> _Record:
        record = self._records.setdefault(key, _Record(now))
        record.since = now
        return record

    def _creation(self, key: K, name: str) -> _Creation | None:
        record = self._records.get(key)
        return None if record is None else record.creations.get(name)


def generated_name(prefix: str) -> str:
    """Return the prefix with a random suffix, as the API server makes it from `generateName`."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return prefix[:_MAX_PREFIX] + suffix
