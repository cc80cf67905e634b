"""Cuts the byte stream of a watch into lines.

An event is one line of JSON, of any length: a Pod with long annotations exceeds the line limit of HTTP
libraries, and the network cuts wherever it likes. Pieces of an unfinished line are kept apart and joined
once, so that a big line costs its size and not its square.
"""

from __future__ import annotations

from slurm_operator.kube.errors import DecodeError

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
        """Tell whether an unfinished line is held back."""
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
