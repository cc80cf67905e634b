"""Between bytes and typed objects.

Lists and watch events are decoded straight into the structs of their kind, one C call per page or event. Only
when that fails is the answer taken apart, so that one malformed object costs itself and not its neighbours:
it becomes a `BadObject` that still knows its key.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from slurm_operator.kube.errors import ApiError, DecodeError, api_error
from slurm_operator.kube.meta import Key, Object

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound=Object)


class BadObject(NamedTuple):
    """An object that could not be decoded; the rest of its list or watch is fine."""

    key: Key
    error: str
    resource_version: str = ""


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


class _BareMeta(msgspec.Struct, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None


class _Bare(msgspec.Struct):
    metadata: _BareMeta | None = None


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
_decode_raw_list = msgspec.json.Decoder(_RawList).decode
_decode_raw_event = msgspec.json.Decoder(_RawEvent).decode
encode = msgspec.json.Encoder().encode


@functools.cache
def object_decoder(kind: type[Object]) -> Callable[[bytes | msgspec.Raw], Any]:
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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DecodeError(f"{what}: the answer is not a {kind.__name__}: {error}") from None
    return decoded


def decode_page(kind: type[T], data: bytes, what: str) -> Page[T]:
    """Decode a list; items that do not decode are set apart in `bad`."""
    try:
        page = _list_decoder(kind)(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _decode_page_item_by_item(kind, data, what)
    return Page(page.items or [], page.metadata.resource_version or "", page.metadata.next or "", [])


def _decode_page_item_by_item(kind: type[T], data: bytes, what: str) -> Page[T]:
    try:
        raw = _decode_raw_list(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DecodeError(f"{what}: the answer is not a list of {kind.__name__}: {error}") from None
    decode = object_decoder(kind)
    items: list[T] = []
    bad: list[BadObject] = []
    for item in raw.items or []:
        try:
            items.append(decode(item))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            bad.append(_bad(item, str(error)))
    return Page(items, raw.metadata.resource_version or "", raw.metadata.next or "", bad)


def decode_event(kind: type[T], line: bytes, what: str) -> WatchEvent[T]:
    """Decode one line of a watch; an ERROR event is raised as the error it carries."""
    try:
        event = _event_decoder(kind)(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _decode_odd_event(line, what, str(error))
    version = event.object.metadata.resource_version
    if event.type == "BOOKMARK":
        return WatchEvent("BOOKMARK", None, version)
    if event.type == "ERROR":
        return _decode_odd_event(line, what, "")
    return WatchEvent(event.type, event.object, version)


def _decode_odd_event(line: bytes, what: str, error: str) -> WatchEvent[T]:
    """Handle what the typed decoder refused: bookmarks full of nulls, ERROR events, malformed objects."""
    try:
        event = _decode_raw_event(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as broken:
        raise DecodeError(f"{what}: a line of the watch is not an event: {broken}") from None
    if event.type == "ERROR":
        raise status_error(what, 0, event.object)
    bad = _bad(event.object, error)
    return WatchEvent(event.type, None if event.type == "BOOKMARK" else bad, bad.resource_version)


def _bad(raw: msgspec.Raw, error: str) -> BadObject:
    try:
        meta = _decode_bare(raw).metadata or _BareMeta()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        meta = _BareMeta()
    return BadObject(Key(meta.namespace or "", meta.name or ""), error, meta.resource_version or "")


_LONGEST_MESSAGE = 1000
# RBAC, absence, conflicts, expiry and overload are told in names; other refusals may quote what was sent.
_NEVER_QUOTE_VALUES = frozenset({401, 403, 404, 409, 410, 429})


def status_error(
    what: str,
    http_status: int,
    body: bytes | msgspec.Raw,
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
    except (msgspec.MsgspecError, UnicodeDecodeError):
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
