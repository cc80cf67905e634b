"""An event loop that knows how long its turns take.

In one turn asyncio runs everything that is ready, and looks for news only then: as long as a turn takes, no
request is answered, no watch is read and no deadline is kept. A tick that is due (`watchdog`) sees that only
if it falls into a long turn. Here every turn is measured, between two looks of the selector, for some three
microseconds each. Long ones are counted, and the longest is kept, since one is enough to miss a deadline.

A turn is long because this process computes, because it waits for something it should not wait for (a file, a
lock, the interpreter that a thread has), or because others have the processors: on a node that is short of
those, sending to a server on the same node is enough to lose one. The processor time of a turn tells the
first, and what the kernel says about the wait for a processor tells the last from the others. On a virtual
machine the hypervisor may take a processor away from a thread that runs, which the kernel counts as neither.
But a thread that waits for a file, a lock or the interpreter sleeps: a turn in which it never slept waited
for nothing.
"""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from slurm_operator.kube.process import metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from selectors import SelectorKey

# Shorter ones are the normal course of things and not worth the time to count them.
LONG: Final = 0.01
# In one turn every task may have as much, so it must be well below what a turn may take.
SLICE: Final = 0.003
_HAND_OVER: Final = 0.001
_LONGEST_LINE: Final = 80


class TimedSelector(selectors.DefaultSelector):
    """A selector that measures the time between its looks; to be made by the thread that looks."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        processor: Callable[[], float] = time.thread_time,
        queued: Callable[[], float] | None = None,
        slept: Callable[[], int] = lambda: resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw,
    ) -> None:
        super().__init__()
        self._queue = QueueTime()
        self._meters = (clock, processor, queued or self._queue, slept)
        self._began: tuple[float, float, float, int] | None = None
        self._longest = self._busiest = self._own = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Look for what is ready, having measured the turn that ends here."""
        clock, processor, queued, slept = self._meters
        if self._began is not None and (took := clock() - self._began[0]) > LONG:
            # First, since asking for the others lets threads have the interpreter, and may wait for it.
            woken = slept() - self._began[3]
            busy = processor() - self._began[1]
            self._count(took, busy, took - (queued() - self._began[2]) if woken else busy)
        ready = super().select(timeout)
        began, used, waited = clock(), processor(), queued()
        self._began = (began, used, waited, slept())
        return ready

    def close(self) -> None:
        """Look no more."""
        super().close()
        self._queue.close()

    def _count(self, seconds: float, busy: float, own: float) -> None:
        metrics.EVENT_LOOP_STALL.observe(seconds)
        if seconds > self._longest:
            self._longest = seconds
            metrics.EVENT_LOOP_LONGEST_STALL.set(seconds)
        if busy > self._busiest:
            self._busiest = busy
            metrics.EVENT_LOOP_BUSIEST_STALL.set(busy)
        if own > self._own:
            self._own = own
            metrics.EVENT_LOOP_OWN_STALL.set(own)


class QueueTime:
    """The seconds for which this thread was runnable but had no CPU; 0 if the kernel does not report them."""

    def __init__(self, path: str = "/proc/thread-self/schedstat") -> None:
        self._file: int | None = None
        self._seconds = 0.0
        with suppress(OSError):
            self._file = os.open(path, os.O_RDONLY)

    def __call__(self) -> float:
        """Return the seconds so far, as far as they are known."""
        if self._file is not None:
            try:
                # The time on a processor, the time in wait for one, both in nanoseconds, and how often.
                self._seconds = int(os.pread(self._file, _LONGEST_LINE, 0).split()[1]) * 1e-9
            except (OSError, ValueError, IndexError):
                # Every turn of the event loop asks, and must not end for this.
                self.close()
        return self._seconds

    def close(self) -> None:
        """Ask no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Breather:
    """Gives the event loop a turn whenever a long piece of work has taken a few milliseconds.

    Call it between two parts of the work, as often as is convenient: mostly it only looks at the clock.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()

    async def __call__(self) -> None:
        """Wait for a turn if it is time for that."""
        if self._clock() - self._began > SLICE:
            await asyncio.sleep(0)
            self._began = self._clock()


def timed_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose long turns show in the metrics, and that no thread keeps waiting for long.

    Long computations and decoding run in threads. Python has one interpreter for all of them, and while one
    computes, a thread that released the interpreter, even for a single system call, gets it back only after
    the switch interval: by default 5 ms, which a turn with a dozen requests to send would wait a dozen times.
    """
    sys.setswitchinterval(_HAND_OVER)
    return asyncio.SelectorEventLoop(TimedSelector())
