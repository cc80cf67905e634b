"""How much memory this process keeps for nothing, and how to keep it from doing so.

A burst of requests needs memory for a moment, and two habits would let the process keep it. glibc raises the
size from which it takes memory from the kernel piece by piece as soon as such a piece is freed; from then on
answers of megabytes lie between small objects, and what lies between cannot be given back. And asyncio gives
each TLS connection a buffer of 256 KiB, zeroed, hence resident: with a connection per watch and dozens for a
burst that is more than all the pods of a large cluster. TLS sends 16 KiB at most at a time.

Both are told otherwise at the start. Where there is no glibc, or another asyncio, nothing happens.
"""

from __future__ import annotations

import asyncio.sslproto
import ctypes
import sys
from typing import Final

# The parameters of mallopt(3): above the first size each piece is the kernel's, and goes back to it when it
# is freed; the top of the heap goes back from the second size on; threads share the one heap.
_MALLOC_OPTIONS: Final = ((-3, 128 * 1024), (-1, 128 * 1024), (-8, 1))
_TLS_BUFFER: Final = 32 * 1024


def tame() -> None:
    """Keep less; to be called once, before the first connection is made."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            for option, value in _MALLOC_OPTIONS:
                mallopt(option, value)
    if hasattr(asyncio.sslproto.SSLProtocol, "max_size"):
        asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER
