"""When to stop asking a server that does not answer, and when to try again.

    closed ──[several failures in a row]──▶ open ──[pause over]──▶ half-open ──[the probe succeeds]──▶ closed
                                             ▲                         │
                                             └──[the probe fails: the pause doubles, up to the cap]

While it is open, requests fail at once instead of each waiting for its own deadline. When the pause is over,
one request goes out as a probe and all others keep failing until it has ended, so that a server that comes up
does not get all requests at once. Any success, also of a request that was sent long before, closes it: the
server evidently answers. Failures of requests that were sent before it opened say nothing new.

The longest that a recovered server waits for the next request is the cap, plus the deadline of a probe that
was sent while it was still down. Who has a sign that it answers again can `hasten` the next probe. Pure: the
caller brings the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Far beyond any cap, and far below what a float can hold.
_MOST_DOUBLINGS = 32


class BreakerState(StrEnum):
    """What the breaker does with the next request."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerTiming:
    """How many failures in a row open it, and how long it pauses, in seconds."""

    threshold: int = 3
    base: float = 1.0
    cap: float = 10.0


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to send one request; to be given back with its outcome."""

    generation: int
    probe: bool


class Breaker:
    """The state machine for one server."""

    def __init__(self, timing: BreakerTiming | None = None) -> None:
        self.timing = timing or BreakerTiming()
        self._generation = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next request is sent."""
        self._failures = 0
        self._pauses = 0
        self._until: float | None = None
        self._probe: Permit | None = None
        self._generation += 1

    def hasten(self, now: float) -> None:
        """End the pause and let the next be short; one request is a probe, and all others fail meanwhile."""
        if self._until is not None:
            self._until = min(self._until, now)
            self._pauses = 0

    def state(self, now: float) -> BreakerState:
        """Tell what happens to a request that comes now."""
        if self._until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._until else BreakerState.HALF_OPEN

    def wait(self, now: float) -> float | None:
        """Return in how many seconds another attempt is due; None if a request may be sent now.

        Zero means that a probe is under way, whose outcome decides.
        """
        if self._until is None:
            return None
        if now < self._until:
            return self._until - now
        return None if self._probe is None else 0.0

    def admit(self, now: float) -> Permit | None:
        """Return the right to send a request, or None."""
        if self.wait(now) is not None:
            return None
        permit = Permit(self._generation, probe=self._until is not None)
        if permit.probe:
            self._probe = permit
        return permit

    def succeeded(self, permit: Permit) -> None:
        """Note that the server answered."""
        del permit
        self.reset()

    def failed(self, permit: Permit, now: float) -> None:
        """Note that the server could not be asked."""
        if permit.generation != self._generation:
            return
        self._failures += 1
        if permit.probe or self._failures >= self.timing.threshold:
            self._until = now + min(self.timing.cap, self.timing.base * 2**self._pauses)
            self._pauses = min(self._pauses + 1, _MOST_DOUBLINGS)
            self._probe = None
            self._generation += 1

    def dropped(self, permit: Permit) -> None:
        """Note that the request ended without telling anything about the server: cancelled, or never sent."""
        if permit is self._probe:
            self._probe = None
