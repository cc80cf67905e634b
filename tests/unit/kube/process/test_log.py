from __future__ import annotations

import dataclasses
import enum
import json
import logging
import os
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.models.meta import Key, Object, ObjectMeta, Resource
from slurm_operator.kube.process import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[[log.LogOptions], Callable[[], str]]

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzbHVybSJ9.c2lnbmF0dXJl"


@pytest.fixture
def lines() -> Iterator[Start]:
    """Configure logging onto a pipe; give back a reader of what was written, and undo it all afterwards."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    root = logging.getLogger()
    before = (root.handlers[:], root.level, structlog.get_config())

    def start(options: log.LogOptions) -> Callable[[], str]:
        log.configure(options, fd=write_end)
        return lambda: os.read(read_end, 1 << 20).decode()

    yield start
    root.handlers[:], config = before[0], before[2]
    root.setLevel(before[1])
    logging.captureWarnings(capture=False)
    structlog.configure(**config)
    structlog.contextvars.clear_contextvars()
    os.close(read_end)
    os.close(write_end)


def _fail(error: Exception) -> None:
    raise error


def test_json_keys_are_those_of_zap(lines: Start) -> None:
    """A JSON line has zap's keys first, in zap's order, then the caller's."""
    read = lines(log.LogOptions(time_encoding="nanos"))
    structlog.get_logger("kube.client").warning("slow request", verb="get", key=Key("ns", "a"))
    entry = json.loads(read())
    assert list(entry) == ["level", "ts", "logger", "msg", "verb", "key"]
    assert entry["level"] == "warn"
    assert isinstance(entry["ts"], int)
    assert (entry["logger"], entry["msg"], entry["key"]) == ("kube.client", "slow request", "ns/a")


def test_console_line_is_tab_separated(lines: Start) -> None:
    """The console encoder writes time, level, logger, message and the values as JSON, between tabs."""
    read = lines(log.LogOptions(encoder="console"))
    structlog.get_logger("kube").info("ready", after=1)
    _, level, logger, message, values = read().rstrip("\n").split("\t")
    assert (level, logger, message, json.loads(values)) == ("INFO", "kube", "ready", {"after": 1})


def test_bound_context_reaches_the_line(lines: Start) -> None:
    """What a reconcile binds with contextvars stands in every line it logs."""
    read = lines(log.LogOptions())
    with structlog.contextvars.bound_contextvars(controller="nodeset", reconcile_id="7"):
        structlog.get_logger("x").info("planned")
    entry = json.loads(read())
    assert (entry["controller"], entry["reconcile_id"]) == ("nodeset", "7")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (log.LogOptions(), {"info", "warning", "error", "critical"}),
        (log.LogOptions(devel=True), {"debug", "info", "warning", "error", "critical"}),
        (log.LogOptions(level=log.parse_level("debug")), {"debug", "info", "warning", "error", "critical"}),
        (log.LogOptions(level=log.parse_level("5")), {"debug", "info", "warning", "error", "critical"}),
        (log.LogOptions(level=log.parse_level("warn")), {"warning", "error", "critical"}),
        (log.LogOptions(level=log.parse_level("ERROR")), {"error", "critical"}),
        (log.LogOptions(devel=True, level=log.parse_level("panic")), {"critical"}),
    ],
)
def test_level_filters(lines: Start, options: log.LogOptions, shown: set[str]) -> None:
    """Exactly the events at or above the chosen level are written."""
    read = lines(dataclasses.replace(options, encoder="json"))
    logger = structlog.get_logger("x")
    for method in ("debug", "info", "warning", "error", "critical"):
        getattr(logger, method)(method)
    assert {json.loads(line)["msg"] for line in read().splitlines()} == shown


@pytest.mark.parametrize("text", ["", "0", "-1", "verbose", "1.5", "²"])
def test_unknown_level_is_refused(text: str) -> None:
    """A level that zap does not know is an error that lists those it knows."""
    with pytest.raises(ValueError, match="debug, info, warn, error, panic or an integer above 0"):
        log.parse_level(text)


