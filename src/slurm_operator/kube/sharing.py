"""Equal things stored once.

Strings go through the interpreter's own intern table, which forgets a string with its last user. Immutable
structs and tuples of them have no such table, so there is a small one here: it forgets everything when it is
full, which costs a little sharing and never memory. All of this runs for every event of a watch, so the loops
stay in C.
"""

from __future__ import annotations

from sys import intern
from typing import Any, TypeVar

V = TypeVar("V")

# Distinct container lists, affinities and so on of a large cluster; more than that do not repeat much.
_MOST = 4096

_shared: dict[Any, Any] = {}


def share(value: V) -> V:
    """Return an equal value that was seen before, or this one; it must be immutable and hashable."""
    if len(_shared) >= _MOST:
        _shared.clear()
    return _shared.setdefault(value, value)  # type: ignore[no-any-return]


def share_string(value: str) -> str:
    """Return the one copy of a string."""
    try:
        return intern(value)
    except TypeError:
        return value  # made by hand from an enumeration


def share_mapping(mapping: dict[str, str]) -> dict[str, str]:
    """Return an equal mapping whose keys and values are shared strings."""
    try:
        return dict(zip(map(intern, mapping), map(intern, mapping.values()), strict=True))
    except TypeError:
        return mapping  # as above
