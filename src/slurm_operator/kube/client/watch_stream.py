"""The byte stream of a watch: cut into lines, and read in batches while it is busy.

An event is one line of JSON, of any length: a Pod with long annotations exceeds the line limit of HTTP
libraries, and the network cuts wherever it likes. Pieces of an unfinished line are kept apart and joined
once, so that a big line costs its size and not its square.

Under TLS, waking up for one event costs more than decoding it. A single event after silence is read at once;
those that follow within milliseconds are read together. In a burst a batch is there at once and nothing
waits: the kernel wakes the loop for a batch, and a timer for what is less than that.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_operator.kube.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aiohttp

# An object in etcd has at most 1.5 MiB by default and JSON may triple it; a longer line is no Kubernetes
# event.
LONGEST_LINE = 64 * 2**20


class LineSplitter:
    """Turns chunks into complete lines; holds back the unfinished rest."""

    def __init__(self, what: str, longest: int = LONGEST_LINE) -> None:
        self._what = what
        self._parts: list[bytes] = []
        self._size = 0
        self._longest = longest

    @property
    def pending(self) -> bool:
        """Return whether an unfinished line is held back."""
        return self._size > 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without empty ones."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines:
            if self._parts:
                lines[0] = b"".join((*self._parts, lines[0]))
                self._parts.clear()
                self._size = 0
            lines = [line for line in lines if line]
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self._longest:
                raise DecodeError(
                    f"{self._what}: a line is longer than {self._longest} bytes; no API server sends that"
                )
        return lines


@dataclass(frozen=True, slots=True)
class Batching:
    """How long a busy stream gathers data: a short time, or until a read is worth its wake-up."""

    seconds: float = 0.05  # short against any reconcile
    size: int = 3 * 2**14  # three records of TLS, the most that a read has for certain (`process.memory`)

    def delay(self, size: int, since: float) -> float:
        """Return how long to let a stream gather data, from the size of its last read and the time since."""
        return max(0.0, self.seconds - since) if 0 < size < self.size else 0.0


BATCHING: Final = Batching()


@contextmanager
def gathering(response: aiohttp.ClientResponse, seconds: float, size: int) -> Iterator[None]:
    """Keep the socket from waking the loop until so much has arrived, the stream ends, or time is over."""
    transport = response.connection.transport if response.connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if not seconds or transport is None or sock is None:
        yield
        return

    def wake() -> None:
        # The kernel looks at once whether there is anything to read.
        if not transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    if not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    timer = asyncio.get_running_loop().call_later(seconds, wake)
    try:
        yield
    finally:
        timer.cancel()
        wake()