@pytest.mark.parametrize(
    ("options", "method", "traced"),
    [
        (log.LogOptions(), "warning", False),
        (log.LogOptions(), "error", True),
        (log.LogOptions(devel=True, encoder="json"), "warning", True),
        (log.LogOptions(devel=True, encoder="json"), "info", False),
        (log.LogOptions(stacktrace_level=log.LEVELS["info"]), "info", True),
        (log.LogOptions(stacktrace_level=log.LEVELS["panic"]), "error", False),
    ],
)
def test_tracebacks_from_the_chosen_level_on(
    lines: Start, options: log.LogOptions, method: str, *, traced: bool
) -> None:
    """The exception's text is always there; its traceback only at the stack trace level and above."""
    read = lines(options)
    try:
        _fail(LookupError("no such pod"))
    except LookupError:
        getattr(structlog.get_logger("x"), method)("failed", exc_info=True)
    entry = json.loads(read())
    assert entry["error"] == "no such pod"
    assert ("stacktrace" in entry) is traced
    if traced:
        assert "LookupError: no such pod" in entry["stacktrace"]
        assert __file__ in entry["stacktrace"]


def test_console_traceback_follows_the_line(lines: Start) -> None:
    """On the console a traceback is readable text under its line."""
    read = lines(log.LogOptions(devel=True))
    structlog.get_logger("x").error("failed", exc_info=KeyError("a"))
    first, *rest = read().splitlines()
    assert first.endswith('{"error":"\'a\'"}')
    assert rest == ["KeyError: 'a'"]


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("epoch", 1730000000.123456789),
        ("millis", 1730000000123.456789),
        ("nanos", 1730000000123456789),
        ("iso8601", "2024-10-27T03:33:20.123Z"),
        ("rfc3339", "2024-10-27T03:33:20Z"),
        ("rfc3339nano", "2024-10-27T03:33:20.123456789Z"),
    ],
)
def test_time_encodings(encoding: log.TimeEncoding, expected: object) -> None:
    """Each time encoding writes what zap's encoder of that name writes."""
    assert log.encode_time(1730000000123456789, encoding) == expected


def test_rfc3339nano_drops_trailing_zeros() -> None:
    """As in Go, rfc3339nano leaves out zeros at the end, and the point with them."""
    assert log.encode_time(1730000000_500000000, "rfc3339nano") == "2024-10-27T03:33:20.5Z"
    assert log.encode_time(1730000000_000000000, "rfc3339nano") == "2024-10-27T03:33:20Z"


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "password",
        "Authorization",
        "client-key-data",
        "clientKeyData",
        "private_key",
        "bearer_token",
        "JWT",
    ],
)
def test_secret_keys_are_redacted_at_any_depth(lines: Start, key: str) -> None:
    """A value whose key announces a secret is not written, however deep it stands."""
    read = lines(log.LogOptions())
    nested: dict[str, Any] = {"user": [{key: "hunter2"}]}
    structlog.get_logger("x").info("loaded", config=nested, **{key: b"hunter2"})
    line = read()
    assert "hunter2" not in line
    assert json.loads(line)["config"]["user"][0][key] == log.REDACTED


@pytest.mark.parametrize("key", ["key", "name", "secret", "keys", "token_workers", "monkey"])
def test_harmless_keys_are_kept(key: str) -> None:
    """Names of objects and settings stay readable: only whole words that announce a secret count."""
    assert log.redact({key: "value"}) == {key: "value"}


@pytest.mark.parametrize(
    "text",
    [
        JWT,
        f"server said: bad token {JWT} (expired)",
        "Authorization: Bearer abcdef0123456789",
        "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB\n-----END EC PRIVATE KEY-----",
        "ZXlKaGJHY2lPaUpJVXpJMU5pSjkuZXlKem",
    ],
)
def test_text_that_looks_like_a_secret_is_hidden(lines: Start, text: str) -> None:
    """A token or private key inside a message, a value, bytes or a traceback never reaches the output."""
    read = lines(log.LogOptions())
    try:
        _fail(ValueError(text))
    except ValueError:
        structlog.get_logger("x").exception(f"failed: {text}", value=text, raw=text.encode())
    line = read()
    for word in (JWT, JWT.split(".")[1], "abcdef0123456789", "MHcCAQEEIB", "ZXlKaGJHY2lPaUpJ"):
        assert word not in line
    assert line.count(log.REDACTED) >= 4
    assert json.loads(line)["level"] == "error"


