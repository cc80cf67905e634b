from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.decode import http1
from slurm_operator.slurm.decode.http1 import Answer, MalformedError

COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nContent-Type: application/json\r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + COUNTED
UNCHANGED = b"HTTP/1.1 304 NOT MODIFIED\r\n\r\n"
REFUSAL = b"HTTP/1.1 511 Network Authentication Required\r\nConnection: Close\r\nContent-Length: 2\r\n\r\n{}"
UNTIL_CLOSED = b"HTTP/1.0 200 OK\r\n\r\nhello world"


def fed(data: bytes, cuts: list[int] | None = None, limit: int = 1000) -> Answer:
    answer = Answer(limit)
    start = 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]:
        if cut > start and not answer.complete:
            answer.feed(data[start:cut])
            start = cut
    return answer


@given(
    st.sampled_from(
        [
            (COUNTED, 200, b"hello world", True),
            (CHUNKED, 200, b"hello world", True),
            (INTERIM, 200, b"hello world", True),
            (UNCHANGED, 304, b"", True),
            (REFUSAL, 511, b"{}", False),
        ]
    ),
    st.lists(st.integers(min_value=0, max_value=500), max_size=20),
)
def test_an_answer_is_the_same_however_it_arrives(
    case: tuple[bytes, int, bytes, bool], cuts: list[int]
) -> None:
    """The network may cut the bytes of an answer anywhere."""
    data, status, body, reusable = case
    answer = fed(data, cuts)
    assert (answer.complete, answer.status, bytes(answer.body)) == (True, status, body)
    assert answer.reusable == reusable


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0, max_value=300), max_size=5))
def test_any_bytes_are_an_answer_or_an_error(data: bytes, cuts: list[int]) -> None:
    """Whatever arrives, the parser either waits, is done, or says that it is malformed."""
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        try:
            answer = fed(start + data, cuts, limit=200)
        except MalformedError:
            continue
        assert len(answer.body) <= 200


@pytest.mark.parametrize("data", [COUNTED, CHUNKED, INTERIM, REFUSAL])
def test_an_answer_that_breaks_off_is_never_complete(data: bytes) -> None:
    """Every proper beginning of an answer is incomplete, also when the other side then closes."""
    for end in range(len(data)):
        answer = fed(data[:end])
        assert not answer.finish(), data[:end]
        assert not answer.reusable


@pytest.mark.parametrize("status", [b"201 CREATED", b"302 FOUND", b"404 NOT FOUND", b"500 X", b"511 X"])
def test_what_may_have_something_behind_it_ends_the_connection(status: bytes) -> None:
    """Behind a refusal more may come, so its connection is not used again, though it says nothing."""
    answer = fed(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")
    assert answer.complete
    assert not answer.reusable


def test_without_a_length_an_answer_ends_with_the_connection() -> None:
    """An answer of unknown length is complete when the other side closes, and not before."""
    answer = fed(UNTIL_CLOSED)
    assert not answer.complete
    assert answer.finish()
    assert answer.body == b"hello world"
    assert not answer.reusable


@pytest.mark.parametrize("data", [COUNTED, CHUNKED, UNCHANGED])
def test_bytes_behind_an_answer_spoil_only_the_connection(data: bytes) -> None:
    """What slurmrestd sends behind an answer is not part of it, and the connection is not used again."""
    answer = fed(data + b"Connection: Close\r\n")
    assert answer.complete
    assert bytes(answer.body) in (b"hello world", b"")
    assert not answer.reusable


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP/1"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP/1"),
        (b"HTTP/1.1 ok\r\n\r\n", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "headers is malformed"),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", "headers is malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "length of its body"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "length of its body"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "length of its body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "length of its body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "no length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", "longer than it says"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000, "longer than"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "head is longer than"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "longer than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", "longer than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, "longer than 1000 bytes"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_reason(data: bytes, problem: str) -> None:
    """Nonsense, contradictions and too much of anything are errors, not answers."""
    with pytest.raises(MalformedError, match=problem):
        fed(data)


def test_a_request_on_the_wire() -> None:
    """A request is its line, its headers, its length if it has a body, and the body."""
    headers = {"Host": "slurm:6820", "Content-Type": "application/json"}
    assert http1.encode("POST", "/slurm/v0.0.45/nodes/", headers, b"{}") == (
        b"POST /slurm/v0.0.45/nodes/ HTTP/1.1\r\nHost: slurm:6820\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    assert http1.encode("GET", "/x", {"Host": "a"}, None) == b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"


def test_an_answer_is_freed_with_the_last_reference_to_it() -> None:
    """Nobody has to wait for the garbage collector to get back the memory of a long list."""
    gc.collect()
    gc.disable()
    try:
        answer = fed(CHUNKED)
        assert answer.complete
        gone = weakref.ref(answer)
        del answer
        assert gone() is None
    finally:
        gc.enable()
