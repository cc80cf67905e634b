"""The jobs of one Slurm cluster: the list of all of them, and what became of those on draining nodes.

A list of all jobs may take slurmrestd seconds. It is asked for when nodes begin to drain, and once more only
for a node about which it does not say enough. It says enough about a node whose drain it *covers*:

    - a list of nodes that had arrived before the list of jobs was requested showed the node draining, and
      every list since shows the same drain, by the second in which it began;
    - slurmctld made the list of jobs in a later second than that. So a node that was resumed and drained
      again has another time, unless that was before the list of jobs was made.

No job comes to a node while it drains, so all jobs that can be on it are in that list. When a list of nodes
shows that it looks drained by its own state, the states of these jobs are asked for, in place of another list
of all jobs. Those that Slurm says have ended hold no node any more (`JobBook.ended`). A job that is left out
of the answer, was requeued, or is in any other state goes on holding its nodes; then the next list of jobs
decides. At each sign that it may be another slurmctld, and after each failed list, nothing is covered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.slurm.decide.drain import drain_times, lasting_drains
from slurm_operator.slurm.decide.job_ends import MOST_ASKED, JobEnds
from slurm_operator.slurm.decide.poll_schedule import Poll
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.model.jobs import NO_JOBS, JobBook
from slurm_operator.slurm.rest.thread_turns import in_slices
from slurm_operator.slurm.watch.questions import of_same_cluster

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurm_operator.slurm.decide.poll_schedule import WatchTiming
    from slurm_operator.slurm.model.records import JobStateList
    from slurm_operator.slurm.model.view import ClusterView
    from slurm_operator.slurm.watch.polled_api import PolledApi
    from slurm_operator.slurm.watch.questions import Questions


class JobSurvey:
    """Asks for jobs and their states, and knows which drains the last list covers."""

    def __init__(self, rest: PolledApi, timing: WatchTiming, questions: Questions) -> None:
        self.poll = Poll(timing.cost, timing.jobs_stale_after / 3)
        self.ends = JobEnds(timing)
        self.jobs = NO_JOBS
        self.listed_at: float | None = None
        self.failure: SlurmError | None = None
        self._rest = rest
        self._timing = timing
        self._questions = questions
        self._book = JobBook()
        # By node: since when it drains, by slurmctld's clock.
        self._covered: dict[str, float] = {}
        # The same of those that the list of jobs that is read now may cover.
        self._drains: dict[str, float] = {}
        self._doubts = 0

    @property
    def covered(self) -> frozenset[str]:
        """Return the nodes of which the last list has every job that can be on them."""
        return frozenset(self._covered)

    @property
    def known(self) -> frozenset[str]:
        """Return those of them on which no job is left: no other list of jobs could say more."""
        return self.covered - self.jobs.by_node.keys()

    def follow(self, view: ClusterView) -> None:
        """Take in a list of nodes: a drain that has ended is covered no more."""
        nodes = view.nodes if view.suspicion is None else {}
        self._covered = lasting_drains(self._covered, nodes)
        self._drains = lasting_drains(self._drains, nodes)

    def doubt(self) -> None:
        """Take in a sign that it may be another slurmctld: what its predecessor said covers no drain."""
        self._covered = {}
        self._doubts += 1

    def interval(self, settled: Collection[str], *, woken: bool) -> float:
        """Return how often the list is needed: at once if nodes that look drained were written to."""
        unknown = {*settled} - self._covered.keys()
        if woken and unknown:
            return 0.0
        contested = settled and (self.jobs.unplaced or not self.jobs.by_node.keys().isdisjoint(settled))
        return self._timing.busy if contested or self._book.doubtful else self._timing.jobs

    def old(self, settled: Collection[str], now: float) -> bool:
        """Return whether the list is too old for a caller that waits for nodes that look drained."""
        if self.failure is not None:
            return bool(settled)
        return not self.covered.issuperset(settled) and now - self.poll.whole_at > self._timing.verdict

    async def ask(self, view: ClusterView, *, whole: bool) -> bool:
        """Ask for the list, after the nodes of a view; return whether it came."""
        sent, doubts = asyncio.get_running_loop().time(), self._doubts
        # The nodes of a suspicious view are of an earlier list, and what is asked meanwhile may lack as much.
        self._drains = {} if view.suspicion is not None else drain_times(view.nodes)
        certain = whole or self._book.doubtful
        since = None if certain else self.poll.since(sent, self._timing.whole)
        try:
            found = await self._questions.ask(self._rest.jobs(since))
            of_same_cluster("" if found is None else found.cluster, view.cluster)
        except SlurmError as error:
            self.poll.failed(sent)
            self._questions.note("jobs", error)
            self.failure = error
            self.doubt()
            return False
        answered = asyncio.get_running_loop().time()
        self._questions.note("jobs", None)
        if found is None:
            self.poll.asked(sent, answered)
        else:
            listing = self._book.listing(found.jobs, sent)
            self.jobs = await in_slices(listing, namespace=self._rest.namespace)
            self.poll.listed(found.last_update, sent, answered)
            if self._doubts != doubts:
                # A list of nodes that was read meanwhile shows it: these may be the jobs of the one before.
                self.poll.forget()
                return False
            self._cover(found.last_update)
        self.listed_at, self.failure = sent, None
        return True

    def _cover(self, made: int) -> None:
        """Note which drains a list of jobs covers that slurmctld made in some second."""
        certain = not (self.jobs.unplaced or self._book.doubtful)
        drains = self._drains if certain else {}
        self._covered = {name: since for name, since in drains.items() if since < made}
        self._drains = {}

    def states_due(self) -> float | None:
        """Return when to ask for the states of jobs; None if there is no reason to."""
        return self.ends.next_question(asyncio.get_running_loop().time())

    async def ask_states(self, cluster: str) -> None:
        """Ask whether the jobs on draining nodes have ended, as a hint when to list the nodes."""
        sent = asyncio.get_running_loop().time()
        found = await self._states(self.ends.asked, cluster, sent)
        if found is not None:
            self.ends.answered(found.unfinished, sent, asyncio.get_running_loop().time())

    async def ask_about(self, names: Collection[str], cluster: str) -> None:
        """Ask for the states of all jobs on some nodes that look drained, if these are covered."""
        by_node, now = self.jobs.by_node, asyncio.get_running_loop().time()
        on_nodes = (by_node[name].jobs for name in self.covered.intersection(names) if name in by_node)
        numbers = sorted({number for jobs in on_nodes for number in jobs})[:MOST_ASKED]
        if not numbers or not self.ends.may_ask(now):
            return
        found = await self._states(numbers, cluster, now)
        if found is not None and found.ended:
            self.jobs = self._book.ended(found.ended, self.jobs)

    async def _states(self, numbers: Collection[int], cluster: str, sent: float) -> JobStateList | None:
        try:
            found = await self._questions.ask(self._rest.job_states(numbers), self._timing.states_call)
            of_same_cluster(found.cluster, cluster)
        except SlurmError as error:
            self._questions.note("job states", error)
            self.ends.failed(sent)
            return None
        self._questions.note("job states", None)
        return found
