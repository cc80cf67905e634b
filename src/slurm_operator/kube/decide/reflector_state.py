"""The decisions of a reflector, apart from the connection: list or watch next, and after how long a wait.

A reflector has one piece of memory that matters, the resourceVersion up to which its store is right. As
long as that is known, the next step is a watch from there, whatever cut the last one: the server sends
everything that happened meanwhile. Only an answer that makes the version worthless throws it away and
leads to a new list:

- 410 Gone: the server no longer has the events since then (etcd was compacted, or its watch cache starts
  later);
- 404: the kind itself is not served (its CRD is gone), so what the events meant is unknown;
- silence: watches from this version, open for the idle time together, brought not even a bookmark. That is
  how a server answers a version from its future (etcd was restored from a backup): it waits for the version
  to come, with a 200 and without a word;
- 504 with the cause `ResourceVersionTooLarge`: the same, from a server or proxy that says so;
- a stream that does not decode: to resume would meet the same bytes again, a list goes around them;
- several 5xx answers in a row, in case the server fails on just this version;
- an unexpected error (not a `KubeError`), since the outcome of the step that raised it is unknown.

Resource versions are opaque here: they are kept, sent back, and never compared.

Waits grow exponentially and are drawn from the whole range below the bound (full jitter), because a
restarted API server meets all its clients at once. Forbidden and its relatives wait longer: only a person
changes those. A kind that is not served yet is asked for more often: its CRD may be on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_operator.kube.errors import (
    ApiError,
    ConnectionFailed,
    DeadlineExceeded,
    DecodeError,
    Gone,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

# A watch that lived this long was served; its end says nothing about the next one.
_SERVED_SECONDS = 5.0
# So many 5xx answers in a row to a watch and the version itself is under suspicion.
_SUSPECT_ANSWERS = 5
# A list whose continue tokens expired this often in a row is asked for in one piece.
_PATIENCE_WITH_PAGES = 2
_LARGEST_EXPONENT = 16


@dataclass(frozen=True, slots=True)
class Ramp:
    """Waiting times that double from `base` up to `cap`, in seconds."""

    base: float
    cap: float

    def bound(self, failures: int) -> float:
        """Return the longest wait after so many failures in a row (from 1)."""
        return min(self.cap, self.base * 2.0 ** min(failures - 1, _LARGEST_EXPONENT))


@dataclass(frozen=True, slots=True)
class InformerTiming:
    """Every duration of an informer, in seconds."""

    retry: Ramp = field(default=Ramp(0.2, 30.0))
    """After connection errors, 5xx and 429."""
    denied: Ramp = field(default=Ramp(2.0, 60.0))
    """After answers that only a person changes: forbidden, bad selector."""
    missing: Ramp = field(default=Ramp(1.0, 10.0))
    """While the kind is not served: often a user is installing its CRD right now and waits for the result."""
    idle: float = 100.0
    """A watch without a single line for this long is given up; bookmarks come about every 60 s."""
    watch: float = 300.0
    """The server is asked to end a watch after one to two times this: watches spread over its replicas."""
    remind: float = 300.0
    """An error that stays the same is logged again after this."""


class ReflectorState:
    """What one list-and-watch stream remembers between its steps."""

    __slots__ = (
        "_answers",
        "_failures",
        "_gones",
        "_lost_pages",
        "_random",
        "_silence",
        "_timing",
        "reason",
        "resource_version",
    )

    def __init__(self, timing: InformerTiming, random: Callable[[], float]) -> None:
        self._timing = timing
        self._random = random
        self._failures = 0
        self._gones = 0
        self._answers = 0
        self._lost_pages = 0
        self._silence = 0.0
        self.resource_version = ""
        """Up to where the store is right; empty: list next."""
        self.reason = "initial"
        """Why the next list is needed."""

    @property
    def paged(self) -> bool:
        """Return whether the next list may come in pages."""
        return self._lost_pages < _PATIENCE_WITH_PAGES

    def listed(self, resource_version: str) -> None:
        """Take note of a complete list; failures stay counted until a watch works, or the two could spin."""
        if not resource_version:
            raise DecodeError("the list has no metadata.resourceVersion, so nothing can be watched from it")
        self.resource_version = resource_version
        self._lost_pages = 0
        self._silence = 0.0

    def list_failed(self, error: Exception) -> float:
        """Decide how long to wait before the next list."""
        if isinstance(error, Gone):
            self._lost_pages += 1
            return self._gone()
        return self._delay(error)

    def watch_over(self, error: Exception | None, *, events: int, lasted: float) -> float:
        """Decide how long to wait after a watch that ended, and whether to list then (no version is left)."""
        served = events > 0 or self._was_open(error, lasted)
        if served:
            self._failures = self._gones = self._answers = 0
            # In sum, because a proxy may cut every watch before the idle time is over.
            self._silence = 0.0 if events else self._silence + lasted
            if self._silence >= self._timing.idle:
                self._list_next("silent")
        if error is None:
            if served:
                return 0.0
            self._failures += 1
            return self._draw(self._timing.retry)
        if isinstance(error, Gone):
            self._list_next("gone")
            return self._gone()
        if isinstance(error, ServerError):
            self._answers += 1
        cause = self._doubt(error)
        if cause:
            self._list_next(cause)
        return self._delay(error)

    def is_routine(self, error: Exception, *, watching: bool) -> bool:
        """Return whether the error just recorded is routine: a working watch was cut, or a version expired.

        A failed list is routine only on a first 410: on other errors the client has already retried it, where
        that can help. The first 429 to a watch is routine: for a moment, the API server returns it to watches
        of a kind whose CRD was just installed.
        """
        if isinstance(error, Gone):
            return self._gones <= 1
        broken = isinstance(error, ConnectionFailed) and not isinstance(error, DeadlineExceeded)
        return watching and (broken or isinstance(error, TooManyRequests)) and self._failures <= 1

    def _was_open(self, error: Exception | None, lasted: float) -> bool:
        """Return whether a watch without events was served at all: a dead server keeps one waiting, too."""
        if isinstance(error, DeadlineExceeded) or (isinstance(error, ConnectionFailed) and not error.sent):
            return False
        # A refusal that took long is a refusal; only a 410 also comes at the end of a watch that was open.
        if isinstance(error, ApiError) and not isinstance(error, Gone):
            return False
        return lasted >= min(_SERVED_SECONDS, self._timing.idle)

    def _doubt(self, error: Exception) -> str:
        """Return why this error makes the version worthless, or an empty string."""
        if isinstance(error, NotFound):
            return "missing"
        if isinstance(error, DecodeError):
            return "decode"
        if isinstance(error, ApiError) and _too_large(error):
            return "future"
        if self._answers >= _SUSPECT_ANSWERS or not isinstance(error, KubeError):
            return "error"
        return ""

    def _list_next(self, reason: str) -> None:
        self.resource_version = ""
        self.reason = reason
        self._answers = 0

    def _gone(self) -> float:
        """Wait not at all the first time: the server has answered, and a list is what it asks for."""
        self._gones += 1
        if self._gones == 1:
            return 0.0
        return self._random() * self._timing.retry.bound(self._gones - 1)

    def _delay(self, error: Exception) -> float:
        self._failures += 1
        delay = self._draw(self._ramp(error))
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        # A server whose Retry-After is a day may still be back in a minute, so the wait is capped.
        return delay if retry_after is None else max(delay, min(retry_after, self._timing.denied.cap))

    def _ramp(self, error: Exception) -> Ramp:
        if isinstance(error, NotFound):
            return self._timing.missing
        passing = not isinstance(error, ApiError) or isinstance(error, ServerError | TooManyRequests | Gone)
        return self._timing.retry if passing else self._timing.denied

    def _draw(self, ramp: Ramp) -> float:
        return self._random() * ramp.bound(self._failures)


def _too_large(error: ApiError) -> bool:
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
    )


class ErrorLogFilter:
    """Decides which errors are worth a log line: a new one, and the same one again only after a while."""

    __slots__ = ("_logged", "_remind")

    def __init__(self, remind: float) -> None:
        self._remind = remind
        self._logged: dict[Hashable, float] = {}

    def due(self, signature: Hashable, now: float) -> bool:
        """Return whether to log the error with this signature, one of a small set."""
        last = self._logged.get(signature)
        if last is not None and now - last < self._remind:
            return False
        self._logged[signature] = now
        return True

    def clear(self) -> bool:
        """Forget all errors; return whether one had been logged."""
        had = bool(self._logged)
        self._logged.clear()
        return had
