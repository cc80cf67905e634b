"""Every decoder of what a server or a user sends, with inputs that nobody would write.

Whatever it is given, a decoder returns something within its limits or raises the error that callers expect.
What it did is counted, not timed: entries, names, characters, steps.
"""

from __future__ import annotations

import base64
import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.manifests.wire import decode_object, decode_page
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.slurm import web_token
from slurm_operator.slurm.decode import http1, replies
from slurm_operator.slurm.decode.pieces import EntryList, MalformedTextError, OversizeError
from slurm_operator.slurm.decode.refusals import Question, Reply
from slurm_operator.slurm.decode.replies import (
    Envelope,
    JobsReply,
    NodesReply,
    Partitions,
    Pings,
    Reservations,
    Statistics,
    read,
    reading,
)
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.model import hostlist, reply_limits
from slurm_operator.slurm.model.jobs import JobBook
from slurm_operator.slurm.model.records import Job
from slurm_operator.slurm.model.steps import step
from tests.support.property_settings import fuzzed

QUESTION = Question("list of http://slurm:6820", secret="s3cret")  # noqa: S106 - what must not be repeated
FUZZ = settings(max_examples=fuzzed())
SHAPES: tuple[type[Envelope], ...] = (
    NodesReply,
    JobsReply,
    Reservations,
    Partitions,
    Pings,
    Statistics,
    Envelope,
)
KEYS = (
    *("name", "state", "reason", "job_id", "job_state", "nodes", "node_list", "users", "flags", "partition"),
    *("features", "start_time", "set", "number", "infinite", "errors", "meta", "last_update", "alloc_cpus"),
    *("reservations", "partitions", "pings", "statistics", "jobs", "description", "error_number", "slurm"),
)
SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**63,
    2**70,
    1.5,
    1e308,
    "",
    "n1",
    "IDLE",
    "RUNNING",
    "n[1-3]",
)
SCALARS += ('"', "\\", '"},{"name": "', "]", "}", "[{", "\u0000", "\N{SNOWMAN}", "\U0001f600", "x" * 300)
# Hypothesis chooses the seeds, and repeats those that failed; making the input itself is left to a generator
# that takes microseconds, for there are to be many of them.
seeds = st.integers(min_value=0, max_value=2**48).map(random.Random)


def value(rng: random.Random, depth: int = 3) -> Any:
    """Return any JSON value."""
    kind = rng.randrange(4) if depth else 0
    if kind < 2:
        return rng.choice(SCALARS)
    if kind == 2:
        return [value(rng, depth - 1) for _ in range(rng.randrange(5))]
    return entry(rng, depth - 1)


