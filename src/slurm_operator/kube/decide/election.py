"""Who may lead, decided from a Lease and a clock; no I/O.

The protocol is that of client-go, so that this operator and one written in Go exclude each other. One Lease
object names the holder. The holder renews it periodically; all other candidates read it. A candidate trusts
no timestamp in the Lease, since those come from the clocks of other nodes: it takes over only after it has
seen, by its own clock, the same record for a whole lease duration. Every write carries the resourceVersion it
is based on, so if two candidates try at once, the API server rejects one of them.

The holder in turn is bound by the fence. A renewal counts from the moment *before* it was sent: no candidate
can have seen it earlier, so none can lead before that moment plus the lease duration. The holder starts no
write later than the renew deadline after that moment, and lets none last into the final tenth of the lease.
That tenth is there for clocks: as long as no two of them differ in speed by more than a tenth, no two
processes can have a write under way at the same time. What time they show does not matter.

A deleted Lease is not a free one: a candidate that has seen a holder first waits until its lease has expired.

Two threads share an `Election`: one renews, the other asks before it writes. Nothing is locked, because the
asking side reads one number once, and conceding is a latch: an answer that arrives after it opens nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

# client-go's jitter of the retry period; its own check of the three durations uses the same factor.
JITTER = 1.2
# The holder's writes are over in this part of the lease; the rest allows for clocks of different speed.
USABLE = 0.9


@dataclass(frozen=True)
class ElectionTiming:
    """The three durations of an election, in seconds; the defaults are those of controller-runtime."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_duration * USABLE > self.renew_deadline > self.retry_period * JITTER > 0:
            raise ValueError(
                f"want lease duration x {USABLE} > renew deadline > retry period x {JITTER} > 0 (seconds), "
                f"not {self.lease_duration:g}, {self.renew_deadline:g}, {self.retry_period:g}"
            )


@dataclass(frozen=True)
class LeaseRecord:
    """The contents of a Lease; two equal records mean that it was not renewed in between."""

    holder: str
    duration: float
    acquired: str
    renewed: str
    transitions: int

    def spec(self) -> dict[str, Any]:
        """Return the record as the spec of a Lease."""
        return {
            "holderIdentity": self.holder,
            # The API wants whole seconds; promising longer than we hold is the safe side.
            "leaseDurationSeconds": math.ceil(self.duration),
            "acquireTime": self.acquired,
            "renewTime": self.renewed,
            "leaseTransitions": self.transitions,
        }


@dataclass(frozen=True)
class Acquire:
    """The Lease is free or has expired: try to acquire it."""


@dataclass(frozen=True)
class Renew:
    """The Lease is ours: say that we live."""


@dataclass(frozen=True)
class Follow:
    """Another process leads, for at most these seconds unless it renews the Lease."""

    seconds: float


Action = Acquire | Renew | Follow


def decide(
    record: LeaseRecord | None, *, identity: str, observed_at: float, now: float, lease_duration: float
) -> Action:
    """Say what to do about a record that has looked like this since `observed_at`."""
    if record is None or not record.holder:
        return Acquire()
    if record.holder == identity:
        return Renew()
    # The holder counts on the duration it wrote; we on ours. Whichever is longer satisfies both.
    left = observed_at + max(record.duration, lease_duration) - now
    return Follow(left) if left > 0 else Acquire()


class Election:
    """The memory of one candidate: what it saw, since when, and when its own claim was last confirmed."""

    def __init__(self, identity: str, timing: ElectionTiming) -> None:
        self.identity = identity
        self.timing = timing
        self.record: LeaseRecord | None = None
        self.version = ""
        self._observed_at = -math.inf
        self._confirmed_at = -math.inf
        self._conceded = False

    def observe(self, record: LeaseRecord | None, version: str, now: float) -> None:
        """Note what the server answered at `now`; `None` when there is no Lease."""
        self.version = version
        if record is None and self.record is not None:
            return
        if record != self.record:
            self.record = record
            self._observed_at = now

    def next(self, now: float) -> Action:
        """Say what to do."""
        return decide(
            self.record,
            identity=self.identity,
            observed_at=self._observed_at,
            now=now,
            lease_duration=self.timing.lease_duration,
        )

    def claim(self, wall: datetime) -> LeaseRecord:
        """Return the record to write in order to lead, or to go on leading."""
        stamp, old = micro_time(wall), self.record
        if old is not None and old.holder == self.identity:
            return replace(old, duration=self.timing.lease_duration, renewed=stamp)
        transitions = 0 if old is None else old.transitions + 1
        return LeaseRecord(self.identity, self.timing.lease_duration, stamp, stamp, transitions)

    def confirm(self, record: LeaseRecord, version: str, began: float, now: float) -> None:
        """Note that the server took our claim, in a request that began at `began`."""
        self.observe(record, version, now)
        self._confirmed_at = began

    def concede(self) -> None:
        """Stop leading, from this moment on and for good."""
        self._conceded = True

    def resignation(self, wall: datetime) -> LeaseRecord | None:
        """Return the record that frees the Lease for the next one, or None when it is not ours."""
        if self.record is None or self.record.holder != self.identity:
            return None
        stamp = micro_time(wall)
        return replace(self.record, holder="", duration=1.0, acquired=stamp, renewed=stamp)

    def may_start_write(self, now: float) -> bool:
        """Return whether a write may begin now."""
        return self.write_seconds(now) > 0

    def seconds_to_deadline(self, now: float) -> float:
        """Return how long writes may still begin; negative when they may no longer."""
        return self._confirmed_at + self.timing.renew_deadline - now

    def write_seconds(self, now: float) -> float:
        """Return how long a write that begins now may take; 0 when none may begin."""
        # Read once: the other thread may renew or concede between two reads.
        confirmed_at = self._confirmed_at
        if self._conceded or now - confirmed_at >= self.timing.renew_deadline:
            return 0.0
        return confirmed_at + self.timing.lease_duration * USABLE - now


def micro_time(wall: datetime) -> str:
    """Return a time in the form of the API's MicroTime: UTC with exactly six digits."""
    return wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
