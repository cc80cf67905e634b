"""Between bytes and typed objects.

Lists and watch events are decoded straight into the structs of their kind, one C call per page or event. Only
when that fails is the answer taken apart, so that one malformed object costs itself and not its neighbours:
it becomes a `BadObject` that still knows its metadata.

Nesting is a way to be malformed, too. The API server takes objects ten thousand levels deep, and the decoder,
which recurses, gives up long before; even skipping such a value is too much for it. So an answer that is too
deep is first cut at a fixed depth by a scan that does not recurse, and what was cut out is decoded piece by
piece.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from slurm_operator.kube.errors import ApiError, DecodeError, api_error
from slurm_operator.kube.models.meta import Key, Object, ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound=Object)


class BadObject(NamedTuple):
    """An object that could not be decoded; the rest of its list or watch is fine."""

    key: Key
    error: str
    resource_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    """Owners and all, if at least the metadata decoded; else without even a name."""


class Page(NamedTuple, Generic[T]):
    """One page of a list, or all of it."""

    items: list[T]
    resource_version: str
    continue_token: str
    bad: list[BadObject]


class WatchEvent(NamedTuple, Generic[T]):
    """One event of a watch; a bookmark has no object."""

    type: str
    object: T | BadObject | None
    resource_version: str


class StatusDetails(msgspec.Struct, rename="camel"):
    """The part of a Status that a program can act on."""

    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: list[dict[str, str]] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, rename="camel"):
    """What the API server says instead of an object."""

    kind: str = ""
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


class _Bare(msgspec.Struct):
    metadata: ObjectMeta | None = None


class _NameMeta(msgspec.Struct, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None


class _Named(msgspec.Struct):
    metadata: _NameMeta | None = None


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str | None = None
    next: str | None = msgspec.field(name="continue", default=None)


class _RawList(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_status = msgspec.json.Decoder(Status).decode
_decode_bare = msgspec.json.Decoder(_Bare).decode
_decode_named = msgspec.json.Decoder(_Named).decode
_decode_raw_list = msgspec.json.Decoder(_RawList).decode
_decode_raw_event = msgspec.json.Decoder(_RawEvent).decode
encode = msgspec.json.Encoder().encode

# Whatever a decoder raises about the bytes it got.
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# A string, passed over as a whole because it may hold brackets, or a bracket.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
# Depths, counted from 0 for the outermost braces: the items of a list, the object of an event, and what lies
# below the owner references in the metadata of an object.
_ITEMS, _EVENT_OBJECT, _BELOW_OWNERS = 2, 1, 4


@functools.cache
def object_decoder(kind: type[Object]) -> Callable[[bytes], Any]:
    """Return the decoder of one object of a kind."""
    return msgspec.json.Decoder(kind).decode


@functools.cache
def _list_decoder(kind: type[Object]) -> Callable[[bytes], Any]:
    shape = msgspec.defstruct(
        f"{kind.__name__}List",
        [("metadata", _ListMeta), ("items", list[kind] | None, None)],  # type: ignore[valid-type]
    )
    return msgspec.json.Decoder(shape).decode


@functools.cache
def _event_decoder(kind: type[Object]) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(
        msgspec.defstruct(f"{kind.__name__}Event", [("type", str), ("object", kind)])
    ).decode


def decode_object(kind: type[T], data: bytes, what: str) -> T:
    """Decode one object or say which field is not what it should be."""
    try:
        decoded: T = object_decoder(kind)(data)
    except MALFORMED as error:
        raise DecodeError(f"{what}: the answer is not a {kind.__name__}: {_problem(error)}") from None
    return decoded


def decode_page(kind: type[T], data: bytes, what: str) -> Page[T]:
    """Decode a list; items that do not decode are set apart in `bad`."""
    try:
        page = _list_decoder(kind)(data)
    except MALFORMED:
        return _decode_page_item_by_item(kind, data, what)
    return Page(page.items or [], page.metadata.resource_version or "", page.metadata.next or "", [])


def _decode_page_item_by_item(kind: type[T], data: bytes, what: str) -> Page[T]:
    try:
        metadata, parts = _list_parts(data)
    except MALFORMED as error:
        raise DecodeError(f"{what}: the answer is not a list of {kind.__name__}: {error}") from None
    decode = object_decoder(kind)
    items: list[T] = []
    bad: list[BadObject] = []
    for part in parts:
        try:
            items.append(decode(part))
        except MALFORMED as error:
            bad.append(_bad(part, _problem(error)))
    return Page(items, metadata.resource_version or "", metadata.next or "", bad)


def _list_parts(data: bytes) -> tuple[_ListMeta, list[bytes]]:
    """Return the metadata of a list and the bytes of its items."""
    try:
        raw, cut = _decode_raw_list(data), None
    except RecursionError:
        shallow, cut = cut_at(data, _ITEMS)
        raw = _decode_raw_list(shallow)
    return raw.metadata, [_whole(item, cut) for item in raw.items or ()]


def _event_parts(line: bytes) -> tuple[str, bytes]:
    """Return the type of an event and the bytes of its object."""
    try:
        raw, cut = _decode_raw_event(line), None
    except RecursionError:
        shallow, cut = cut_at(line, _EVENT_OBJECT)
        raw = _decode_raw_event(shallow)
    return raw.type, _whole(raw.object, cut)


def cut_at(data: bytes, depth: int) -> tuple[bytes, list[bytes]]:
    """Cut every object and array at a depth out of a JSON text and leave `[n]`, the place of the n-th cut.

    Only brackets and strings are looked at; whether the text is JSON otherwise, the decoders of what remains
    and of what was cut out will tell.
    """
    kept: list[bytes] = []
    cut: list[bytes] = []
    level = start = 0
    for token in _TOKEN.finditer(data):
        sign = data[token.start() : token.start() + 1]
        if sign in (b"{", b"["):
            if level == depth:
                kept.append(data[start : token.start()])
                start = token.start()
            level += 1
        elif sign != b'"':
            level -= 1
            if level == depth:
                kept.append(b"[%d]" % len(cut))
                cut.append(data[start : token.end()])
                start = token.end()
    if level:
        raise msgspec.DecodeError("JSON is malformed: its brackets do not match")
    kept.append(data[start:])
    return b"".join(kept), cut


def _whole(raw: msgspec.Raw, cut: list[bytes] | None) -> bytes:
    """Return the bytes of a value, which stands where it was or has been cut out."""
    text = bytes(raw)
    return text if cut is None or not text.startswith(b"[") else cut[int(text[1:-1])]


def decode_event(kind: type[T], line: bytes, what: str) -> WatchEvent[T]:
    """Decode one line of a watch; an ERROR event is raised as the error it carries."""
    try:
        event = _event_decoder(kind)(line)
    except MALFORMED as error:
        return _decode_odd_event(line, what, _problem(error))
    version = event.object.metadata.resource_version
    if event.type == "BOOKMARK":
        return WatchEvent("BOOKMARK", None, version)
    if event.type == "ERROR":
        return _decode_odd_event(line, what, "")
    return WatchEvent(event.type, event.object, version)


def _decode_odd_event(line: bytes, what: str, error: str) -> WatchEvent[T]:
    """Handle what the typed decoder refused: bookmarks full of nulls, ERROR events, malformed objects."""
    try:
        event_type, part = _event_parts(line)
    except MALFORMED as broken:
        raise DecodeError(f"{what}: a line of the watch is not an event: {broken}") from None
    if event_type == "ERROR":
        raise status_error(what, 0, part)
    bad = _bad(part, error)
    return WatchEvent(event_type, None if event_type == "BOOKMARK" else bad, bad.resource_version)


def _bad(part: bytes, error: str) -> BadObject:
    """Set an object apart with as much of its metadata as can be read."""
    try:
        shallow, _ = cut_at(part, _BELOW_OWNERS)
        try:
            meta = _decode_bare(shallow).metadata or ObjectMeta()
        except MALFORMED:
            names = _decode_named(shallow).metadata or _NameMeta()
            key = Key(names.namespace or "", names.name or "")
            return BadObject(key, error, names.resource_version or "")
    except MALFORMED:
        return BadObject(Key("", ""), error)
    return BadObject(Key(meta.namespace, meta.name), error, meta.resource_version, meta)


def _problem(error: Exception) -> str:
    return "it is nested too deeply to be read" if isinstance(error, RecursionError) else str(error)


_LONGEST_MESSAGE = 1000
# RBAC, absence, conflicts, expiry and overload are told in names; other refusals may quote what was sent.
_NEVER_QUOTE_VALUES = frozenset({401, 403, 404, 409, 410, 429})


def status_error(
    what: str,
    http_status: int,
    body: bytes,
    *,
    content_type: str = "application/json",
    retry_after: float | None = None,
    secret: bool = False,
) -> ApiError:
    """Turn a refusal into the error class that fits, saying what was wanted and what the server said.

    A body that is no Status (a proxy's HTML page) is never quoted. For kinds that hold secrets the server's
    sentence is left out too, since validation messages repeat the values they complain about; the field paths
    remain.
    """
    try:
        status = _decode_status(body)
    except MALFORMED:
        status = Status()
    if status.kind != "Status":
        said = f"HTTP {http_status} with {content_type or 'no content type'} instead of a Kubernetes Status"
        return api_error(http_status, "", f"{what}: {said}", retry_after=retry_after)
    code = http_status or status.code or 500
    details = status.details or StatusDetails()
    causes = details.causes or []
    said = status.message or "no message"
    if secret:
        causes = [{key: cause[key] for key in ("reason", "field") if key in cause} for cause in causes]
        details = msgspec.structs.replace(details, causes=causes)
        if code not in _NEVER_QUOTE_VALUES or said.startswith("admission webhook"):
            fields = sorted({f"{cause.get('field', '?')} ({cause.get('reason', '?')})" for cause in causes})
            said = f"refused{' because of ' if fields else ''}{', '.join(fields)}"
    if len(said) > _LONGEST_MESSAGE:
        said = said[:_LONGEST_MESSAGE] + "…"
    if details.retry_after_seconds and retry_after is None:
        retry_after = float(details.retry_after_seconds)
    given = {key: value for key, value in msgspec.to_builtins(details).items() if value is not None}
    return api_error(
        code,
        status.reason or "",
        f"{what}: {said} (HTTP {code}{f' {status.reason}' if status.reason else ''})",
        details=given,
        retry_after=retry_after,
    )
