"""A long reply taken apart without decoding it as a whole: the entries of its list, a few at a time.

A decoder that is given a whole reply makes objects for all of it, and holds the interpreter until it is done.
Here a list is walked in pieces of a few hundred kilobytes, so that it can be counted while it is decoded, and
given up when it is too long. Decoding belongs to the caller.

There are two ways to find the end of a piece. The quick one looks for the text with which each entry of
slurmrestd begins, such as `{"architecture":`. That may also stand inside of an entry, or in a string, so a
piece that is found like that is only a guess. It is right if the decoder accepts it: text that is a complete
sequence of values ends where a value of the whole text ends. Otherwise the caller asks for the same place to
be walked (`walk`), bracket by bracket, which is always right and about six times as slow.

Every step does a bounded amount of work, whatever the text is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_operator.slurm.model.reply_limits import MAX_DEPTH, MAX_ENTRY, MAX_STRING, megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE: Final = 2**18
_LONGEST_GUESS: Final = 2 * PIECE
_LONGEST_GAP: Final = 64
_MOST_WALKED: Final = 1000
_SPACE: Final = rb"[ \t\r\n]*+"
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_PLAIN: Final = rb'[^"{}\[\]]++'


def _inside(levels: int) -> bytes:
    """Return the pattern for what may stand between brackets, with so many levels of brackets in it."""
    parts = [_PLAIN, _STRING]
    if levels:
        inside = _inside(levels - 1)
        parts += [rb"\{" + inside + rb"\}", rb"\[" + inside + rb"\]"]
    return rb"(?:" + rb"|".join(parts) + rb")*+"


# Some levels at once: each level that is left to the caller costs one more step.
_STEP: Final = re.compile(_inside(3) + rb"([{}\[\]])?", re.DOTALL)
_OPEN: Final = re.compile(_SPACE + rb"\{" + _SPACE)
_FIELD: Final = re.compile(rb"(" + _STRING + rb")" + _SPACE + rb":" + _SPACE, re.DOTALL)
_TEXT: Final = re.compile(_STRING, re.DOTALL)
_SCALAR: Final = re.compile(rb"[^\s,{}\[\]]++")
_NEXT: Final = re.compile(_SPACE + rb"([,\]}])" + _SPACE)
_BEGINNING: Final = re.compile(rb"\{" + _SPACE + _STRING + _SPACE + rb":", re.DOTALL)
_GAP: Final = re.compile(_SPACE)


class MalformedTextError(Exception):
    """The text is not JSON, or not of the expected form."""


class OversizeError(Exception):
    """A part of the text is beyond a limit; the words name it."""


class Piece(NamedTuple):
    """Some entries of a list, from one place to another; `guess`: only if the decoder accepts it."""

    start: int
    end: int
    guess: bool


class EntryList:
    """The list that is the value of one key at the top of a JSON object."""

    def __init__(self, text: bytes | bytearray, key: str) -> None:
        self._text = text
        self.start = self._find(b'"' + key.encode() + b'"')
        """Where the list begins, with its bracket."""
        self._position = _GAP.match(text, self.start + 1).end()  # type: ignore[union-attr]
        self.end = -1
        """Where the list ends, behind its bracket; -1 until all pieces have been taken."""
        if self._byte() == b"]":
            self.end = self._position + 1
        beginning = _BEGINNING.match(text, self._position, self._position + PIECE)
        self._beginning = beginning[0] if beginning else None

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in order; each must be confirmed with `accept` or `walk` before the next."""
        while self.end < 0:
            yield self._guess() or Piece(self._position, self._position, guess=True)

    def accept(self, piece: Piece) -> None:
        """Go on behind a piece that the decoder has accepted."""
        self._advance(piece.end)

    def walk(self) -> list[Piece]:
        """Return the next entries, one piece each, and go on behind them."""
        entries: list[Piece] = []
        start = self._position
        while self.end < 0 and self._position - start < PIECE and len(entries) < _MOST_WALKED:
            entry = Piece(self._position, self._entry_end(self._position), guess=False)
            entries.append(entry)
            self._advance(entry.end)
        return entries

    @property
    def rest_size(self) -> int:
        """Return how long the text is without the list."""
        return len(self._text) - self.end + self.start

    def rest(self) -> bytes:
        """Return the text with an empty list in place of this one."""
        return b"".join((self._text[: self.start], b"[]", self._text[self.end :]))

    def _guess(self) -> Piece | None:
        """Return a piece that may end where an entry ends, if the text looks as expected."""
        position, text = self._position, self._text
        if self._beginning is None:
            return None
        found = text.find(self._beginning, position + PIECE, position + _LONGEST_GUESS)
        if found < 0:
            return None
        before = text[found - _LONGEST_GAP : found].rstrip(b" \t\r\n")
        if not before.endswith(b","):
            return None
        return Piece(position, found - _LONGEST_GAP + len(before) - 1, guess=True)

    def _advance(self, position: int) -> None:
        """Go on behind an entry: to the next one, or to the end of the list."""
        found = _NEXT.match(self._text, position, position + PIECE)
        if found is None or found[1] == b"}":
            raise MalformedTextError("a list is not closed")
        if found[1] == b"]":
            self.end = found.end(1)
        self._position = found.end()

    def _byte(self) -> bytes:
        return bytes(self._text[self._position : self._position + 1])

    def _entry_end(self, position: int) -> int:
        if self._text[position : position + 1] != b"{":
            raise MalformedTextError("an entry of a list is not an object")
        return self._closed(position)

    def _find(self, key: bytes) -> int:
        """Return where the list begins."""
        text = self._text
        found = _OPEN.match(text, 0, PIECE)
        if found is None:
            raise MalformedTextError("it is not an object")
        position = found.end()
        while True:
            field = _FIELD.match(text, position, position + PIECE)
            if field is None:
                raise MalformedTextError("a field is missing")
            position = field.end()
            first = bytes(text[position : position + 1])
            if field[1] == key and first == b"[":
                return position
            position = self._skipped(position, first)
            following = _NEXT.match(text, position, position + PIECE)
            if following is None or following[1] != b",":
                raise MalformedTextError("the list is missing")
            position = following.end()

    def _skipped(self, position: int, first: bytes) -> int:
        """Return where the value ends that begins at a position."""
        if first in (b"{", b"["):
            return self._closed(position)
        if first == b'"':
            found = _TEXT.match(self._text, position, position + MAX_STRING)
        else:
            found = _SCALAR.match(self._text, position, position + MAX_STRING)
        if found is None:
            raise MalformedTextError("a value is missing")
        return found.end()

    def _closed(self, start: int) -> int:
        """Return where the bracket closes that opens at a position."""
        text, depth, position = self._text, 1, start + 1
        last = min(len(text), start + MAX_ENTRY)
        while True:
            # Only so far at a time: nothing else runs while a pattern is matched.
            step = _STEP.match(text, position, min(position + MAX_STRING, last))
            before, position = position, last if step is None else step.end()
            bracket = None if step is None else step[1]
            if bracket is None and position >= last:
                if last < len(text):
                    raise OversizeError(f"an entry of its list is longer than {megabytes(MAX_ENTRY)}")
                raise MalformedTextError("it ends too early")
            if bracket is None and position == before:
                if position + MAX_STRING < last:
                    raise OversizeError(f"a string in it is longer than {megabytes(MAX_STRING)}")
                raise MalformedTextError("it ends too early")
            if bracket in (b"{", b"["):
                depth += 1
                if depth > MAX_DEPTH:
                    raise OversizeError(f"it is nested more than {MAX_DEPTH} levels deep")
            elif bracket is not None:
                depth -= 1
                if not depth:
                    return position
