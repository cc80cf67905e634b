"""The queue between watches and workers.

`QueueCore` is the whole behaviour as a state machine without a clock, a loop or a lock; `WorkQueue` puts it
on the event loop, lets workers wait, and keeps the metrics. The rules of the core:

- A key waits at most once. Adding a waiting key changes nothing: the run that is coming will see the newest
  state.
- A key is in work at most once. Added while in work, it waits until `done` and then runs again, exactly once
  however often it was added.
- Keys of one group (a namespace) are handed out in the order in which they became ready. Groups take turns
  (`decide.turns`): one with ten thousand ready keys delays the key of another by one turn, and a hundred busy
  groups delay that of a quiet one by a few. So they do with the key of a busy one that is added as `urgent`,
  because a user waits for it; once in a round, and in the order of its group.
- At most `most` keys of a group are in work. Those beyond wait for a `done` of their own group, and keep no
  worker from the others.
- A delayed add makes the key ready at its time. Of several delayed adds of one key the earliest wins; the run
  it causes looks at the whole object and asks for a later one if it still needs it.
- A plain add leaves a pending delayed add alone. Who asked for a run in a minute (a drain that then times
  out, a `minReadySeconds` that then is over) was not served by a run now, and the queue cannot know that the
  run now will ask again. The price is at most one reconcile that finds nothing to do; the other choice can
  lose a requeue. A delayed add that comes due while its key waits merges with it; while its key is in work,
  it causes one more run.
- After `shutdown` nothing is accepted any more and delayed adds are gone. With `drain` the waiting keys are
  still handed out, also those that wait for their own `done`; without it they are dropped.

Everything costs O(log n) in the number of delayed keys or O(1).
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from slurm_operator.kube.decide.backoff import Backoff
from slurm_operator.kube.decide.turns import Turns
from slurm_operator.kube.process import metrics

K = TypeVar("K", bound=Hashable)

# Replaced entries stay in the heap; it is rebuilt when they outnumber the live ones by this much.
_STALE_SLACK = 64


class QueueShutDown(Exception):  # noqa: N818 - it names what happened, like asyncio's own QueueEmpty
    """The queue was shut down and has nothing more to hand out."""


class KeyTiming(NamedTuple):
    """When a key in work became ready, and when it was handed out."""

    ready: float
    started: float


class QueueCore(Generic[K]):
    """Decide which key is worked on next; see the module's text for the rules."""

    __slots__ = (
        "_busy",
        "_count",
        "_delayed",
        "_group",
        "_heap",
        "_most",
        "_ready",
        "_sequence",
        "_shut",
        "_turns",
        "_urgent",
        "_waiting",
        "_work",
        "accepted",
    )

    def __init__(self, group: Callable[[K], Hashable] | None = None, most: int | None = None) -> None:
        self._group = group or _one_group
        self._most = most
        self._ready: dict[Hashable, deque[K]] = {}
        # The groups with a ready key that may run.
        self._turns: Turns[Hashable] = Turns()
        self._busy: dict[Hashable, int] = {}
        self._count = 0
        # Every key that must run, with the time it became ready: those in `_ready`, and those in work again.
        self._waiting: dict[K, float] = {}
        self._urgent: set[K] = set()
        self._work: dict[K, KeyTiming] = {}
        self._delayed: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._shut = False
        self.accepted = 0
        """Adds, delayed ones included once due, that were not merged with a waiting key."""

    def add(self, key: K, now: float, *, urgent: bool = False) -> None:
        """Make the key ready."""
        self._promote(now)
        self._make_ready(key, now)
        if urgent and key in self._waiting:
            self._urgent.add(key)
            if key not in self._work:
                self._take_turns(self._group(key), before=True)

    def add_after(self, key: K, delay: float, now: float) -> None:
        """Make the key ready after `delay` seconds, or earlier if an earlier delayed add is pending."""
        if not math.isfinite(delay):
            raise ValueError(f"delay of {key!r} must be a finite number of seconds, not {delay!r}")
        if delay <= 0:
            self.add(key, now)
            return
        if self._shut:
            return
        self._promote(now)
        due = now + delay
        pending = self._delayed.get(key)
        if pending is not None and pending[0] <= due:
            return
        self._sequence += 1
        self._delayed[key] = (due, self._sequence)
        heapq.heappush(self._heap, (due, self._sequence, key))
        if len(self._heap) > 2 * len(self._delayed) + _STALE_SLACK:
            self._heap = [(due, sequence, key) for key, (due, sequence) in self._delayed.items()]
            heapq.heapify(self._heap)

    def pop(self, now: float) -> K | None:
        """Hand out the key that has been ready longest in the group whose turn it is, or None."""
        self._promote(now)
        if (group := self._turns.pop()) is None:
            return None
        keys = self._ready[group]
        key = keys.popleft()
        self._count -= 1
        if not keys:
            del self._ready[group]
        self._work[key] = KeyTiming(self._waiting.pop(key), now)
        self._urgent.discard(key)
        self._busy[group] = self._busy.get(group, 0) + 1
        self._take_turns(group)
        return key

    def done(self, key: K, now: float) -> KeyTiming:
        """Take the key out of work; it becomes ready at once if it was added meanwhile."""
        self._promote(now)
        if key not in self._work:
            raise ValueError(f"{key!r} is not in work: done() belongs to a key that pop() handed out")
        work = self._work.pop(key)
        group = self._group(key)
        self._busy[group] -= 1
        if not self._busy[group]:
            del self._busy[group]
        if key in self._waiting:
            self._append(key, group)
        self._take_turns(group, before=key in self._urgent)
        return work

    def next_wake(self, now: float) -> float | None:
        """Return when `pop` will have a key: now, at the earliest delayed add, or never (None)."""
        due = self.next_due(now)
        return now if self._turns else due

    def next_due(self, now: float) -> float | None:
        """Return when the earliest pending delayed add comes due, if there is one."""
        self._promote(now)
        return self._heap[0][0] if self._heap else None

    def shutdown(self, *, drain: bool = False) -> None:
        """Accept nothing more; hand out what waits only if `drain`."""
        self._shut = True
        self._delayed.clear()
        self._heap.clear()
        if not drain:
            self._ready.clear()
            self._turns = Turns()
            self._count = 0
            self._waiting.clear()
            self._urgent.clear()

    @property
    def shutting_down(self) -> bool:
        """Return whether `shutdown` was called."""
        return self._shut

    @property
    def finished(self) -> bool:
        """Return whether `pop` will never hand out a key again."""
        return self._shut and not self._waiting

    @property
    def idle(self) -> bool:
        """Return whether no key is ready or in work; delayed adds may be pending."""
        return not self._waiting and not self._work

    @property
    def work(self) -> Mapping[K, KeyTiming]:
        """Return the keys in work."""
        return MappingProxyType(self._work)

    @property
    def delayed(self) -> int:
        """Return how many keys have a delayed add pending."""
        return len(self._delayed)

    def __len__(self) -> int:
        """Return how many keys are ready; a key that waits for its own `done` is not."""
        return self._count

    def _append(self, key: K, group: Hashable) -> None:
        self._ready.setdefault(group, deque()).append(key)
        self._count += 1

    def _take_turns(self, group: Hashable, *, before: bool = False) -> None:
        """Give a group a turn if it has a ready key and may have one more in work."""
        if group in self._ready and (self._most is None or self._busy.get(group, 0) < self._most):
            self._turns.add(group, before=before)

    def _make_ready(self, key: K, since: float) -> None:
        if self._shut or key in self._waiting:
            return
        self.accepted += 1
        self._waiting[key] = since
        if key not in self._work:
            group = self._group(key)
            self._append(key, group)
            self._take_turns(group)

    def _promote(self, now: float) -> None:
        """Move what is due to the ready keys, and leave a live entry, if any, at the top of the heap."""
        heap = self._heap
        while heap:
            due, sequence, key = heap[0]
            live = self._delayed.get(key) == (due, sequence)
            if live and due > now:
                return
            heapq.heappop(heap)
            if live:
                del self._delayed[key]
                self._make_ready(key, due)