def entry(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """Return an object with names that matter and values that may be right."""
    good = {
        "name": f"n{rng.randrange(9)}",
        "state": ["IDLE"],
        "job_id": rng.randrange(9),
        "job_state": ["RUNNING"],
    }
    made = {rng.choice(KEYS): value(rng, depth) for _ in range(rng.randrange(6))}
    return (
        good | made
        if rng.random() < 0.5
        else made | {"name": "n1", "job_id": 1}
        if rng.random() < 0.5
        else made
    )


def document(rng: random.Random) -> bytes:
    """Return a reply that may be one."""
    whole: dict[str, Any] = {rng.choice(KEYS): value(rng) for _ in range(rng.randrange(4))}
    for what in rng.sample(
        ("nodes", "jobs", "reservations", "partitions", "pings", "errors"), rng.randrange(4)
    ):
        whole[what] = [entry(rng) for _ in range(rng.randrange(6))]
    spaces = rng.choice([(",", ":"), (", ", ": "), (" ,\n", " :\t")])
    return json.dumps(whole, separators=spaces, ensure_ascii=rng.random() < 0.5).encode()


def spoiled(rng: random.Random) -> bytes:
    """Return a document with some bytes cut out, doubled or put in; or nothing but bytes."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(200))
    text = document(rng)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randrange(20))
        put = rng.choice(
            [b"", text[start:end] * 2, rng.randbytes(rng.randrange(4)), b'"', b"]", b"{", b",", b"\\"]
        )
        text = text[:start] + put + text[end:]
    return text


def hosts(rng: random.Random) -> str:
    """Return a hostlist, or what looks like one."""
    if rng.random() < 0.3:
        return "".join(rng.choices("an0123[]-,.: \n", k=rng.randrange(60)))
    brackets = ["n"]
    for _ in range(rng.randrange(4)):
        ranges = [_range(rng) for _ in range(rng.randrange(1, 4))]
        brackets += [f"[{','.join(ranges)}]", rng.choice(["", "x", ",n"])]
    return "".join(brackets)


def _range(rng: random.Random) -> str:
    low, high = (str(rng.randrange(10 ** rng.randrange(1, 7))).zfill(rng.randrange(5)) for _ in range(2))
    return rng.choice([low, f"{low}-{high}", f"1-{high}"])


def job(rng: random.Random) -> Job:
    """Return a job in some states on some nodes."""
    states = rng.choices(["RUNNING", "PENDING", "COMPLETED", "ODD"], k=rng.randrange(3))
    return Job(job_id=rng.randrange(20), job_state=tuple(states), nodes=hosts(rng))


WIRE = (
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 500 X\r\n", b"\r\n\r\n", b"\r\n"),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"hello",
    ),
    *(b"5\r\nhello\r\n", b"0\r\n", b"0\r\n\r\n", b"1;x=y\r\n", b"ffffffffffff\r\n", b"X: y\r\n", b"\x00\xff"),
)


def wire(rng: random.Random) -> bytes:
    """Return bytes that may be an answer of an HTTP server."""
    return rng.choice([b"", WIRE[0], WIRE[0] + WIRE[5], WIRE[0] + WIRE[7]]) + b"".join(
        rng.choices(WIRE, k=rng.randrange(30))
    )


def outcome(body: bytes, shape: type[Envelope], status: int = 200) -> Envelope | SlurmError:
    try:
        return read(Reply(status, "application/json", bytearray(body)), shape, QUESTION)
    except SlurmError as error:
        found = error
    assert len(str(found)) < 1000
    assert "s3cret" not in str(found)
    return found


@FUZZ
@given(seeds)
def test_a_reply_is_read_or_refused(rng: random.Random) -> None:
    """Any text is a reply of the shape that was asked for, or an error of Slurm."""
    body, status = spoiled(rng), rng.choice([200, 200, 200, 304, 401, 404, 500, 502])
    for shape in SHAPES:
        outcome(body, shape, status)


@FUZZ
@given(seeds)
def test_a_long_reply_means_the_same_as_a_short_one(rng: random.Random) -> None:
    """In pieces a reply is read as it is as a whole: what one way refuses, the other refuses, too."""
    body, shape = spoiled(rng), rng.choice(SHAPES[:4])
    short = outcome(body, shape)
    long = outcome(body + b" " * (replies.SHORT_ANSWER + 1 - len(body)), shape)
    if isinstance(short, Envelope) or isinstance(long, Envelope):
        assert short == long or _twice(body, shape)


def _twice(body: bytes, shape: type[Envelope]) -> bool:
    """Return whether a key is there twice: of two lists the short way takes the last, the long one none."""
    return body.count(b'"%s"' % shape.__name__.lower().encode()) > 1


@FUZZ
@given(seeds)
def test_a_walk_finds_the_entries_that_are_there(rng: random.Random) -> None:
    """The walk from bracket to bracket finds each entry, whole and in order, and the end of the list."""
    entries = [entry(rng) for _ in range(rng.randrange(8))]
    text = json.dumps({"before": entries, "nodes": entries, "after": 1}).encode()
    listed, found = EntryList(text, "nodes"), []
    while listed.end < 0:
        found += [json.loads(text[piece.start : piece.end]) for piece in listed.walk()]
    assert found == entries
    assert json.loads(listed.rest()) == {"before": entries, "nodes": [], "after": 1}


@FUZZ
@given(seeds)
def test_a_walk_ends(rng: random.Random) -> None:
    """A walk through any bytes makes progress with every step, or says why it cannot."""
    text = spoiled(rng)
    with suppress(MalformedTextError, OversizeError):
        listed, steps = EntryList(text, "nodes"), 0
        while listed.end < 0:
            assert listed.walk()
            steps += 1
            assert steps <= len(text)


@FUZZ
@given(seeds)
def test_a_hostlist_is_expanded_within_its_limit(rng: random.Random) -> None:
    """Any text stands for at most so many names of at most so many characters, or is refused."""
    text, limit = hosts(rng), rng.randrange(1, 3000)
    with suppress(ValueError):
        found = hostlist.expand(text, limit)
        assert len(found) <= limit
        assert all(0 < len(name) <= reply_limits.MAX_NAME for name in found)


@FUZZ
@given(seeds)
def test_every_unfinished_job_holds_its_nodes_or_is_unplaced(rng: random.Random) -> None:
    """Whatever the hostlists are: an unfinished job is on the nodes it names, or it may be anywhere."""
    jobs = [job(rng) for _ in range(rng.randrange(3))]
    listed = JobBook().listed(jobs, 0.0)
    holders = {number for hold in listed.by_node.values() for number in hold.jobs}
    assert sum(len(hold.jobs) for hold in listed.by_node.values()) <= reply_limits.MAX_EXPANDED
    assert len(listed.by_node) <= reply_limits.MAX_NODES
    for one in jobs:
        waits = "PENDING" in one.job_state and not one.nodes
        assert one.finished or waits or one.job_id in holders or listed.unplaced


@FUZZ
@given(seeds)
def test_an_answer_keeps_no_more_than_it_may(rng: random.Random) -> None:
    """Whatever arrives in whatever pieces, the body stays within its limit."""
    answer, data, size = http1.Answer(20), wire(rng), rng.randrange(1, 50)
    with suppress(http1.MalformedError):
        for start in range(0, len(data), size):
            if answer.complete:
                break
            answer.feed(data[start : start + size])
            assert len(answer.body) <= 20
        answer.finish()
    assert len(answer.body) <= 20


@FUZZ
@given(seeds)
def test_a_token_has_claims_or_is_refused(rng: random.Random) -> None:
    """Any text is a token with claims, or is refused."""
    parts = [
        base64.urlsafe_b64encode(spoiled(rng)).rstrip(b"=").decode() for _ in range(rng.choice([2, 3, 3, 4]))
    ]
    text = ".".join(parts)
    with suppress(ValueError):
        assert len(web_token.read(text).user) < len(text)
    assert not web_token.signed_by(text, b"k" * 32)


@FUZZ
@given(seeds)
def test_an_object_of_kubernetes_is_decoded_or_refused(rng: random.Random) -> None:
    """Any text is an object, a page of objects, or an error of the client."""
    body = spoiled(rng)
    with suppress(KubeError):
        decode_object(Pod, body, "pods")
    with suppress(KubeError):
        decode_page(Pod, body.replace(b"nodes", b"items"), "pods")


@pytest.mark.parametrize("depth", [10, 63, 200, 100_000])
def test_nesting_is_read_or_refused_at_any_depth(depth: int) -> None:
    """Nesting costs a step for each level, and is refused beyond what slurmrestd writes."""
    entry = b'{"name": "n1", "deep": %s%s}' % (b"[" * depth, b"]" * depth)
    body = b'{"nodes": [%s], "last_update": {"set": true, "number": 5}}' % b",".join(
        [entry] * (1 + 300_000 // depth)
    )
    found = outcome(body, NodesReply)
    assert isinstance(found, NodesReply if depth < reply_limits.MAX_DEPTH else SlurmError)


def test_a_long_reply_is_read_in_many_short_steps() -> None:
    """The event loop gets its turn after each piece of a few hundred kilobytes."""
    entry = json.dumps({"name": "n%d", "state": ["IDLE"], "extra": "x" * 2000})
    body = ",".join(entry % number for number in range(4000)).encode()
    steps = reading(Reply(200, "application/json", b'{"nodes": [%s]}' % body), NodesReply, QUESTION)
    done, content, count = False, None, 0
    while not done:
        done, content = step(steps)
        count += 1
    assert count >= len(body) // (2 * replies.SHORT_ANSWER)
    assert content is not None
    assert len(content.nodes) == 4000
