"""An event loop that knows how long its turns take.

In one turn asyncio runs everything that is ready, and looks for news only then: as long as a turn takes, no
request is answered, no watch is read and no deadline is kept. A tick that is due (`watchdog`) sees that only
if it falls into a long turn. Here every turn is measured, between two looks of the selector, for about a
microsecond each. Long ones are counted, and the longest is kept, since one is enough to miss a deadline.

A turn is long because this process computes, or because others have the processor: on a node that is short of
it, sending to a server on the same node is enough to lose it. The processor time of a turn tells the two
apart.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING, Final

from slurm_operator.kube import metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from selectors import SelectorKey

# Shorter ones are the normal course of things and not worth the time to count them.
LONG: Final = 0.01


class TimedSelector(selectors.DefaultSelector):
    """A selector that measures the time between its looks."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._processor = processor
        self._began: tuple[float, float] | None = None
        self._longest = self._busiest = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Look for what is ready, having measured the turn that ends here."""
        if self._began is not None and (took := self._clock() - self._began[0]) > LONG:
            self._count(took, self._processor() - self._began[1])
        ready = super().select(timeout)
        self._began = (self._clock(), self._processor())
        return ready

    def _count(self, seconds: float, busy: float) -> None:
        metrics.EVENT_LOOP_STALL.observe(seconds)
        if seconds > self._longest:
            self._longest = seconds
            metrics.EVENT_LOOP_LONGEST_STALL.set(seconds)
        if busy > self._busiest:
            self._busiest = busy
            metrics.EVENT_LOOP_BUSIEST_STALL.set(busy)


def timed_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose long turns show in the metrics."""
    return asyncio.SelectorEventLoop(TimedSelector())
