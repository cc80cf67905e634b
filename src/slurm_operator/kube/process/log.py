"""One log line per event, on standard error, in the shape that zap gives to Go operators.

Every module says `structlog.get_logger(__name__)` and logs an event with key/value pairs. `configure` puts
one renderer behind all of them. It turns values into plain data, hides secrets, and writes the line with a
single `write(2)`, so that lines of two threads never mix. Records of the standard library's `logging`
(asyncio, aiohttp) take the same way. The keys are zap's (`level`, `ts`, `logger`, `msg`, `error`,
`stacktrace`), so log pipelines built for Slinky slurm-operator keep working.

Secrets are caught twice (see `redaction`): by the name of the key, in nested data too, and by the look of the
text, because an error message can carry what no key announces. Text is scrubbed value by value and before it
is cut to length: what is hidden then never takes a part of the line's own form with it, and a secret is never
cut so that it no longer looks like one.

Logging never raises: a line that cannot be rendered is replaced by one that says so, a line that cannot be
written is lost.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import structlog

from slurm_operator.kube.models.meta import Key, Object
from slurm_operator.kube.process.redaction import REDACTED, is_secret, scrub

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

__all__ = [
    "ENCODERS",
    "LEVELS",
    "REDACTED",
    "TIME_ENCODINGS",
    "Encoder",
    "LogOptions",
    "Renderer",
    "Sink",
    "TimeEncoding",
    "configure",
    "encode_time",
    "parse_level",
    "redact",
    "scrub",
]

Encoder = Literal["json", "console"]
TimeEncoding = Literal["epoch", "millis", "nanos", "iso8601", "rfc3339", "rfc3339nano"]

ENCODERS: tuple[Encoder, ...] = ("json", "console")
TIME_ENCODINGS: tuple[TimeEncoding, ...] = ("epoch", "millis", "nanos", "iso8601", "rfc3339", "rfc3339nano")
LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "panic": logging.CRITICAL,
}
# At this verbosity (`--zap-log-level=2` and up) the libraries' own debug records are shown as well.
LIBRARIES_TOO = logging.NOTSET

_ZAP_NAMES = {"warning": "warn", "critical": "fatal", "exception": "error"}
_LEVEL_BY_METHOD = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}
# The keys zap writes itself: a caller's value under the same name must not overwrite them.
_RESERVED = frozenset({"level", "ts", "logger", "msg", "stacktrace"})

_MAX_DEPTH = 6
# A value longer than this is an object dump or a page of HTML; its beginning tells which.
_MAX_TEXT = 4096
_MAX_STACK = 32_768
# What lies beyond is not even looked at; it is cut off in any case.
_MAX_SCRUBBED = 1 << 18


@dataclasses.dataclass(frozen=True)
class LogOptions:
    """How to log; `None` means what zap does in the chosen mode."""

    devel: bool = False
    encoder: Encoder | None = None
    level: int | None = None
    stacktrace_level: int | None = None
    time_encoding: TimeEncoding = "rfc3339"

    @property
    def effective_encoder(self) -> Encoder:
        """Return the encoder: console while developing, JSON in production."""
        return self.encoder or ("console" if self.devel else "json")

    @property
    def effective_level(self) -> int:
        """Return the lowest level that is written."""
        if self.level is not None:
            return self.level
        return logging.DEBUG if self.devel else logging.INFO

    @property
    def effective_stacktrace_level(self) -> int:
        """Return the lowest level at which an exception's traceback is written."""
        if self.stacktrace_level is not None:
            return self.stacktrace_level
        return logging.WARNING if self.devel else logging.ERROR


def parse_level(text: str) -> int:
    """Read a level name, or zap's verbosity: an integer above zero, where a higher one shows more."""
    level = LEVELS.get(text.lower())
    if level is not None:
        return level
    if text.isdecimal() and int(text) > 0:
        return logging.DEBUG if int(text) == 1 else LIBRARIES_TOO
    raise ValueError(f"want one of {', '.join(LEVELS)} or an integer above 0, not {text!r}")


def configure(options: LogOptions, fd: int = 2) -> None:
    """Send everything this process logs, through structlog or `logging`, to `fd`."""
    level = options.effective_level
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, Renderer(options)],
        wrapper_class=structlog.make_filtering_bound_logger(max(level, logging.DEBUG)),
        logger_factory=lambda *names: Sink(fd, *names),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    # What the libraries say while all is well is for who asks for it by number.
    root.setLevel(level if level != logging.DEBUG else logging.INFO)
    logging.captureWarnings(capture=True)


