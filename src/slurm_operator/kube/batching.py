"""Letting a busy stream gather data before it is read.

Under TLS, waking up for one event costs more than decoding it. A single event after silence is read at once;
those that follow within milliseconds are read together. A large read needs no such help.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aiohttp

# A pause short against any reconcile, and the size from which on a read is worth its wake-up.
_BATCH_SECONDS, _BATCH_BYTES = 0.05, 2**16


def batching_delay(size: int, since: float) -> float:
    """Return how long to let a stream gather data, from the size of its last read and the time since."""
    return max(0.0, _BATCH_SECONDS - since) if 0 < size < _BATCH_BYTES else 0.0


@contextmanager
def undisturbed(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Keep the socket of an answer from waking the loop until a batch of bytes, or the end, has arrived."""
    transport = response.connection.transport if response.connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if transport is None or sock is None:
        yield
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _BATCH_BYTES)
    try:
        yield
    finally:
        if not transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
