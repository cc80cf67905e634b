"""The answers of an HTTP/1.1 server, taken apart as they arrive; no I/O here.

Why not aiohttp's parser: slurmrestd sends bytes that belong to no answer. After each refusal 26.05 sends the
text of the error once more, as a second answer, and to a request with `Connection: close` every release sends
that header again, after the body. Strict parsers give up the whole exchange for that, and what would be lost
is exactly the answer that says why something was refused. Here an answer ends where its length says. What
follows it makes the connection unfit for another request, and nothing else. Since it may also follow late,
only an answer that slurmrestd never adds anything to, a 200 or a 304, leaves a connection fit for another.

Everything is bounded: the head, interim answers, chunks and trailer by constants, the body by what the caller
allows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST_HEAD: Final = 2**16
_LONGEST_LINE: Final = 2**12
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: .*)?", re.DOTALL)
_FIELD: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", re.DOTALL)
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_FIRST_FINAL_STATUS: Final = 200
_MOST_INTERIM: Final = 8
# Each chunk costs a few microseconds of the event loop, however small it is. Proxies send kilobytes in one.
_CHUNKS: Final = 1024
_LEAST_CHUNK: Final = 256
# Only a success has a long body.
_LONG: Final = 200
_LONGEST_REFUSAL: Final = 2**20
_WITHOUT_BODY: Final = frozenset({204, 304})
_WITHOUT_SURPLUS: Final = frozenset({200, 304})


class MalformedError(Exception):
    """What arrives is not an HTTP answer."""


class TooLargeError(MalformedError):
    """What arrives is a longer answer than was allowed."""


def encode(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return a request as it goes over the wire; the caller vouches for target and headers."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body or b"")


class Answer:
    """One answer: feed it until it is complete; `grow` is told of each part of its body and may refuse."""

    def __init__(self, limit: int, grow: Callable[[int], None] | None = None) -> None:
        self._limit = limit
        self._grow = grow
        self._buffer = bytearray()
        self._left: int | None = None
        self._interim = self._chunks = self._trailers = 0
        # A function and not a bound method, which would refer to its own answer: only the garbage collector
        # could then free the megabytes of a list.
        self._step: Callable[[Answer], bool] = Answer._head
        self._minor = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        """The body as far as it has arrived; there is no second copy of it."""
        self.complete = False
        self.surplus = False
        """Whether bytes have arrived that do not belong to the answer."""

    @property
    def reusable(self) -> bool:
        """Return whether the connection may serve another request."""
        words = self.headers.get("connection", "").lower()
        good = self.complete and not self.surplus and self.status in _WITHOUT_SURPLUS
        return good and self._minor == 1 and "close" not in words

    def feed(self, data: bytes) -> bool:
        """Take in what arrived; return whether the answer is complete."""
        if self._step is Answer._counted and not self._buffer:
            # The bulk of a long list passes through here, without a detour through the buffer.
            self._take(data)
            return self.complete
        self._buffer += data
        while not self.complete and self._step(self):
            pass
        self.surplus = self.surplus or (self.complete and bool(self._buffer))
        return self.complete

    def finish(self) -> bool:
        """Take in that the other side has closed; return whether the answer is complete."""
        self.complete = self.complete or self._step is Answer._until_closed
        return self.complete

    # Each step takes what it can from the buffer and returns whether to go on at once.

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > _LONGEST_HEAD:
            if len(self._buffer) > _LONGEST_HEAD:
                raise TooLargeError(f"its head is longer than {_LONGEST_HEAD} bytes")
            if not b"HTTP/1.".startswith(bytes(self._buffer[:7])):
                raise MalformedError("it is not HTTP/1")
            return False
        line, *fields = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise MalformedError("it is not HTTP/1")
        self._minor, self.status = int(found[1]), int(found[2])
        self.headers = _headers(fields)
        if self.status < _FIRST_FINAL_STATUS:
            # An interim answer, the one that counts follows.
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                raise TooLargeError(f"more than {_MOST_INTERIM} interim answers precede it")
            return True
        self._begin_body()
        return True

    def _begin_body(self) -> None:
        coding = self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if self.status != _LONG:
            self._limit = min(self._limit, _LONGEST_REFUSAL)
        if self.status in _WITHOUT_BODY:
            self.complete = True
        elif coding:
            if coding != "chunked" or length is not None:
                raise MalformedError("the length of its body is unclear")
            self._step = Answer._chunk_size
        elif length is not None:
            if not _DIGITS.fullmatch(length):
                raise MalformedError("the length of its body is unclear")
            self._left = int(length)
            self._check(self._left)
            self._step = Answer._counted
            self.complete = self._left == 0
        else:
            self._step = Answer._until_closed

    def _counted(self) -> bool:
        data = bytes(self._buffer)
        self._buffer.clear()
        self._take(data)
        return False

    def _take(self, data: bytes) -> None:
        left = self._left or 0
        if len(data) > left:
            data, self.surplus = data[:left], True
        self._keep(data)
        self._left = left - len(data)
        self.complete = self._left == 0

    def _until_closed(self) -> bool:
        self._keep(bytes(self._buffer))
        self._buffer.clear()
        return False

    def _chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise MalformedError("a chunk of it has no length")
        self._left = int(found[1], 16)
        self._check(len(self.body) + self._left)
        self._chunks += 1
        if self._chunks > _CHUNKS + len(self.body) // _LEAST_CHUNK:
            raise TooLargeError(f"it comes in chunks of less than {_LEAST_CHUNK} bytes")
        self._step = Answer._chunk if self._left else Answer._trailer
        return True

    def _chunk(self) -> bool:
        left = self._left or 0
        piece = bytes(self._buffer[:left])
        del self._buffer[:left]
        self._keep(piece)
        self._left = left = left - len(piece)
        if left or len(self._buffer) < len(b"\r\n"):
            return False
        if self._buffer[:2] != b"\r\n":
            raise MalformedError("a chunk of it is longer than it says")
        del self._buffer[:2]
        self._step = Answer._chunk_size
        return True

    def _trailer(self) -> bool:
        line = self._line()
        self._trailers += len(line or b"")
        if self._trailers > _LONGEST_HEAD:
            raise TooLargeError(f"its trailer is longer than {_LONGEST_HEAD} bytes")
        self.complete = line == b""
        return line is not None

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n", 0, _LONGEST_LINE)
        if end < 0:
            if len(self._buffer) >= _LONGEST_LINE:
                raise TooLargeError(f"a line of it is longer than {_LONGEST_LINE} bytes")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _keep(self, data: bytes) -> None:
        self._check(len(self.body) + len(data))
        if self._grow is not None:
            self._grow(len(data))
        self.body += data

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise TooLargeError(f"it is longer than {self._limit} bytes")


def _headers(fields: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for field in fields:
        found = _FIELD.fullmatch(field.decode("latin-1"))
        if found is None:
            raise MalformedError("one of its headers is malformed")
        name, value = found[1].lower(), found[2]
        if name == "content-length" and headers.get(name, value) != value:
            raise MalformedError("the length of its body is unclear")
        headers[name] = (
            value if name in ("content-length", "content-type") else _joined(headers.get(name), value)
        )
    return headers


def _joined(before: str | None, value: str) -> str:
    return value if before is None else f"{before}, {value}"
