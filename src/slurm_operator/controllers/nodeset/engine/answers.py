"""What our own writes left behind, until the cache shows it.

A cache lags behind the writes of its own process. A pass within that time would find the world as it was
before and write the same once more; or, worse, choose differently. So the answers of the API server are kept
and put over what the cache has, as long as they are newer: versions of a kind can be compared as numbers,
Kubernetes promises that. An object that was made and that the cache does not show within seconds was deleted
by somebody else meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic

from slurm_operator.kube.meta import T

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.kube.meta import Object

# How long something that we made is believed in while the cache does not show it.
_CACHE_SECONDS: Final = 10.0


class Answers(Generic[T]):
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


def newer(one: Object, other: Object) -> bool:
    """Tell whether one version of an object is later than another; if nobody can tell, it is not."""
    versions = (one.metadata.resource_version, other.metadata.resource_version)
    if not all(version.isdecimal() for version in versions):
        return False
    first, second = map(int, versions)
    return first > second
