"""Whether a request that failed is worth another try, and when; pure.

Reads are repeated on any failure that may pass; a write only when the server provably did not execute it: no
connection was made, or a 429 said when to return. Refused credentials are the transport's own matter: better
ones have to be found first.
"""

from __future__ import annotations

from slurm_operator.kube.errors import ApiError, ConnectionFailed, ServerError, TlsError, TooManyRequests

_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.1, 5.0
# A 500 is often a bug that stays; 502, 503 and 504 are a server or proxy that comes back.
_TRIES_ON_500 = 3
_INTERNAL_ERROR = 500


def retry_delay(
    failure: ConnectionFailed | ApiError, *, tries: int, write: bool, jitter: float
) -> float | None:
    """Return how long to wait before another try, or None if another is wrong; `jitter` lies in [0, 1)."""
    if isinstance(failure, ConnectionFailed):
        again = not isinstance(failure, TlsError) and not (write and failure.sent)
    elif isinstance(failure, TooManyRequests):
        again = not refused_by_budget(failure) and not (write and failure.retry_after is None)
    elif isinstance(failure, ServerError):
        again = not write and (failure.status != _INTERNAL_ERROR or tries < _TRIES_ON_500)
    else:
        again = False
    if not again:
        return None
    backoff: float = min(_FIRST_BACKOFF * 2 ** min(tries - 1, 10), _LONGEST_BACKOFF) * (0.5 + jitter / 2)
    # Every client gets the same Retry-After; the random backoff spreads their retries out.
    return backoff + (failure.retry_after or 0.0 if isinstance(failure, ApiError) else 0.0)


def refused_by_budget(error: ApiError) -> bool:
    """Return whether a 429 is a disruption budget's answer to an eviction: a decision, not an overload."""
    return any(cause.get("reason") == "DisruptionBudget" for cause in error.details.get("causes", ()))


def parse_retry_after(value: str | None) -> float | None:
    """Read the Retry-After header in its form of seconds; the API server never sends the form of a date."""
    return float(value) if value and value.isascii() and value.isdigit() else None
