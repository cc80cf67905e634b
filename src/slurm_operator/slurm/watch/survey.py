"""Asking one Slurm cluster for what is due, and putting the answers into a view.

Each round asks for the nodes, for changes only where Slurm can say so, and then for what else is due. Jobs
are large and only matter when nodes begin to drain, and once more for a node that looks drained by its own
state while the last list of jobs does not say enough about it (`job_survey`): such a node is `owed` another
one, which is asked for in the very round that shows the node for the first time, after the nodes, and as a
whole. While the jobs on nodes that begin to drain are read, which may take seconds, the nodes are listed
again, so that jobs that end meanwhile do not wait for a list after that.

24.11 refuses a question for changed nodes exactly when there are some (HTTP 500, "Unable to query
partitions"), so a refusal to such a question is answered by asking for the whole list.

Between two rounds, while nodes drain, the states of the jobs on them are asked for (`job_ends`): when all
jobs of such a node have ended, the next round comes at once, and mostly needs the nodes only.

A failure to list the nodes changes nothing but the age of the view. Every request has a deadline, and
whatever goes wrong becomes a `SlurmError` in the view. What is asked beside nodes and jobs has a short one,
so that no view grows stale for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.slurm.decide.drain import OutOfService, out_of_service
from slurm_operator.slurm.decide.node_list_trust import NodeListTrust, by_name
from slurm_operator.slurm.decide.poll_schedule import Poll
from slurm_operator.slurm.errors import (
    CircuitOpen,
    ControllerDown,
    Refused,
    ReplyTooLarge,
    SlurmError,
    TokenRefused,
)
from slurm_operator.slurm.model.view import ClusterView
from slurm_operator.slurm.rest.thread_turns import in_slices
from slurm_operator.slurm.watch.job_survey import JobSurvey
from slurm_operator.slurm.watch.questions import Questions, of_same_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.slurm.decide.node_list_trust import TrustRules
    from slurm_operator.slurm.decide.poll_schedule import WatchTiming
    from slurm_operator.slurm.watch.polled_api import PolledApi

# A list of jobs that takes so long is worth lists of nodes meanwhile.
_LONG_SECONDS: Final = 0.5
# With more entries two lists at once might need more than half of the memory for replies of a namespace.
_MOST_BESIDE: Final = 16_384


class Survey:
    """Knows what was asked when, and keeps `view`."""

    def __init__(self, rest: PolledApi, timing: WatchTiming, trust: TrustRules | None, log: Any) -> None:
        self.view = ClusterView(stale_after=timing.stale_after, jobs_stale_after=timing.jobs_stale_after)
        self.node_trust = NodeListTrust(trust)
        self.failures = 0
        """How often in a row the nodes could not be listed."""
        self.settled: frozenset[str] = frozenset()
        """Nodes that look drained by their own state."""
        self.owed: set[str] = set()
        """Those of them that need another list of jobs."""
        self.decided: set[str] = set()
        """Those of them of which that list has come since they were last announced."""
        # Nodes that began to look drained, or were drained again, since the list of jobs was requested that
        # is read beside nodes.
        self._renewed: set[str] = set()
        self._rest = rest
        self._timing = timing
        self._log = log
        self._questions = Questions(timing.call, log)
        self._jobs = JobSurvey(rest, timing, self._questions)
        self._nodes = Poll(timing.cost, timing.stale_after / 3)
        self._reservations = Poll(timing.cost, timing.jobs_stale_after / 3)
        self._pings = Poll()
        self._uptimes = Poll()
        self._aside = min(timing.call, timing.stale_after / 3)
        self._draining: frozenset[str] = frozenset()
        # Since when nodes that look drained drain, by slurmctld's clock.
        self._drained: Mapping[str, float | None] = {}
        # When a list of nodes last showed one that had begun to drain.
        self._drain_seen = float("-inf")
        # A job may need a node that is powered down at any moment.
        self._saving = False
        # Reservations were changed, and have not been listed since.
        self._reservations_changed = False
        # The last round was woken.
        self._woken = False
        # How long the last list of nodes took, with the list of jobs that was needed for it.
        self._lists_took = 0.0
        # The last ClusterName that came with a list of nodes.
        self._cluster = ""

    def interval(self, *, lively: bool) -> float:
        """Return how long to wait before the next round."""
        timing = self._timing
        if self.failures:
            return timing.backoff(self.failures, refused=isinstance(self.view.failure, TokenRefused))
        wanted = timing.rest
        if self.node_trust.doubtful:
            wanted = min(wanted, timing.doubt)
        if lively or self._draining or self._saving or self.owed:
            wanted = min(wanted, timing.busy)
        now = asyncio.get_running_loop().time()
        unseen = bool(self._draining) and not self._jobs.ends.seen(now)
        interval = self._nodes.interval(wanted, hurry=unseen or bool(self.owed))
        if self._jobs.ends.freed:
            return min(interval, max(timing.gap, timing.freed_cost * self._lists_took))
        return interval

    def gap(self, *, awaited: bool) -> float:
        """Return the minimum wait before the next round, however often callers ask for one.

        `awaited`: a caller waits for a list, mostly to remove workers.
        """
        timing = self._timing
        if isinstance(self.view.failure, ReplyTooLarge):
            # It costs much to read, and grows no smaller by being asked for.
            return timing.backoff(max(1, self.failures))
        if self.failures:
            return timing.failure_base
        return max(timing.gap, timing.freed_cost * self._lists_took if awaited else self._nodes.took)

    async def round(self, *, woken: bool, awaited: bool = False, reservations_changed: bool = False) -> bool:
        """Ask for the nodes and for all that is due; return whether the nodes were listed.

        `woken`: nodes were changed, so they are listed as a whole, and the jobs if one of them looks drained.
        The next round lists them as a whole again: the caller that wrote may have got its reply just after
        the first list was requested, and "unchanged" would not be a newer one.
        `awaited`: a caller waits for it: the same, but jobs that are a few seconds old will do, as long as no
        node has begun to look drained since. `reservations_changed`: that is remembered until they could
        be listed.
        """
        self._reservations_changed |= reservations_changed
        freed, self._jobs.ends.freed = self._jobs.ends.freed, False
        now, timing = asyncio.get_running_loop().time(), self._timing
        if isinstance(self.view.failure, ControllerDown) and self._pings.due(timing.ping, now):
            # First, for slurmrestd can answer this without slurmctld: a failed list may open the circuit.
            await self._ask_pings(timing.call)
        now = asyncio.get_running_loop().time()
        before = self.view.listed_at
        if not await self._ask_nodes(now, whole=woken or awaited or self._woken or freed):
            return False
        self._woken = woken
        if self.node_trust.wants_uptime or self._uptimes.due(timing.uptime, now):
            await self._ask_uptime()
        # Only now, for it may have been another slurmctld that listed the jobs.
        await self._ask_about_owed()
        waits = bool(self.owed) or (awaited and self._jobs.old(self.settled, now))
        poll = self._jobs.poll
        # Their jobs are to be asked about from now on.
        began = poll.sent is None or self._drain_seen > poll.sent
        needed = waits or began
        wanted = 0.0 if needed else self._jobs.interval(self.settled, woken=woken)
        self._lists_took = self._nodes.took
        due = poll.due(wanted, now, hurry=needed) or (began and poll.rested(now))
        # The end of a job that was seen is worth another list, but not after a failure.
        if due or (waits and freed and self._jobs.failure is None):
            if began and self._may_list_beside():
                await self._ask_jobs_beside_nodes()
            else:
                came = await self._jobs.ask(self.view, whole=needed)
                self._lists_took += 0.0 if began else poll.took
                self._decide(self.owed if came else ())
        self._jobs.ends.watch(self._draining, self.view.jobs.by_node)
        if self._reservations.due(0.0 if self._reservations_changed else timing.reservations, now):
            await self._ask_reservations()
        if self._pings.due(timing.ping, now):
            await self._ask_pings(self._aside)
        if self.view.listed_at != before:
            self.view = replace(self.view, answered_at=asyncio.get_running_loop().time())
        return True

    def _may_list_beside(self) -> bool:
        """Return whether there is room for a list of jobs beside one of nodes."""
        return len(self.view.nodes) + sum(self.view.jobs.counts.values()) <= _MOST_BESIDE

    async def _ask_jobs_beside_nodes(self) -> None:
        """List the jobs on nodes that have begun to drain and, if that takes long, the nodes meanwhile.

        The last list of nodes has shown these drains, so this list of jobs covers them. While it is read,
        jobs end: the later lists of nodes show that, and the next one would come seconds later.
        """
        jobs, before, loop = self._jobs, frozenset(self.owed), asyncio.get_running_loop()
        self._renewed = set()
        usual = jobs.poll.whole_took
        over = loop.time() + usual
        asking = asyncio.create_task(jobs.ask(self.view, whole=True))
        try:
            # Requested first, so the jobs are the older list: they say nothing about what only a later list
            # of nodes shows. With more jobs than the last time, that one was no measure.
            await asyncio.wait((asking,), timeout=_LONG_SECONDS if usual < _LONG_SECONDS else 0.001)
            while not asking.done() and await self._ask_nodes(loop.time(), whole=True):
                # Half of another one is to fit into the time that the list of jobs usually takes.
                if loop.time() + self._nodes.took / 2 > over:
                    break
            came = await asking
        finally:
            asking.cancel()
            await asyncio.wait((asking,))
        self._lists_took = self._nodes.took
        # Else the nodes are of another cluster by now.
        self._decide(before - self._renewed if came and jobs is self._jobs else ())
        await self._ask_about_owed()

    def _decide(self, names: Iterable[str]) -> None:
        """Show the jobs; these nodes had looked drained when the list of them was requested."""
        decided = self.owed.intersection(names)
        self.decided |= decided
        self.owed -= decided
        self._show_jobs(frozenset(self.owed))

    async def _ask_about_owed(self) -> None:
        """Ask for the states of the jobs on nodes that look drained; some may need no other list of jobs."""
        await self._jobs.ask_about(self.owed, self.view.cluster)
        self._decide(self._jobs.known)

    def states_due(self) -> float | None:
        """Return when to ask for the states of jobs; None if there is no reason to."""
        return None if self.failures else self._jobs.states_due()

    async def ask_states(self) -> None:
        """Ask whether a draining node has become free."""
        await self._jobs.ask_states(self.view.cluster)

    @property
    def has_standby(self) -> bool:
        """Return whether there are several slurmctlds, as far as is known."""
        return len(self.view.controllers) > 1

    async def ping(self) -> None:
        """Ask who of several slurmctlds responds, however long a dead one takes to be given up."""
        await self._ask_pings(self._timing.call)

    def failed(self, error: SlurmError) -> None:
        """Take in that the nodes could not be listed."""
        self.failures += 1
        self.node_trust.interrupted()
        before = self.view.failure
        if isinstance(error, CircuitOpen) and before is not None:
            # An earlier failure has opened the circuit: that one is the cause to report.
            return
        if isinstance(error, TokenRefused) is not isinstance(before, TokenRefused):
            self.failures = 1
        if type(error) is not type(before):
            self._log.warning("Slurm client: nodes cannot be listed", kind=error.kind, error=str(error))
        self.view = replace(self.view, failure=error)

    # --- nodes

    async def _ask_nodes(self, now: float, *, whole: bool) -> bool:
        alive = min(self._timing.whole, self._timing.stale_after)
        since = None if whole or self.node_trust.doubtful else self._nodes.since(now, alive)
        leaving: OutOfService | None = None
        try:
            try:
                found = await self._questions.ask(self._rest.nodes(since))
            except Refused:
                if since is None:
                    raise
                now = asyncio.get_running_loop().time()
                found = await self._questions.ask(self._rest.nodes())
            answered = asyncio.get_running_loop().time()
            if found is None:
                self.node_trust.unchanged(now)
                self._nodes.asked(now, answered)
            else:
                self._identify(found.cluster)
                # With thousands of nodes each of these steps is a turn of its own, or several.
                comparing = by_name(found.nodes, self.node_trust.snapshot.nodes)
                nodes = await in_slices(comparing, namespace=self._rest.namespace)
                self.node_trust.listed(nodes, now)
                await asyncio.sleep(0)
                leaving = out_of_service(self.node_trust.snapshot.nodes)
                await asyncio.sleep(0)
                # Until here the view is the one before.
                if self._nodes.listed(found.last_update, now, answered):
                    self._log.warning("slurmctld's clock went backwards; it may be another slurmctld")
                    self.node_trust.interrupted()
                    self._forget()
        except SlurmError as error:
            self._nodes.failed(now)
            self.failed(error)
            return False
        self._recovered()
        self._show_snapshot()
        if leaving is not None:
            self._note_drains(leaving, now)
        self._show_jobs(frozenset(self.owed))
        return True

    def _identify(self, cluster: str) -> None:
        """Take in of which cluster a list is: what is known about one says nothing about another."""
        if cluster and self._cluster and cluster != self._cluster:
            self._log.warning("slurmrestd reports another cluster", before=self._cluster, now=cluster)
            self.node_trust = NodeListTrust(self.node_trust.trust)
            self._jobs = JobSurvey(self._rest, self._timing, self._questions)
            self.settled, self._draining = frozenset(), frozenset()
            self.owed, self.decided = set(), set()
            self._drained = {}
            self.view = ClusterView(
                stale_after=self.view.stale_after, jobs_stale_after=self.view.jobs_stale_after
            )
            self._forget()
        self._cluster = cluster or self._cluster
        if cluster != self.view.cluster:
            self.view = replace(self.view, cluster=cluster)

    def _recovered(self) -> None:
        if self.failures:
            self._log.info("Slurm client: nodes can be listed again", failures=self.failures)
            self._forget()
        self.failures = 0

    def _forget(self) -> None:
        """Ask for everything anew: it may be another slurmctld by now, or one that has lost its state."""
        for poll in (self._uptimes, self._jobs.poll, self._reservations, self._pings):
            poll.forget()
        self._jobs.doubt()

    def _show_snapshot(self) -> None:
        snapshot, started = self.node_trust.snapshot, self.node_trust.started
        if snapshot.suspicion != self.view.suspicion:
            if snapshot.suspicion is None:
                self._log.info("the node list is trusted again", nodes=len(snapshot.nodes))
            else:
                self._log.warning("suspicious node list", suspicion=snapshot.suspicion)
        self.view = replace(
            self.view,
            nodes=snapshot.nodes,
            listed_at=snapshot.listed_at,
            answered_at=self.view.answered_at if snapshot.listed_at == self.view.listed_at else None,
            confirmed=snapshot.confirmed,
            complete=snapshot.complete,
            suspicion=snapshot.suspicion,
            doubts=snapshot.doubts,
            absent=snapshot.absent,
            others=snapshot.others,
            up_since=started,
            just_started=self.node_trust.just_started(asyncio.get_running_loop().time()),
            version=self._rest.release,
            failure=None,
        )

    def _note_drains(self, leaving: OutOfService, now: float) -> None:
        """Note which nodes drain, and of which only the jobs can tell whether they are drained."""
        if not self._draining >= leaving.draining:
            self._drain_seen = now
        self._draining = leaving.draining
        self._saving = leaving.saving
        settled = leaving.powered_down.union(leaving.drained)
        # Resumed and drained again between two lists: a job may have come that no list of jobs has.
        before = self._drained
        again = {name for name, at in leaving.drained.items() if before.get(name, at) != at}
        renewed = {*settled - self.settled, *again}
        self._renewed |= renewed
        self.owed = self.owed & settled | renewed
        self.settled, self._drained = settled, leaving.drained
        self._jobs.follow(self.view)

    def _show_jobs(self, owed: frozenset[str]) -> None:
        jobs = self._jobs
        self.view = replace(
            self.view,
            jobs=jobs.jobs,
            jobs_listed_at=jobs.listed_at,
            jobs_failure=jobs.failure,
            covered=jobs.covered,
            owed=owed,
        )

    # --- the rest

    async def _ask_reservations(self) -> None:
        sent = asyncio.get_running_loop().time()
        since = self._reservations.since(sent, self._timing.whole)
        try:
            found = await self._questions.ask(self._rest.reservations(since), self._aside)
            of_same_cluster("" if found is None else found.cluster, self.view.cluster)
        except SlurmError as error:
            self._reservations.failed(sent)
            self._questions.note("reservations", error)
            return
        self._questions.note("reservations", None)
        self._reservations_changed = False
        if found is None:
            self._reservations.asked(sent, asyncio.get_running_loop().time())
        else:
            self._reservations.listed(found.last_update, sent, asyncio.get_running_loop().time())
            by_name = {entry.name: entry for entry in found.reservations}
            self.view = replace(self.view, reservations=MappingProxyType(by_name))
        self.view = replace(self.view, reservations_listed_at=sent)

    async def _ask_pings(self, limit: float) -> None:
        sent = asyncio.get_running_loop().time()
        try:
            pings = await self._questions.ask(self._rest.ping(), limit)
        except SlurmError as error:
            if not isinstance(error, CircuitOpen):
                self._pings.asked(sent, sent)
                self._questions.note("ping", error)
            return
        self._pings.asked(sent, sent)
        self._questions.note("ping", None)
        if self.view.controllers_pinged_at is None or sent >= self.view.controllers_pinged_at:
            # Else a later one was faster: where there are standbys, two may be under way.
            self.view = replace(self.view, controllers=pings, controllers_pinged_at=sent)

    async def _ask_uptime(self) -> None:
        """Ask for how long slurmctld has been up, and see whether it is another one than before."""
        sent = asyncio.get_running_loop().time()
        self._uptimes.asked(sent, sent)
        try:
            diag = await self._questions.ask(self._rest.diag(), self._aside)
        except SlurmError as error:
            self._questions.note("diag", error)
            return
        self._questions.note("diag", None)
        if self.node_trust.uptime(diag.uptime, sent, asyncio.get_running_loop().time()):
            # What has not changed since a moment of the other one's clock may have changed all the same.
            for poll in (self._nodes, self._jobs.poll, self._reservations):
                poll.distrust()
            self._jobs.doubt()
        started = diag.server_started
        self.view = replace(self.view, started=None if started is None else started.timestamp())
        self._show_snapshot()
