"""Which occurrences become an Event, which only raise a count, and which are dropped.

The first occurrence creates an Event. The same thing again (same object, type, reason, action, note, related
object) within `FINISH` seconds belongs to its series: the count goes up, and the Event is patched later, at
growing intervals, so that a storm is a few requests and a condition that lasts for hours costs one patch
every five minutes. After a longer silence the series is over and the next occurrence is a new Event.

New Events draw from a token bucket, one for each object, type and reason. So an object whose notes differ
each time cannot flood the server, and the hundreds of Pods that it created do not silence the one Warning
that follows. Patches need no token: there are never more series than tokens were spent, and each has its
interval.

Everything is bounded: only the series and buckets used last are kept. Pure: time is an argument.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable
    from datetime import datetime

    from slurm_operator.kube.models.meta import ObjectReference

# client-go: an event series ends when nothing was observed for six minutes.
FINISH = 360.0
# The first patch comes this long after the Event, each further one after twice the time, up to the longest.
# The longest is shorter than FINISH, so that a reader never takes a running series for a finished one.
FIRST_INTERVAL = 10.0
LONGEST_INTERVAL = 300.0
# client-go's spam filter: 25 events at once, then one every five minutes.
BURST = 25
REFILL_SECONDS = 300.0
# client-go's cache size.
MAX_TRACKED = 4096

# events.k8s.io limits, in bytes.
WORD_LIMIT = 128
_NAME_LIMIT = 253

Key = tuple["Hashable", ...]


@dataclasses.dataclass(frozen=True)
class Occurrence:
    """Something that happened to an object."""

    regarding: ObjectReference
    type: str
    reason: str
    action: str
    note: str
    time: datetime
    related: ObjectReference | None = None

    @property
    def object_key(self) -> Key:
        """Return what identifies the object it is about."""
        return _identity(self.regarding)

    @property
    def bucket_key(self) -> Key:
        """Return what shares a token bucket; reasons are words of the program, so there are few."""
        return (self.object_key, self.type, self.reason)

    @property
    def key(self) -> Key:
        """Return what two occurrences of one series have in common."""
        related = _identity(self.related) if self.related else ()
        return (self.object_key, self.type, self.reason, self.action, self.note, related)

    @property
    def namespace(self) -> str:
        """Return the namespace of the Event; that of a cluster-scoped object is `default`."""
        return self.regarding.namespace or "default"


@dataclasses.dataclass(frozen=True)
class Create:
    """Create an Event; with a count above one it replaces an Event that the server has forgotten."""

    name: str
    occurrence: Occurrence
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Patch:
    """Bring the series of an existing Event up to date."""

    name: str
    occurrence: Occurrence
    count: int
    last: datetime


@dataclasses.dataclass(frozen=True)
class Counted:
    """Nothing to send now: the occurrence shows in the next patch of its series, which `first` makes due."""

    first: bool


@dataclasses.dataclass(frozen=True)
class Drop:
    """Nothing to send ever."""

    reason: str


@dataclasses.dataclass
class _Series:
    name: str
    occurrence: Occurrence
    last: datetime
    last_seen: float
    patch_at: float
    interval: float = FIRST_INTERVAL
    count: int = 1
    reported: int = 1
    posted: bool = False

    @property
    def waits(self) -> bool:
        return self.posted and self.count > self.reported

    def over(self, now: float) -> bool:
        # What the server has not been told yet, because it is away, keeps the series alive.
        return self.posted and self.count == self.reported and now - self.last_seen >= FINISH


class EventCorrelator:
    """Decides for each occurrence, and remembers the series."""

    def __init__(self, *, burst: int = BURST, max_tracked: int = MAX_TRACKED) -> None:
        self._burst = burst
        self._max_tracked = max_tracked
        self._series: OrderedDict[Key, _Series] = OrderedDict()
        self._buckets: OrderedDict[Key, tuple[float, float]] = OrderedDict()
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._series)

    def offer(self, occurrence: Occurrence, now: float) -> Create | Counted | Drop:
        """Decide what an occurrence leads to."""
        series = self._series.get(occurrence.key)
        if series is not None and not series.over(now):
            series.count += 1
            series.last = occurrence.time
            series.last_seen = now
            self._series.move_to_end(occurrence.key)
            return Counted(first=series.count == series.reported + 1)
        if not self._take_token(occurrence.bucket_key, now):
            return Drop("rate_limited")
        name = self._name(occurrence)
        self._series[occurrence.key] = _Series(
            name, occurrence, occurrence.time, last_seen=now, patch_at=now + FIRST_INTERVAL
        )
        self._series.move_to_end(occurrence.key)
        if len(self._series) > self._max_tracked:
            self._series.popitem(last=False)
        return Create(name, occurrence)

    def posted(self, create: Create, now: float) -> None:
        """Note that the Event exists: from now on it may be patched."""
        series = self._current(create)
        if series is not None:
            series.posted = True
            series.reported = max(series.reported, create.count)
            series.patch_at = now + series.interval

    def lost(self, event: Create | Patch) -> None:
        """Forget a series whose Event could not be written; the next occurrence tries anew."""
        if self._current(event) is not None:
            del self._series[event.occurrence.key]

    def vanished(self, patch: Patch) -> Create:
        """Return the Event to create in place of one that the server no longer has."""
        name = self._name(patch.occurrence)
        series = self._current(patch)
        if series is not None:
            series.name = name
            series.posted = False
        return Create(name, dataclasses.replace(patch.occurrence, time=patch.last), patch.count)

    def unsent(self, patch: Patch, due: float) -> None:
        """Note that a patch did not get through; it is due again at a time, whatever the interval."""
        series = self._current(patch)
        if series is not None:
            series.reported = min(series.reported, patch.count - 1)
            series.patch_at = due

    def due(self, now: float, *, everything: bool = False) -> list[Patch]:
        """Return the patches to send now and count them as sent; drop the series that are over."""
        patches = []
        for series in list(self._series.values()):
            if series.waits and (everything or series.patch_at <= now):
                series.reported = series.count
                series.interval = min(series.interval * 2, LONGEST_INTERVAL)
                series.patch_at = now + series.interval
                patches.append(Patch(series.name, series.occurrence, series.count, series.last))
            elif series.over(now):
                del self._series[series.occurrence.key]
        return patches

    def next_due(self) -> float | None:
        """Return when the next patch is due, if any."""
        return min((item.patch_at for item in self._series.values() if item.waits), default=None)

    def _current(self, event: Create | Patch) -> _Series | None:
        series = self._series.get(event.occurrence.key)
        return series if series is not None and series.name == event.name else None

    def _take_token(self, key: Key, now: float) -> bool:
        tokens, since = self._buckets.get(key, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - since) / REFILL_SECONDS)
        allowed = tokens >= 1
        self._buckets[key] = (tokens - 1 if allowed else tokens, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._max_tracked:
            self._buckets.popitem(last=False)
        return allowed

    def _name(self, occurrence: Occurrence) -> str:
        """Return a name that is unique for this process: the object's, and a number that grows."""
        self._sequence = (self._sequence + 1) % 1000
        number = int(occurrence.time.timestamp() * 1_000_000) * 1000 + self._sequence
        suffix = f".{number:x}"
        # A cut may fall behind a '-' or '.', which must not stand before the suffix.
        return occurrence.regarding.name[: _NAME_LIMIT - len(suffix)].rstrip("-.") + suffix


def _identity(reference: ObjectReference) -> Key:
    return (
        reference.api_version,
        reference.kind,
        reference.namespace,
        reference.name,
        reference.uid,
        reference.field_path,
    )