class WorkQueue(Generic[K]):
    """A `QueueCore` on the event loop: workers wait for keys, retries back off, everything is measured.

    All methods are to be called from the loop's own thread.
    """

    def __init__(
        self,
        name: str,
        *,
        backoff: Backoff | None = None,
        group: Callable[[K], Hashable] | None = None,
        most: int | None = None,
    ) -> None:
        self.name = name
        self.core: QueueCore[K] = QueueCore(group, most)
        self._backoff = Backoff() if backoff is None else backoff
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._adds_counted = 0
        labels = {"name": name, "controller": name}
        # Adding a key is the hot path of every watch event, so the depth is read when metrics are scraped.
        metrics.WORKQUEUE_DEPTH.labels(**labels).set_function(lambda: len(self.core))
        self._adds = metrics.WORKQUEUE_ADDS.labels(**labels)
        self._queue_duration = metrics.WORKQUEUE_QUEUE_DURATION.labels(**labels)
        self._work_duration = metrics.WORKQUEUE_WORK_DURATION.labels(**labels)
        self._unfinished = metrics.WORKQUEUE_UNFINISHED_WORK.labels(**labels)
        self._longest = metrics.WORKQUEUE_LONGEST_RUNNING.labels(**labels)
        self._retries = metrics.WORKQUEUE_RETRIES.labels(**labels)

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Make the key ready for the next free worker; urgent is what a user waits for."""
        now = _now()
        self.core.add(key, now, urgent=urgent)
        self._update(now)

    def add_after(self, key: K, delay: float) -> None:
        """Make the key ready after `delay` seconds; an earlier delayed add of the key wins."""
        now = _now()
        self.core.add_after(key, delay, now)
        self._update(now)

    def add_rate_limited(self, key: K, *, at_least: float = 0.0) -> float:
        """Make the key ready after its backoff, but not sooner than `at_least`; return the delay."""
        now = _now()
        delay = max(at_least, self._backoff.when(key, now))
        self.core.add_after(key, delay, now)
        self._retries.inc()
        self._update(now)
        return delay

    def forget(self, key: K) -> None:
        """Let the next rate-limited add of the key start from the shortest delay."""
        self._backoff.forget(key)

    def retries(self, key: K) -> int:
        """Return how often the key was added rate-limited since it was last forgotten."""
        return self._backoff.retries(key)

    async def get(self) -> K:
        """Wait for a key and take it into work; raise QueueShutDown when none will come any more."""
        while True:
            now = _now()
            key = self.core.pop(now)
            if key is not None:
                self._queue_duration.observe(now - self.core.work[key].ready)
                self._update(now)
                return key
            if self.core.finished:
                raise QueueShutDown(f"queue {self.name} is shut down")
            await self._wait()

    def done(self, key: K) -> None:
        """Take the key out of work."""
        now = _now()
        work = self.core.done(key, now)
        self._work_duration.observe(now - work.started)
        self._update(now)

    def shut_down(self, *, drain: bool = False) -> None:
        """Accept no more keys; workers end after the one they have, or after all that wait if `drain`."""
        self.core.shutdown(drain=drain)
        self._update(_now())

    @property
    def shutting_down(self) -> bool:
        """Return whether the queue was shut down."""
        return self.core.shutting_down

    @property
    def idle(self) -> bool:
        """Return whether no key is ready or in work; delayed adds may be pending."""
        return self.core.idle

    def measure_work(self) -> None:
        """Publish the age of the keys in work; the owner of the workers calls it periodically."""
        now = _now()
        ages = [now - work.started for work in self.core.work.values()]
        self._unfinished.set(sum(ages))
        self._longest.set(max(ages, default=0.0))

    def __len__(self) -> int:
        return len(self.core)

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                # This worker was woken for a key and will not take it: another one must.
                self._update(_now())
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def _update(self, now: float) -> None:
        """Wake workers for what is ready and set the timer for what is not."""
        self._arm(self.core.next_due(now))
        wanted = len(self._waiters) if self.core.finished else len(self.core)
        while wanted and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # it is when its worker has been cancelled and did not have its turn yet
                waiter.set_result(None)
                wanted -= 1
        if self.core.accepted != self._adds_counted:
            self._adds.inc(self.core.accepted - self._adds_counted)
            self._adds_counted = self.core.accepted

    def _arm(self, when: float | None) -> None:
        if self._timer is not None:
            if self._timer.when() == when and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer = asyncio.get_running_loop().call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._update(_now())


def _one_group(_: Hashable) -> Hashable:
    return ""


def _now() -> float:
    return asyncio.get_running_loop().time()
