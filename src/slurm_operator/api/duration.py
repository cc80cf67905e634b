"""Durations as they are written in Kubernetes manifests: `90s`, `1h30m`, `1.5h`.

The format is the one of Go's `time.ParseDuration`, because stored objects contain it: an optional sign,
then decimal numbers with a unit, added up. A bare `0` needs no unit. The range is a signed 64-bit count of
nanoseconds, about 292 years.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_TERM: Final = r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
_LIMIT: Final = 2**63

# The same language for the API server: a bad duration is refused when it is written, by the field's name.
PATTERN: Final = "^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)$"


def parse_duration(text: str) -> timedelta:
    """Return the length a Go duration string stands for, cut to whole microseconds."""
    sign = -1 if text.startswith("-") else 1
    body = text[1:] if text[:1] in {"+", "-"} else text
    if body == "0":
        return timedelta(0)
    if not re.fullmatch(f"(?:{_TERM})+", body):
        raise ValueError(f"{text!r} is not a duration: write numbers with units, such as 30m, 1h30m or 90s")
    total = sign * sum(Fraction(number) * _NANOSECONDS[unit] for number, unit in re.findall(_TERM, body))
    if not -_LIMIT <= total < _LIMIT:
        raise ValueError(f"{text!r} is too long a duration: the limit is about 292 years")
    return timedelta(microseconds=int(total / 1_000))