class Sink:
    """The far end of a logger: one line in, one write to a file descriptor out."""

    def __init__(self, fd: int, name: str = "") -> None:
        self.fd = fd
        self.name = name

    def msg(self, line: str) -> None:
        """Write the line, whole or not at all as far as the kernel allows."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        try:
            while data:
                data = data[os.write(self.fd, data) :]
        except OSError:
            # The pipe has no reader, or is full and non-blocking: drop the line, as logging must not stop us.
            return

    debug = info = warning = warn = error = exception = critical = fatal = log = msg


class Renderer:
    """The only processor: an event with its values in, one line of text out."""

    def __init__(self, options: LogOptions) -> None:
        self._console = options.effective_encoder == "console"
        self._stack_level = options.effective_stacktrace_level
        self._time_encoding = options.time_encoding

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        """Render one event; the signature is structlog's for processors."""
        level = _ZAP_NAMES.get(method, method)
        timestamp = encode_time(time.time_ns(), self._time_encoding)
        name = str(getattr(logger, "name", ""))
        try:
            message = scrub(str(event.pop("event", ""))[:_MAX_SCRUBBED])
            stack = self._traceback(method, event)
            values = redact(event)
        except Exception as error:  # noqa: BLE001 - a value with a broken __str__ must not break its caller
            message, stack, values = f"log event could not be rendered: {type(error).__name__}", "", {}
        if not self._console:
            head = {"level": level, "ts": timestamp, "logger": name, "msg": message}
            line = _to_json(head | values | ({"stacktrace": stack} if stack else {}))
        else:
            head_line = [str(timestamp), level.upper(), *([name] if name else []), message]
            line = "\t".join([*head_line, *([_to_json(values)] if values else [])])
            line += f"\n{stack.rstrip()}" if stack else ""
        return line

    def _traceback(self, method: str, event: MutableMapping[str, Any]) -> str:
        error = _exception(event.pop("exc_info", None))
        stack_info = event.pop("stack_info", None)
        if error is None:
            return scrub(stack_info)[:_MAX_STACK] if isinstance(stack_info, str) else ""
        event.setdefault("error", error)
        if _LEVEL_BY_METHOD.get(method, logging.INFO) < self._stack_level:
            return ""
        return scrub("".join(traceback.format_exception(error)))[-_MAX_STACK:]


class _Bridge(logging.Handler):
    """Carries records of the standard library's `logging` over to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            log = structlog.get_logger(record.name)
            # Records below debug exist only in number; the filter on the root logger let them through.
            log.log(
                max(record.levelno // 10 * 10, logging.DEBUG), record.getMessage(), exc_info=record.exc_info
            )
        except Exception:  # noqa: BLE001 - a wrong format string in a library must not break its caller
            Sink(sys.__stderr__.fileno() if sys.__stderr__ else 2).msg(f"unreadable record of {record.name}")


def encode_time(nanoseconds: int, encoding: TimeEncoding) -> str | float | int:
    """Return a point in time (since 1970, UTC) the way zap's encoder of that name writes it."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    match encoding:
        case "epoch":
            return nanoseconds / 1e9
        case "millis":
            return nanoseconds / 1e6
        case "nanos":
            return nanoseconds
        case "iso8601":
            tail = f".{fraction // 1_000_000:03d}"
        case "rfc3339nano":
            tail = f".{fraction:09d}".rstrip("0").rstrip(".")
        case _:
            tail = ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + tail + "Z"


def redact(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as plain data, with `[redacted]` in place of what the key calls a secret."""
    return {f"{key}_" if key in _RESERVED else key: value for key, value in _pairs(values.items(), 0).items()}


def _pairs(items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
    pairs = {_text(key): value for key, value in items}
    hidden = {key for key, value in pairs.items() if _hides(key, value)}
    # A header or an environment variable of a container: the name stands beside the value, not before it.
    if isinstance(name := pairs.get("name"), str) and _hides(name, pairs.get("value")):
        hidden.add("value")
    if pairs.get("kind") == "Secret":
        hidden |= pairs.keys() & {"data", "stringData"}
    return {
        scrub(key): REDACTED if key in hidden else _plain(value, depth + 1) for key, value in pairs.items()
    }


def _hides(key: str | bytes, value: Any) -> bool:
    # Where an object is, or which one it is, is no secret: `token=Key("ns", "a")` names a Token.
    return not isinstance(value, Key | Object) and is_secret(key, value)


def _plain(value: Any, depth: int) -> Any:  # noqa: PLR0911 - one return for each shape of data
    match value:
        case Enum():
            return _plain(value.value, depth)
        case None | bool() | int() | float():
            return value
        case str():
            return _shorten(str(value))
        case bytes() | bytearray() | memoryview():
            return _shorten(_text(bytes(value)))
        case Key():
            return str(value)
        case Object():
            return f"{type(value).__name__} {value.key}"
        case BaseException():
            return _shorten(str(value) or type(value).__name__)
    return _nested(value, depth) if depth < _MAX_DEPTH else f"<{type(value).__name__}>"


def _nested(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _pairs(value.items(), depth)
    if isinstance(value, list | tuple | set | frozenset):
        match value:
            case [str() | bytes() as name, secret] if _hides(name, secret):  # as headers are listed
                return [_shorten(_text(name)), REDACTED]
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, msgspec.Struct):
        return _pairs(((name, getattr(value, name)) for name in value.__struct_fields__), depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _pairs(((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr), depth)
    return _shorten(str(value))


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _shorten(text: str) -> str:
    clean = scrub(text[:_MAX_SCRUBBED])
    return clean if len(text) <= _MAX_TEXT else f"{clean[:_MAX_TEXT]}… ({len(text)} characters)"


def _exception(exc_info: Any) -> BaseException | None:
    """Return the exception behind the forms of `exc_info` that `logging` and structlog know."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return exc_info[1] if isinstance(exc_info[1], BaseException) else None
    return sys.exc_info()[1] if exc_info else None


def _to_json(values: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(values).decode()
    except (ValueError, TypeError, OverflowError):
        # A lone surrogate or an integer beyond 64 bits: text that JSON can carry is better than no line.
        plain = {
            key: repr(value).encode("ascii", "backslashreplace").decode() for key, value in values.items()
        }
        return msgspec.json.encode(plain).decode()
