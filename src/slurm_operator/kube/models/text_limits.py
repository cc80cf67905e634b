"""How long a text may be that this process writes into a cluster.

Conditions and Events quote input of users and responses of servers. A very long text from either could make
an object too large to be stored, and then its status could not be written at all. Everything that is derived
from such input is cut here, marked by an ellipsis.
"""

from __future__ import annotations

from typing import Final

# The API server refuses a longer note of an Event.
NOTE_BYTES: Final = 1024
# The API server refuses more than 32,768 characters; a condition is for reading, and each is one of several.
MESSAGE_BYTES: Final = 4096


def shorten(text: str, limit: int = NOTE_BYTES) -> str:
    """Cut a text to a number of UTF-8 bytes, at a whole character, and mark the cut."""
    if len(text) <= limit and text.isascii():
        return text
    data = text[:limit].encode("utf-8", "replace")
    if len(data) <= limit and len(text) <= limit:
        return data.decode()
    return data[: limit - 3].decode("utf-8", "ignore") + "…"
