"""How long to wait before a failed key is tried again.

Two limits apply and the longer delay wins. Each key has its own exponential delay, so that one broken object
slows down only itself. All keys together draw from one token bucket, so that a thousand objects which break
at the same moment (the API server went away) do not come back at the same moment. The defaults are those of
client-go's default controller rate limiter: 5 ms doubling up to 1000 s per key; 10 retries per second with
bursts of 100 over all keys.

Everything here is pure: the time is an argument and nothing is random. A key costs memory only between its
first failure and `forget`, which the controller calls after a success; that includes the reconcile that finds
its object deleted, but not a requeue at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


class TokenBucket:
    """Hand out `rate` tokens per second, at most `burst` at once.

    A token is reserved, not refused: the balance may go below zero, and who takes it then waits until the
    debt is paid.
    """

    __slots__ = ("_balance", "_burst", "_rate", "_updated")

    def __init__(self, rate: float, burst: int) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise ValueError(f"rate must be a positive number of tokens per second, not {rate!r}")
        if burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst!r}")
        self._rate = rate
        self._burst = burst
        self._balance = float(burst)
        self._updated = -math.inf

    def reserve(self, now: float) -> float:
        """Take one token and return the seconds until it may be used."""
        # A clock that stands still or steps back gives no tokens and takes none.
        elapsed = max(0.0, now - self._updated)
        self._updated = max(self._updated, now)
        self._balance = min(float(self._burst), self._balance + elapsed * self._rate) - 1.0
        return max(0.0, -self._balance / self._rate)


class Backoff:
    """Delay the retries of each key exponentially, and of all keys together by a token bucket.

    `rate=None` leaves the bucket out, for a queue whose few keys are slow by nature.
    """

    __slots__ = ("_base", "_bucket", "_cap", "_factor", "_failures", "_steps")

    def __init__(
        self,
        base: float = 0.005,
        cap: float = 1000.0,
        *,
        factor: float = 2.0,
        rate: float | None = 10.0,
        burst: int = 100,
    ) -> None:
        if not (math.isfinite(base) and base > 0):
            raise ValueError(f"base must be a positive number of seconds, not {base!r}")
        if not (math.isfinite(cap) and cap >= base):
            raise ValueError(f"cap must be a number of seconds not below base ({base!r}), not {cap!r}")
        if not (math.isfinite(factor) and factor > 1):
            raise ValueError(f"factor must be greater than 1, not {factor!r}")
        self._base = base
        self._cap = cap
        self._factor = factor
        # Beyond this many failures the power is not computed: a thousand of them would overflow it.
        self._steps = math.ceil(math.log(cap / base, factor))
        self._bucket = None if rate is None else TokenBucket(rate, burst)
        self._failures: dict[Hashable, int] = {}

    def when(self, key: Hashable, now: float) -> float:
        """Count one more failure of the key and return the seconds to wait before trying again."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = self._cap if failures >= self._steps else min(self._cap, self._base * self._factor**failures)
        if self._bucket is None:
            return delay
        return max(delay, self._bucket.reserve(now))

    def forget(self, key: Hashable) -> None:
        """Start the key from the base delay again."""
        self._failures.pop(key, None)

    def retries(self, key: Hashable) -> int:
        """Return how often the key has failed since it was last forgotten."""
        return self._failures.get(key, 0)

    def __len__(self) -> int:
        return len(self._failures)
