"""When a watch asks for what: often while something is going on, rarely at rest.

`Poll` is the memory of one list: when it was asked for, and since when to ask for changes. Slurm's answer
"unchanged" is cheap, but it is relative to a moment of slurmctld's clock; were that clock to go back, it
would be the answer for ever. So a whole list is asked for every now and then, after every failure, and when
there is a sign of another slurmctld. "Unchanged" never keeps a list alive for longer than one may be old, and
makes none newer: who waits for a list that was asked for after some moment gets a whole one.

A list that takes long to make is asked for less often: polling may use a tenth of the time of a slurmrestd at
most, and a fifth in a hurry, because a pod waits: while a node drains whose jobs cannot be asked about
(`job_ends`), or only the list of jobs can show that it is drained. There are three exceptions: no view may
grow stale because of this limit, polling may use half of the time while callers wake the watch again and
again, and four fifths of it while jobs on draining nodes end one after the other, or while removals wait for
a list. While the jobs on nodes that begin to drain are listed, the nodes are listed beside them, by a second
thread. A list is work for slurmrestd, not for slurmctld: of 600 ms for 5,000 nodes, slurmctld 26.05 took 6.

Pure: the caller brings the time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# Timers may fire a little early; what is due then is due now.
_EPSILON = 0.05
# Beyond this many failures the power is not computed.
_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """How often a cluster is asked, in seconds."""

    busy: float = 2.0
    """Between lists of nodes while something drains, and for `lively` after something was written."""
    rest: float = 10.0
    """Between lists of nodes when nothing goes on."""
    doubt: float = 5.0
    """Between lists of nodes while one has to be confirmed."""
    lively: float = 10.0
    gap: float = 0.1
    """The minimum between two rounds, however often callers wake the watch."""
    states: float = 1.0
    """Between questions for the states of the jobs on draining nodes."""
    states_call: float = 2.0
    """No longer may such a question take: meanwhile no list is asked for."""
    states_pause: float = 60.0
    """After a failure to read these states, which an older Slurm does not have."""
    freed_cost: float = 0.25
    """Lists that took a second are followed by so many seconds without, when a worker may be removed."""
    jobs: float = 30.0
    reservations: float = 30.0
    verdict: float = 5.0
    """How old jobs may be when a caller waits for a view, if no node has begun to look drained since."""
    ping: float = 10.0
    standby: float = 2.0
    """Between pings of a cluster with several slurmctlds, of which another one may take over."""
    uptime: float = 60.0
    whole: float = 60.0
    """After this time a list is asked for as a whole, not only if it changed; or when it would be stale."""
    failure_base: float = 1.0
    failure_cap: float = 30.0
    refused_base: float = 2.0
    """The first pause after a refused token, which no repetition makes valid; a new one is tried at once."""
    refused_cap: float = 60.0
    stale_after: float = 30.0
    """A list of nodes older than this says nothing any more."""
    jobs_stale_after: float = 120.0
    call: float = 60.0
    """No single request may take longer, whatever the client's own deadline."""
    cost: float = 10.0
    """A list that took a second is not asked for again for so many seconds, half as many in a hurry."""

    def backoff(self, failures: int, *, refused: bool = False) -> float:
        """Return how long to wait after so many failures in a row; jitter keeps clusters apart.

        `refused`: the failures are refusals of the token.
        """
        base, cap = (
            (self.refused_base, self.refused_cap) if refused else (self.failure_base, self.failure_cap)
        )
        bound = min(cap, base * 2.0 ** min(failures - 1, _DOUBLINGS))
        return bound * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy


class Poll:
    """When one list was asked for, and what to ask for next."""

    __slots__ = ("_cost", "_limit", "_update_time", "sent", "took", "whole_at", "whole_took")

    def __init__(self, cost: float = 0.0, limit: float = float("inf")) -> None:
        self.sent: float | None = None
        self.took = 0.0
        self._cost = cost
        self._limit = limit
        self._update_time: int | None = None
        self.whole_at = float("-inf")
        """When the last whole list was asked for; never, if it does not count any more."""
        self.whole_took = 0.0
        """How long it took; `took` is as short as the answer that nothing has changed."""

    def interval(self, wanted: float, *, hurry: bool = False) -> float:
        """Return how long to wait between requests if this often is wanted."""
        cost = self._cost / 2 if hurry else self._cost
        return max(wanted, min(cost * self.took, self._limit))

    def due(self, wanted: float, now: float, *, hurry: bool = False) -> bool:
        """Return whether it is time to ask, if this often is wanted."""
        return self.sent is None or now - self.sent >= self.interval(wanted, hurry=hurry) - _EPSILON

    def rested(self, now: float) -> bool:
        """Return whether asking again takes half of the time of the server at most."""
        return self.sent is None or now - self.sent >= 2 * self.took

    def since(self, now: float, whole: float) -> int | None:
        """Return the moment to ask for changes since, or None for the whole list."""
        return None if now - self.whole_at >= whole - _EPSILON else self._update_time

    def listed(self, update_time: int, sent: float, now: float) -> bool:
        """Note a whole list; return whether slurmctld's clock went back."""
        went_back = self._update_time is not None and 0 < update_time < self._update_time
        self._update_time = update_time if update_time > 0 else None
        self.whole_at = sent
        self.whole_took = now - sent
        self.asked(sent, now)
        return went_back

    def asked(self, sent: float, now: float) -> None:
        """Note a request that was answered."""
        self.sent = sent
        self.took = now - sent

    def failed(self, sent: float) -> None:
        """Note a request that failed: the next one is for the whole list."""
        self.sent = sent
        self.took = 0.0
        self.distrust()

    def forget(self) -> None:
        """Let the next request be due, and be for the whole list."""
        self.sent = None
        self.distrust()

    def distrust(self) -> None:
        """Let the next request be for the whole list."""
        self.whole_at = float("-inf")
