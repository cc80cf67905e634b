"""What our own writes left behind, until the cache shows it; pure.

A cache lags behind the writes of its own process. A reconcile within that time would find the state from
before and write the same once more; or, worse, choose differently. So the responses of the API server are
kept and replace what the cache has, as long as they are newer: Kubernetes guarantees that the versions of a
kind can be compared as numbers. An object that was created and that the cache does not show within seconds
was deleted by another client in the meantime.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic

from slurm_operator.kube.models.meta import T

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.kube.models.meta import Key, Object

# How long something that we wrote is assumed to exist while the cache does not show it.
_CACHE_SECONDS: Final = 10.0
# An answer that is dropped too early costs one write that changes nothing.
_MAX_ANSWERS: Final = 16_384


def is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion lies before another; False if they cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def newer(one: Object, other: Object) -> bool:
    """Return whether one version of an object is later than another; False if they cannot be compared."""
    return is_older(other.metadata.resource_version, one.metadata.resource_version)


def is_ahead(answer: Object, cached: Object) -> bool:
    """Return whether the answer to a write of ours is of the same object and later than the cache."""
    return answer.metadata.uid == cached.metadata.uid and newer(answer, cached)


class LastWrites(Generic[T]):
    """The answers to our last writes, one per object, by kind and key."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[type[Object], Key], T] = OrderedDict()

    def newest(self, cached: T) -> T:
        """Return an object as it was last seen: in the cache, or in the answer to our own last write."""
        place = (type(cached), cached.key)
        answer = self._answers.get(place)
        if answer is None:
            return cached
        if is_ahead(answer, cached):
            return answer
        if newer(cached, answer):
            # Not before: callers ask about the answer itself, too, while the cache is still behind.
            del self._answers[place]
        return cached

    def note(self, answer: T) -> None:
        """Take an object as the API server answered our write."""
        place = (type(answer), answer.key)
        self._answers[place] = answer
        self._answers.move_to_end(place)
        if len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)

    def forget(self, kind: type[Object], key: Key) -> None:
        """Drop the answer for an object that is gone."""
        self._answers.pop((kind, key), None)


class OwnWrites(Generic[T]):
    """Objects of one kind as our own last writes left them, by UID."""

    __slots__ = ("_changed", "_gone", "_made")

    def __init__(self) -> None:
        self._changed: dict[str, T] = {}
        self._made: dict[str, tuple[T, float]] = {}
        self._gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._changed) + len(self._made) + len(self._gone)

    def changed(self, answer: T) -> None:
        """Note what an object became by a change of ours."""
        self._changed[answer.metadata.uid] = answer

    def made(self, answer: T, now: float) -> None:
        """Note an object that we made."""
        self._made[answer.metadata.uid] = (answer, now + _CACHE_SECONDS)

    def deleted(self, uid: str) -> None:
        """Note that we have deleted an object."""
        self._gone.add(uid)

    def newest(self, cached: Iterable[T], now: float) -> list[T]:
        """Return what there is, by the cache or by our own last writes; what the cache shows is forgotten."""
        if not len(self):
            return [*cached]
        shown = {one.metadata.uid: one for one in cached}
        self._gone &= shown.keys()
        self._made = {uid: entry for uid, entry in self._made.items() if uid not in shown and now < entry[1]}
        shown |= {uid: answer for uid, (answer, _) in self._made.items()}
        self._changed = {
            uid: answer for uid, answer in self._changed.items() if uid in shown and newer(answer, shown[uid])
        }
        shown |= self._changed
        return [one for uid, one in shown.items() if uid not in self._gone]
