from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api.duration import PATTERN, parse_duration

_UNITS = {
    "ns": timedelta(microseconds=1) / 1000,
    "us": timedelta(microseconds=1),
    "\u00b5s": timedelta(microseconds=1),
    "\u03bcs": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}
_WHOLE_UNITS = [unit for unit in _UNITS if unit != "ns"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", timedelta(0)),
        ("+0", timedelta(0)),
        ("-0", timedelta(0)),
        ("30m", timedelta(minutes=30)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        (".5s", timedelta(milliseconds=500)),
        ("5.s", timedelta(seconds=5)),
        ("-1m", timedelta(minutes=-1)),
        ("+2h45m10.5s", timedelta(hours=2, minutes=45, seconds=10, milliseconds=500)),
        ("1h1h", timedelta(hours=2)),
        ("1500ns", timedelta(microseconds=1)),
        ("100\u00b5s", timedelta(microseconds=100)),
        ("100\u03bcs", timedelta(microseconds=100)),
        ("9223372036854775807ns", timedelta(microseconds=9223372036854775)),
    ],
)
def test_a_duration_means_what_go_says(text: str, expected: timedelta) -> None:
    """A duration string has the length that Go's parser gives it."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        "3",
        "1d",
        "1w",
        "h",
        ".s",
        "1 h",
        " 1h",
        "1h ",
        "1h-1m",
        "--1h",
        "1e3s",
        "1H",
        "\u0661s",
        "1h\n",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A text that Go's parser refuses is refused, with the text and an example in the error."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a duration")):
        parse_duration(text)
    assert not re.fullmatch(PATTERN.removesuffix("$"), text)


@pytest.mark.parametrize("text", ["9223372036854775808ns", "2562048h", "-2562048h"])
def test_a_duration_beyond_64_bits_is_refused(text: str) -> None:
    """A duration of more nanoseconds than 63 bits hold is refused instead of wrapping around."""
    with pytest.raises(ValueError, match="too long"):
        parse_duration(text)


@given(st.lists(st.tuples(st.integers(0, 10**5), st.sampled_from(_WHOLE_UNITS)), min_size=1, max_size=6))
def test_terms_add_up(terms: list[tuple[int, str]]) -> None:
    """A duration is the sum of its terms, in whatever order they stand."""
    text = "".join(f"{number}{unit}" for number, unit in terms)
    expected = sum((number * _UNITS[unit] for number, unit in terms), timedelta(0))
    assert parse_duration(text) == expected
    assert parse_duration(f"-{text}") == -expected


@given(st.text(alphabet="0123456789.+-hmsnu\u00b5\u03bc ", max_size=12))
def test_the_api_server_accepts_what_the_operator_reads(text: str) -> None:
    """The pattern in the CRD accepts exactly the strings that the parser accepts, but for overlong ones."""
    try:
        parse_duration(text)
    except ValueError as error:
        accepted = "too long" in str(error)
    else:
        accepted = True
    assert bool(re.fullmatch(PATTERN.removesuffix("$"), text)) == accepted
