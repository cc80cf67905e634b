"""From an HTTP answer to a struct or to the error that fits, without any I/O.

The usual answer is decoded in one step into the struct that was asked for. Only when that fails, or when the
status is no success, is it read for what it means instead (`refusals`). An answer that explains itself in no
way we know is a `BadReply`. A list with one entry that cannot be read is a `BadReply` as a whole: without
that entry it would be a shorter list that looks complete.

A long answer is not decoded as a whole but in pieces (`reading`), and counted meanwhile: what is beyond one
of the `reply_limits` is a `ReplyTooLarge`, before it has taken much memory.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from slurm_operator.slurm.decode.bounded import bounded
from slurm_operator.slurm.decode.pieces import PIECE, EntryList, MalformedTextError, OversizeError
from slurm_operator.slurm.decode.refusals import OK, Question, Reply, explained, quote, unexplained
from slurm_operator.slurm.errors import BadReply, ReplyTooLarge, SlurmError
from slurm_operator.slurm.model import reply_limits
from slurm_operator.slurm.model.records import (
    UNSET,
    Diag,
    Fault,
    Job,
    JobDetail,
    JobState,
    Node,
    NoVal,
    Ping,
    Reservation,
    SlurmPartition,
)
from slurm_operator.slurm.model.steps import at_once

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from slurm_operator.slurm.decode.pieces import Piece
    from slurm_operator.slurm.model.reply_limits import ReplyLimit


class _SlurmVersion(msgspec.Struct, gc=False):
    release: str = ""
    cluster: str = ""


class _Meta(msgspec.Struct):
    slurm: _SlurmVersion = msgspec.field(default_factory=_SlurmVersion)


class Envelope(msgspec.Struct):
    """What every answer has around its content."""

    meta: _Meta = msgspec.field(default_factory=_Meta)
    errors: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()


class Pings(Envelope, kw_only=True):
    """The answer to a ping."""

    pings: tuple[Ping, ...]


class NodesReply(Envelope, kw_only=True):
    """The list of all nodes, or of one."""

    nodes: tuple[Node, ...]
    last_update: NoVal = UNSET


class JobsReply(Envelope, kw_only=True):
    """The list of all jobs."""

    jobs: tuple[Job, ...]
    last_update: NoVal = UNSET


class JobStates(Envelope, kw_only=True):
    """The states of some jobs."""

    jobs: tuple[JobState, ...]


class JobDetails(Envelope, kw_only=True):
    """The list of all jobs with what is shown of them."""

    jobs: tuple[JobDetail, ...]


class Reservations(Envelope, kw_only=True):
    """The list of all reservations."""

    reservations: tuple[Reservation, ...]
    last_update: NoVal = UNSET


class Partitions(Envelope, kw_only=True):
    """The list of all partitions."""

    partitions: tuple[SlurmPartition, ...]


class Statistics(Envelope, kw_only=True):
    """What slurmctld counts."""

    statistics: Diag


E = TypeVar("E", bound=Envelope)

# The field with the entries of each list, what an entry is, and how many of them there may be.
_LISTS: Final[Mapping[type[Envelope], tuple[str, type[msgspec.Struct], ReplyLimit]]] = {
    NodesReply: ("nodes", Node, reply_limits.NODES),
    JobsReply: ("jobs", Job, reply_limits.JOBS),
    JobStates: ("jobs", JobState, reply_limits.JOB_STATES),
    JobDetails: ("jobs", JobDetail, reply_limits.JOBS),
    Reservations: ("reservations", Reservation, reply_limits.RESERVATIONS),
    Partitions: ("partitions", SlurmPartition, reply_limits.PARTITIONS),
}
# A shorter answer is decoded as a whole: that takes a few milliseconds and a few megabytes at most.
SHORT_ANSWER: Final = PIECE

_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_any = msgspec.json.Decoder().decode


@functools.cache
def _decoder(shape: type[Envelope]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def read(reply: Reply, shape: type[E], question: Question) -> E:
    """Return the answer in the shape that was asked for, or raise what it means."""
    return at_once(reading(reply, shape, question))


def reading(reply: Reply, shape: type[E], question: Question) -> Generator[None, None, E]:
    """Read an answer as `read` does, in slices of a few milliseconds."""
    if reply.status != OK or not reply.json:
        raise _refusal(reply, shape, question)
    failure: SlurmError
    try:
        if shape not in _LISTS:
            return _read_whole(reply, shape, question)
        if len(reply.body) <= SHORT_ANSWER:
            return _bounded_whole(_read_whole(reply, shape, question), shape)
        return (yield from _read_pieces(reply, shape, question))
    except OversizeError as error:
        failure = ReplyTooLarge(question.what, str(error))
    except MalformedTextError as error:
        failure = BadReply(f"{question.what}: the answer cannot be read: {error}")
    # Raised here, outside of any handler: an error that hangs on to another keeps the whole answer with it.
    raise _read_envelope(reply, shape, question) or failure


def _read_whole(reply: Reply, shape: type[E], question: Question) -> E:
    try:
        content: E = _decoder(shape).decode(reply.body)
    except _MALFORMED as error:
        return _read_odd(reply, shape, question, error)
    if content.errors:
        raise explained(reply, content.errors, question, listing=shape is not Envelope)
    return content


def _bounded_whole(content: E, shape: type[E]) -> E:
    """Return a short list with its texts within their limits."""
    field, _, limit = _LISTS[shape]
    found = _Entries(field, limit)
    found.add(getattr(content, field))
    return msgspec.structs.replace(content, **{field: tuple(found.entries)})


def _read_pieces(reply: Reply, shape: type[E], question: Question) -> Generator[None, None, E]:
    """Read a long list a piece at a time."""
    field, kind, limit = _LISTS[shape]
    listed = EntryList(reply.body, field)
    found = _Entries(field, limit)
    for piece in listed.pieces():
        guessed = _decode_entries(reply.body, piece, kind)
        if guessed is None:
            for entry in listed.walk():
                found.add((_decode_entry(reply.body, entry, kind, question),))
        else:
            listed.accept(piece)
            found.add(guessed)
        yield
    if listed.rest_size > reply_limits.MAX_REST:
        raise OversizeError(
            f"it has more than {reply_limits.megabytes(reply_limits.MAX_REST)} beside its list"
        )
    rest = listed.rest()
    content = _read_whole(reply._replace(body=rest), shape, question)
    if getattr(content, field):
        raise MalformedTextError(f"it has {field} twice")
    return msgspec.structs.replace(content, **{field: tuple(found.entries)})


class _Entries:
    """The entries of a list so far, within the limits."""

    def __init__(self, what: str, limit: ReplyLimit) -> None:
        self.entries: list[msgspec.Struct] = []
        self._what = what
        self._most = limit.entries
        self._text = limit.entries * reply_limits.MAX_TEXT

    def add(self, entries: tuple[msgspec.Struct, ...]) -> None:
        """Take in more entries; an OversizeError if that is too many, or too much text."""
        if len(self.entries) + len(entries) > self._most:
            raise OversizeError(f"it lists more than {self._most} {self._what}")
        for entry in entries:
            kept, size = bounded(entry)
            self._text -= size
            self.entries.append(kept)
        if self._text < 0:
            raise OversizeError(
                f"the texts of its {self._what} take more than "
                f"{reply_limits.megabytes(self._most * reply_limits.MAX_TEXT)}"
            )


def _decode_entries(
    body: bytes | bytearray, piece: Piece, kind: type[msgspec.Struct]
) -> tuple[msgspec.Struct, ...] | None:
    """Return the entries of a piece that was guessed; None if it is none, or not in the usual form."""
    if piece.start == piece.end:
        return None
    with memoryview(body) as view:
        text = b"".join((b"[", view[piece.start : piece.end], b"]"))
    try:
        entries: tuple[msgspec.Struct, ...] = _entries_decoder(kind).decode(text)
    except _MALFORMED:
        return None
    return entries


def _decode_entry(
    body: bytes | bytearray, piece: Piece, kind: type[msgspec.Struct], question: Question
) -> msgspec.Struct:
    """Return one entry, also a large one, or one with nulls for what is absent."""
    text = bytes(body[piece.start : piece.end])
    try:
        if len(text) > SHORT_ANSWER:
            text = _narrowed(text, kind)
        try:
            entry: msgspec.Struct = msgspec.json.decode(text, type=kind)
        except _MALFORMED:
            entry = msgspec.convert(_without_nulls(_decode_any(text)), kind)
    except _MALFORMED as error:
        raise MalformedTextError(quote(str(error), question)) from None
    return entry


def _narrowed(text: bytes, kind: type[msgspec.Struct]) -> bytes:
    """Return a large entry with nothing but the fields that are read."""
    fields = _raw_decoder(kind).decode(text)
    parts = []
    for name in kind.__struct_fields__:
        value: msgspec.Raw = getattr(fields, name)
        limit = reply_limits.MAX_HOSTLIST if name in ("nodes", "node_list") else reply_limits.MAX_FIELD
        if len(value) > limit:
            raise OversizeError(f"the {name} of an entry has more than {limit} bytes")
        if len(value):
            parts.append(b'"%s":%s' % (name.encode(), bytes(value)))
    return b"{" + b",".join(parts) + b"}"


@functools.cache
def _entries_decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(tuple[kind, ...])  # type: ignore[valid-type]


@functools.cache
def _raw_decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    fields = [(name, msgspec.Raw, msgspec.Raw(b"")) for name in kind.__struct_fields__]
    return msgspec.json.Decoder(msgspec.defstruct(f"Raw{kind.__name__}", fields))


def _read_envelope(reply: Reply, shape: type[Envelope], question: Question) -> SlurmError | None:
    """Return what the errors in an answer mean whose list cannot be read; None if it has none."""
    if len(reply.body) > reply_limits.MAX_REST:
        return None
    try:
        envelope = _decode_envelope(reply.body)
    except _MALFORMED:
        return None
    return (
        explained(reply, envelope.errors, question, listing=shape is not Envelope)
        if envelope.errors
        else None
    )


def moment(update: NoVal) -> int | None:
    """Return the time that a list carries; None if it carries none, and then it is no list to believe."""
    time = update.time
    return None if time is None else int(time.timestamp())


def _read_odd(reply: Reply, shape: type[E], question: Question, error: Exception) -> E:
    """Read what the plain decoder refused: an answer that holds only errors, or nulls for what is absent."""
    try:
        envelope = _decode_envelope(reply.body)
    except _MALFORMED:
        envelope = Envelope()
    if envelope.errors:
        raise explained(reply, envelope.errors, question, listing=shape is not Envelope)
    try:
        return msgspec.convert(_without_nulls(_decode_any(reply.body)), shape)
    except _MALFORMED:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    raise BadReply(f"{question.what}: the answer cannot be read: {quote(problem, question)}")


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    # A null in a list stays: an entry that says nothing must not vanish from it.
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _refusal(reply: Reply, shape: type[Envelope], question: Question) -> SlurmError:
    """Return what an answer means that is no success."""
    try:
        readable = reply.json and len(reply.body) <= reply_limits.MAX_REST
        envelope = _decode_envelope(reply.body) if readable else Envelope()
    except _MALFORMED:
        envelope = Envelope()
    if envelope.errors:
        return explained(reply, envelope.errors, question, listing=shape is not Envelope)
    return unexplained(reply, question, itself=bool(envelope.meta.slurm.release))
