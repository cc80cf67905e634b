from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.client.watch_stream import Batching, LineSplitter
from slurm_operator.kube.errors import DecodeError

LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")))
CUTS = st.lists(st.integers(min_value=0, max_value=500))


@given(lines=LINES, cuts=CUTS, ending=st.booleans())
def test_lines_do_not_depend_on_the_cuts(lines: list[bytes], cuts: list[int], *, ending: bool) -> None:
    """However the network cuts a stream, the same lines come out; an unfinished last one stays pending."""
    stream = b"\n".join(lines) + (b"\n" if ending and lines else b"")
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    splitter = LineSplitter("watch pods")
    found = [line for a, b in pairwise(edges) for line in splitter.feed(stream[a:b])]
    *whole, rest = stream.split(b"\n")
    assert found == [line for line in whole if line]
    assert splitter.pending == bool(rest)


@given(lines=LINES)
def test_single_bytes(lines: list[bytes]) -> None:
    """A stream that arrives byte by byte gives the same lines as one that arrives at once."""
    stream = b"".join(line + b"\n" for line in lines)
    slow = LineSplitter("watch pods")
    found = [line for i in range(len(stream)) for line in slow.feed(stream[i : i + 1])]
    assert found == LineSplitter("watch pods").feed(stream)


def test_lines_longer_than_any_event_are_refused() -> None:
    """A stream without line ends does not fill the memory."""
    splitter = LineSplitter("watch pods", longest=10)
    splitter.feed(b"1234567890")
    with pytest.raises(DecodeError, match="watch pods: a line is longer than 10 bytes"):
        splitter.feed(b"1")


def test_limit_counts_one_line_only() -> None:
    """A finished line frees its share of the limit."""
    splitter = LineSplitter("watch pods", longest=10)
    assert splitter.feed(b"12345678\n12345678") == [b"12345678"]
    assert splitter.feed(b"9\n1") == [b"123456789"]


def test_batching_waits_only_in_a_stream_of_small_reads() -> None:
    """The first read, one after silence and one after a large read come at once; others gather."""
    delay = Batching().delay
    assert (delay(0, float("inf")), delay(100, 60.0), delay(10**6, 0.0)) == (0.0, 0.0, 0.0)
    assert delay(100, 0.0) > delay(100, 0.01) > 0.0