class _Pod(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "pods", "Pod")
    spec: str = "a long specification"


class _Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class _Settings:
    host: str = "a"
    token: str = "hunter2"  # noqa: S105 - the secret this test hides


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (_Pod(metadata=ObjectMeta(name="p", namespace="ns")), "_Pod ns/p"),
        (_Colour.RED, "red"),
        (_Settings(), {"host": "a", "token": log.REDACTED}),
        ({3}, [3]),
        (ValueError(), "ValueError"),
        (b"\xff", "\\xff"),
        ("x" * 5000, "x" * 4096 + "… (5000 characters)"),
    ],
)
def test_values_become_plain_data(value: object, expected: object) -> None:
    """Objects are named, not dumped; long text is cut; every other value becomes plain data."""
    assert log.redact({"v": value}) == {"v": expected}


class _Broken:
    def __str__(self) -> str:
        raise RuntimeError("broken")


@pytest.mark.parametrize("value", [_Broken(), "\ud800", 1 << 200, [[[[[[[[[1]]]]]]]]]])
def test_logging_never_raises(lines: Start, value: object) -> None:
    """A value that cannot be shown costs its line some content, and its caller nothing."""
    read = lines(log.LogOptions())
    structlog.get_logger("x").info("kept", value=value)
    assert json.loads(read())["level"] in {"info", "'info'"}


def test_a_closed_output_is_no_error() -> None:
    """Writing where nobody can read is silent."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    log.Sink(write_end).msg("lost")
    os.close(write_end)
    log.Sink(write_end).msg("lost too")


def test_records_of_the_standard_library_take_the_same_way(lines: Start) -> None:
    """A record logged through `logging` comes out as the same kind of line, redacted as well."""
    read = lines(log.LogOptions())
    logging.getLogger("aiohttp.server").error("bad header %s", JWT)
    logging.getLogger("asyncio").info("shown")
    logging.getLogger("asyncio").debug("hidden")
    first, second = (json.loads(line) for line in read().splitlines())
    assert (first["logger"], first["level"], first["msg"]) == (
        "aiohttp.server",
        "error",
        f"bad header {log.REDACTED}",
    )
    assert second["msg"] == "shown"


@pytest.mark.parametrize(("level", "shown"), [("debug", False), ("1", False), ("2", True)])
def test_debug_records_of_libraries_need_verbosity_two(lines: Start, level: str, *, shown: bool) -> None:
    """Libraries' own debug output is shown only from verbosity 2 on."""
    read = lines(log.LogOptions(level=log.parse_level(level)))
    logging.getLogger("asyncio").debug("selector")
    structlog.get_logger("x").debug("ours")
    assert ("selector" in read()) is shown


def test_a_wrong_format_string_in_a_library_is_survived(lines: Start) -> None:
    """A record whose arguments do not fit its format raises nothing."""
    lines(log.LogOptions())
    logging.getLogger("lib").error("%d", "text")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.dictionaries(st.text(max_size=8), json_values, max_size=4), message=st.text())
def test_every_event_renders_to_one_json_line(values: dict[str, Any], message: str) -> None:
    """Whatever is logged, a JSON line is one line and parses."""
    line = log.Renderer(log.LogOptions())(log.Sink(2, "x"), "info", {"event": message, **values})
    assert "\n" not in line
    assert json.loads(line)["level"] in {"info", "'info'"}


@given(before=st.text(), after=st.text())
def test_no_token_survives_any_surroundings(before: str, after: str) -> None:
    """A JSON web token is hidden whatever text stands around it."""
    renderer = log.Renderer(log.LogOptions())
    line = renderer(log.Sink(2, "x"), "info", {"event": "m", "value": f"{before} {JWT}{after}"})
    assert JWT.split(".")[1] not in line
