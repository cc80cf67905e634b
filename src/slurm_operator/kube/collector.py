"""The garbage collector, told what kind of process this is.

Caches fill once and then live as long as the process; reconciles make plenty of short-lived objects and
hardly any cycles. CPython's defaults look for cycles after every 700 new objects, over all of them again and
again. Here it looks far less often, and never at what the caches held when they were filled.
"""

from __future__ import annotations

import gc

# Gen 0 after this many more allocations than deallocations; the older generations in proportion.
_THRESHOLDS = (20_000, 20, 50)


def relax() -> None:
    """Collect less often; to be called once, before the event loop starts.

    What was imported is set aside here, while nobody waits: with all of it, `settle` would hold up the loop
    for longer than anything else ever does.
    """
    gc.set_threshold(*_THRESHOLDS)
    settle()


def settle() -> None:
    """Collect what the start left behind, and leave all that is alive now alone from here on."""
    gc.collect()
    gc.freeze()
