"""The garbage collector, told what kind of process this is.

Caches fill once and then live as long as the process; reconciles make plenty of short-lived objects and
hardly any cycles. CPython's defaults look for cycles after every 700 new objects, over all of them again and
again. Here it looks less often, and never at what the caches held when they were filled, nor at what cannot
be part of a cycle (`meta.Part`).

It must not let too many gather between two looks either: all else stands still while it looks at them, on a
busy machine for more than half a microsecond each.
"""

from __future__ import annotations

import gc

# Gen 0 after this many more allocations than deallocations, gen 1 after five times as many: in small steps
# an object is still looked at once in either. Gen 2 is all that there is, so hardly ever.
_THRESHOLDS = (3_000, 5, 1_000)


def relax() -> None:
    """Collect less often; to be called once, before the event loop starts.

    Imported objects are frozen here, before the loop runs: if a later `settle` had to traverse them as well,
    it would block the loop for longer than anything else does.
    """
    gc.set_threshold(*_THRESHOLDS)
    settle()


def settle() -> None:
    """Collect what the start left behind, and leave all that is alive now alone from here on."""
    gc.collect()
    gc.freeze()
