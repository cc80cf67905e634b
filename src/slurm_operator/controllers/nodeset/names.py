"""Words that this controller uses in more than one place, beside those that others know it by."""

from __future__ import annotations

from typing import Final

# Set by `kubectl delete --cascade=orphan`: the pods are to stay.
FINALIZER_ORPHAN: Final = "orphan"

# The latest end of jobs of which nobody knows one; any other end is earlier.
NO_DEADLINE: Final = "9999-12-31T23:59:59Z"


def reservation_key(name: str) -> str:
    """Return the key under which the last answer about a reservation is kept; no node is called so."""
    return f"reservation/{name}"
