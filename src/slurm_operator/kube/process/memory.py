"""How much memory this process keeps without need, and how often Python collects garbage.

A burst of requests needs memory for a moment, and two habits would let the process keep it. glibc raises the
size from which it takes memory from the kernel piece by piece as soon as such a piece is freed; from then on
answers of megabytes lie between small objects, and what lies between cannot be given back. And asyncio gives
each TLS connection a buffer of 256 KiB, zeroed, hence resident: with a connection per watch and dozens for a
burst that is more than all the pods of a large cluster. Each record of TLS, 16 KiB at most, is also decrypted
into a piece of that size.

Both are told otherwise at the start. Where there is no glibc, or another asyncio, nothing happens.

The garbage collector is set up for this kind of process as well. Caches fill once and then live as long as
the process; reconciles make plenty of short-lived objects and hardly any cycles. CPython's defaults look for
cycles after every 700 new objects, over all of them again and again. Here it looks less often, and never at
what the caches held when they were filled, nor at what cannot be part of a cycle (`meta.Part`).

It must not let too many gather between two looks either: all else stands still while it looks at them, on a
busy machine for more than half a microsecond each.
"""

from __future__ import annotations

import asyncio.sslproto
import ctypes
import gc
import sys
from typing import Final

from slurm_operator.kube.client.watch_stream import BATCHING

# The parameters of mallopt(3): above the first size each piece is the kernel's, and goes back to it when it
# is freed; the top of the heap goes back from the second size on; threads share the one heap.
_MALLOC_OPTIONS: Final = ((-3, 128 * 1024), (-1, 128 * 1024), (-8, 1))
# A batch, and the record that is not complete yet. With less, each read of a burst would wait for more.
_TLS_BUFFER: Final = BATCHING.size + 2**14


def tame() -> None:
    """Keep less; to be called once, before the first connection is made."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            for option, value in _MALLOC_OPTIONS:
                mallopt(option, value)
    if hasattr(asyncio.sslproto.SSLProtocol, "max_size"):
        asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER


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
