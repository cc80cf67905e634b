"""Which jobs to ask about while nodes drain, and whether one of these nodes has probably become free.

A list of all nodes takes slurmrestd long, so it cannot be asked for every second. The states of a few jobs
can. While nodes drain, the jobs that the last list of jobs has on them are asked about; when all jobs of such
a node have ended, the nodes are listed at once instead of after the interval. While none ends, that list
would show nothing, so it is asked for less often.

This is only ever about *when* to list. What has ended here still holds its node until a list of nodes shows
that the node looks drained, and what is asked about its jobs after that agrees (`job_survey`). A node on
which the last list of jobs has no job that can be asked about, because that list is older than the job or
cannot be read, or because there are too many, is `unseen`: it is polled as if there were no states to ask
for. The same holds for all nodes after a failure, whatever it was: an older Slurm, a refusal, no answer.

Pure: the caller brings the time, and asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.slurm.decide.poll_schedule import Poll

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from slurm_operator.slurm.decide.poll_schedule import WatchTiming
    from slurm_operator.slurm.model.jobs import NodeJobs

# The numbers are in the URL. 24.11 and 26.05 read 4,000 numbers of eight digits, 26.05 refuses 8,000.
MOST_ASKED: Final = 2000


class JobEnds:
    """The jobs on draining nodes, as far as they are known to be unfinished."""

    __slots__ = ("_ended", "_not_before", "_pending", "_poll", "_timing", "_unseen", "freed")

    def __init__(self, timing: WatchTiming) -> None:
        self.freed = False
        """Whether all jobs of a draining node have ended since the nodes were last listed."""
        self._timing = timing
        self._poll = Poll(timing.cost)
        self._not_before = float("-inf")
        # By node: the jobs that have not ended yet as far as is known.
        self._pending: dict[str, frozenset[int]] = {}
        # Jobs that have ended while the list of jobs, which is older, still has them.
        self._ended: frozenset[int] = frozenset()
        self._unseen = False

    def watch(self, draining: Iterable[str], jobs: Mapping[str, NodeJobs]) -> None:
        """Take in which nodes drain, and which jobs the last list of jobs has on each node."""
        before, self._pending = self._pending, {}
        self._unseen = False
        asked: set[int] = set()
        known: set[int] = set()
        for name in draining:
            on_node = frozenset(jobs[name].jobs) if name in jobs else frozenset[int]()
            # The list of jobs is newer than that of the nodes: the end of its jobs shows there first.
            self.freed |= bool(before.get(name)) and not on_node
            known |= on_node & self._ended
            pending = on_node - self._ended
            if not pending or len(asked) + len(pending - asked) > MOST_ASKED:
                self._unseen = True
                continue
            asked |= pending
            self._pending[name] = pending
        self._ended = frozenset(known)

    def may_ask(self, now: float) -> bool:
        """Return whether states can be had, as far as is known."""
        return now >= self._not_before

    def seen(self, now: float) -> bool:
        """Return whether the end of work on each draining node would be seen without a list of nodes."""
        return bool(self._pending) and not self._unseen and self.may_ask(now)

    def next_question(self, now: float) -> float | None:
        """Return when to ask for the states of `asked`; None if there is nothing to ask for."""
        if not self._pending or self.freed:
            return None
        sent = self._poll.sent
        due = now if sent is None else sent + self._poll.interval(self._timing.states)
        return max(due, self._not_before)

    @property
    def asked(self) -> tuple[int, ...]:
        """Return the jobs to ask about."""
        return (*sorted(set().union(*self._pending.values())),)

    def answered(self, unfinished: Collection[int], sent: float, now: float) -> None:
        """Take in which of the jobs that were asked about have not ended."""
        self._poll.asked(sent, now)
        left = frozenset(unfinished)
        self._ended |= frozenset(self.asked) - left
        self._pending = {name: pending & left for name, pending in self._pending.items()}
        self.freed = not all(self._pending.values())

    def failed(self, now: float) -> None:
        """Take in that the states cannot be had: go on without them for a while."""
        self._not_before = now + self._timing.states_pause
