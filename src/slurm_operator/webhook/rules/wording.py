"""The decoder's errors, in the terms of YAML manifests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import msgspec

_AT: Final = re.compile(r"(?s)(.*) - at `\$\.?(.*)`")
_TYPES: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "a map",
    "str": "a string",
}


def explain(error: msgspec.MsgspecError) -> tuple[str, str]:
    """Return where in the object something is wrong, and what."""
    at = _AT.fullmatch(str(error))
    problem, path = (at[1], at[2]) if at else (str(error), "")
    types = _TYPES.fullmatch(problem)
    if types is None:
        return path, f"cannot be decoded: {problem}"
    wanted = " or ".join(_word(name) for name in types[1].split(" | ") if name != "null")
    return path, f"must be {wanted}, not {_word(types[2])}"


def _word(name: str) -> str:
    return _WORDS.get(name, name)
