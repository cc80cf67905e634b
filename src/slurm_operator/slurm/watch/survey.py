"""Asking one Slurm cluster for what is due, and putting the answers into a view.

Each round asks for the nodes, for changes only where Slurm can say so, and then for what else is due. Jobs
are large and only matter once a node looks drained by its own state, so they are asked for in the very round
that shows such a node for the first time, and as a whole, for a verdict rests on them; until they have been,
the node is `owed` one. That list is asked for after the nodes, so that it is newer than the drain. Of a node
that has drained since an earlier list, every list of jobs is newer.

24.11 refuses a question for changed nodes exactly when there are some (HTTP 500, "Unable to query
partitions"), so a refusal to such a question is answered by asking for the whole list.

Between two rounds, while nodes drain, the states of the jobs on them are asked for (`job_ends`): when such a
node has become free, the next round comes at once, and asks for nodes and jobs together. A state is no part
of the view.

A failure to list the nodes changes nothing but the age of the view. Every request has a deadline, and
whatever goes wrong becomes a `SlurmError` in the view. What is asked beside nodes and jobs has a short one,
so that no view grows stale for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from slurm_operator.slurm.decide.drain import (
    drain_times,
    drained_since,
    looks_drained,
    looks_powered_down,
    saves_power,
)
from slurm_operator.slurm.decide.job_ends import JobEnds
from slurm_operator.slurm.decide.node_list_trust import NodeListTrust
from slurm_operator.slurm.decide.poll_schedule import Poll
from slurm_operator.slurm.errors import (
    BadReply,
    CircuitOpen,
    ControllerDown,
    Refused,
    ReplyTooLarge,
    SlurmError,
    TokenRefused,
)
from slurm_operator.slurm.model.jobs import JobBook
from slurm_operator.slurm.model.view import ClusterView
from slurm_operator.slurm.rest.thread_turns import in_slices
from slurm_operator.slurm.watch.questions import Questions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from slurm_operator.slurm.decide.node_list_trust import TrustRules
    from slurm_operator.slurm.decide.poll_schedule import WatchTiming
    from slurm_operator.slurm.model.records import JobList
    from slurm_operator.slurm.watch.polled_api import PolledApi

T = TypeVar("T")

# With more entries two lists at once might need more than half of the memory for replies of a namespace.
_MOST_TOGETHER: Final = 16_384


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
        """Those of them that have not been announced yet with a newer list of jobs."""
        self._rest = rest
        self._timing = timing
        self._log = log
        self._book = JobBook()
        self._nodes = Poll(timing.cost, timing.stale_after / 3)
        self._jobs = Poll(timing.cost, timing.jobs_stale_after / 3)
        self._reservations = Poll(timing.cost, timing.jobs_stale_after / 3)
        self._pings = Poll()
        self._uptimes = Poll()
        self._aside = min(timing.call, timing.stale_after / 3)
        self._job_ends = JobEnds(timing)
        self._draining: frozenset[str] = frozenset()
        # When a list of nodes last showed one that had begun to drain.
        self._drain_seen = float("-inf")
        # A job may need a node that is powered down at any moment.
        self._saving = False
        # Reservations were changed, and have not been listed since.
        self._reservations_changed = False
        # How many entries the last list of jobs had, and until when no two lists are read at the same time.
        self._listed_jobs = 0
        self._apart_until = float("-inf")
        # The last round was woken.
        self._woken = False
        # The last ClusterName that came with a list of nodes.
        self._cluster = ""
        self._questions = Questions(timing.call, log)

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
        unseen = bool(self._draining) and not self._job_ends.seen(now)
        interval = self._nodes.interval(wanted, hurry=unseen or bool(self.owed))
        if self._job_ends.freed:
            lists = self._nodes.took + self._jobs.took
            return min(interval, max(timing.gap, timing.freed_cost * lists))
        return interval

    def gap(self) -> float:
        """Return the minimum wait before the next round, however often callers ask for one."""
        if isinstance(self.view.failure, ReplyTooLarge):
            # It costs much to read, and grows no smaller by being asked for.
            return self._timing.backoff(max(1, self.failures))
        return self._timing.failure_base if self.failures else max(self._timing.gap, self._nodes.took)

    async def round(self, *, woken: bool, awaited: bool = False, reservations_changed: bool = False) -> bool:
        """Ask for the nodes and for all that is due; tell whether the nodes were listed.

        `woken`: nodes were changed, so they are listed as a whole, and the jobs if one of them looks drained.
        The next round lists them as a whole again: the caller that wrote may have got its reply just after
        the first list was requested, and "unchanged" would not be a newer one.
        `awaited`: a caller waits for it: the same, but jobs that are a few seconds old will do, as long as no
        node has begun to look drained since. `reservations_changed`: that is remembered until they could
        be listed.
        """
        self._reservations_changed |= reservations_changed
        freed, self._job_ends.freed = self._job_ends.freed, False
        now, timing = asyncio.get_running_loop().time(), self._timing
        if isinstance(self.view.failure, ControllerDown) and self._pings.due(timing.ping, now):
            # First, for slurmrestd can answer this without slurmctld: a failed list may open the circuit.
            await self._ask_pings(timing.call)
        now = asyncio.get_running_loop().time()
        whole = woken or awaited or self._woken or freed
        together = freed and self._may_ask_together(now)
        if not await (self._ask_together(now) if together else self._ask_nodes(now, whole=whole)):
            return False
        self._woken = woken
        uptime_due = self.node_trust.wants_uptime or self._uptimes.due(timing.uptime, now)
        if uptime_due and await self._ask_uptime():
            # Jobs that were asked for before may be those of the slurmctld before.
            self._show_owed()
        waits = bool(self.view.owed) or (awaited and self._jobs_old(now))
        asked = self._jobs.sent if self._jobs.sent is not None else float("-inf")
        began = self._drain_seen > asked
        wanted = 0.0 if waits else self._jobs_interval(woken=woken, began=began)
        due = asked < now and self._jobs.due(wanted, now, hurry=waits or began)
        # After the end of a job that was seen, the pause before this round was for both lists.
        if due or (waits and freed and self.view.jobs_failure is None):
            await self._ask_jobs(whole=waits)
        self._job_ends.watch(self._draining, self.view.jobs.by_node)
        if self._reservations.due(0.0 if self._reservations_changed else timing.reservations, now):
            await self._ask_reservations()
        if self._pings.due(timing.ping, now):
            await self._ask_pings(self._aside)
        return True

    def states_due(self) -> float | None:
        """Return when to ask for the states of jobs; None if there is no reason to."""
        return None if self.failures else self._job_ends.next_question(asyncio.get_running_loop().time())

    async def ask_states(self) -> None:
        """Ask whether a draining node has become free."""
        sent = asyncio.get_running_loop().time()
        try:
            question = self._rest.unfinished_jobs(self._job_ends.asked)
            unfinished = await self._questions.ask(question, self._timing.states_call)
        except SlurmError as error:
            self._questions.note("job states", error)
            self._job_ends.failed(sent)
        else:
            self._questions.note("job states", None)
            self._job_ends.answered(unfinished, sent, asyncio.get_running_loop().time())

    @property
    def has_standby(self) -> bool:
        """Tell whether there are several slurmctlds, as far as is known."""
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

    def _may_ask_together(self, now: float) -> bool:
        """Return whether both lists may be read at the same time.

        Not if they could take the memory that one of them needs, nor when there is a question to be asked
        first: whether Slurm answers at all, and whether it is still the same slurmctld.
        """
        entries = len(self.view.nodes) + self._listed_jobs
        return (
            not self.failures
            and now >= self._apart_until
            and entries <= _MOST_TOGETHER
            and not self._uptimes.due(self._timing.uptime, now)
            and len(drain_times(self.view.nodes, self._draining)) == len(self._draining)
        )

    async def _ask_together(self, now: float) -> bool:
        """Ask for all nodes and for all jobs at once; return whether the nodes were listed.

        The jobs count if all nodes that wait for them have drained since an earlier list, so that no job can
        have come, and if they have none. Else they are asked for once more: the two lists need not show the
        same moment.
        """
        before = drain_times(self.view.nodes, self._draining)
        async with self._questions.beside(self._timed(self._rest.jobs)) as jobs:
            listed = await self._ask_nodes(now, whole=True)
            same = drained_since(before, self.view.nodes, self.view.owed)
            # They are forgotten at a sign that it is another slurmctld.
            if listed and same and self._jobs.sent is not None:
                await self._take_jobs(jobs, now)
        if self._drain_seen == now:
            # The jobs of that moment need not have those of a node that has just begun to drain.
            self._drain_seen = asyncio.get_running_loop().time()
        if any(isinstance(error, ReplyTooLarge) for error in (self.view.failure, self.view.jobs_failure)):
            self._apart_until = now + self._timing.apart
        return listed

    # --- nodes

    async def _ask_nodes(self, now: float, *, whole: bool) -> bool:
        alive = min(self._timing.whole, self._timing.stale_after)
        since = None if whole or self.node_trust.doubtful else self._nodes.since(now, alive)
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
                # Reading thousands of nodes has taken a turn of its own already.
                await asyncio.sleep(0)
                self._identify(found.cluster)
                self.node_trust.listed(found.nodes, now)
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
        if found is not None:
            self._sort_out(now)
        self._show_owed()
        return True

    def _identify(self, cluster: str) -> None:
        """Take in of which cluster a list is: what is known about one says nothing about another."""
        if cluster and self._cluster and cluster != self._cluster:
            self._log.warning("slurmrestd reports another cluster", before=self._cluster, now=cluster)
            self.node_trust, self._book = NodeListTrust(self.node_trust.trust), JobBook()
            self.settled, self.owed = frozenset(), set()
            self._draining, self._job_ends = frozenset(), JobEnds(self._timing)
            self.view = ClusterView(
                stale_after=self.view.stale_after, jobs_stale_after=self.view.jobs_stale_after
            )
            self._forget()
        self._cluster = cluster or self._cluster
        if cluster != self.view.cluster:
            self.view = replace(self.view, cluster=cluster)

    def _of_same_cluster(self, reported: str) -> None:
        """Raise BadReply if a list is of another cluster than the nodes."""
        nodes = self.view.cluster
        if reported and nodes and reported != nodes:
            raise BadReply(f"the list is of the cluster {reported!r}, and that of the nodes of {nodes!r}")

    def _recovered(self) -> None:
        if self.failures:
            self._log.info("Slurm client: nodes can be listed again", failures=self.failures)
            self._forget()
        self.failures = 0

    def _forget(self) -> None:
        """Ask for everything anew: it may be another slurmctld by now, or one that has lost its state."""
        for poll in (self._uptimes, self._jobs, self._reservations, self._pings):
            poll.forget()

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

    def _sort_out(self, now: float) -> None:
        """See which nodes drain, and of which only the jobs can tell whether they are drained."""
        drain = {name: node for name, node in self.view.nodes.items() if "DRAIN" in node.state}
        drained = frozenset(name for name, node in drain.items() if looks_drained(node))
        draining = drain.keys() - drained
        if not self._draining >= draining:
            self._drain_seen = now
        self._draining = frozenset(draining)
        saving = {name: node for name, node in self.view.nodes.items() if saves_power(node)}
        self._saving = bool(saving)
        settled = drained | {name for name, node in saving.items() if looks_powered_down(node)}
        self.owed = {*self.owed & settled, *settled - self.settled}
        self.settled = settled

    def _show_owed(self) -> None:
        owed = frozenset(self.owed)
        if owed != self.view.owed:
            self.view = replace(self.view, owed=owed)

    # --- the rest

    def _jobs_interval(self, *, woken: bool, began: bool) -> float:
        """Return how often the jobs are needed: at once when a node seems drained and only they can tell.

        `began`: a node has begun to drain since, so its jobs are to be asked about from now on.
        """
        if (woken and self.settled) or began:
            return 0.0
        jobs = self.view.jobs
        contested = self.settled and (jobs.unplaced or not self.settled.isdisjoint(jobs.by_node))
        return self._timing.busy if contested or self._book.doubtful else self._timing.jobs

    def _jobs_old(self, now: float) -> bool:
        """Return whether jobs are too old for a caller that awaits a verdict on nodes that look drained."""
        return bool(self.settled) and (
            self.view.jobs_failure is not None or now - self._jobs.whole_at > self._timing.verdict
        )

    async def _ask_jobs(self, *, whole: bool) -> None:
        sent = asyncio.get_running_loop().time()
        certain = whole or self._book.doubtful
        since = None if certain else self._jobs.since(sent, self._timing.whole)
        if await self._take_jobs(self._timed(partial(self._rest.jobs, since)), sent):
            self.view = replace(self.view, owed=frozenset())

    async def _take_jobs(self, reply: Awaitable[tuple[JobList | None, float]], sent: float) -> bool:
        """Wait for a list of jobs; return whether it came."""
        try:
            found, answered = await reply
            self._of_same_cluster("" if found is None else found.cluster)
        except SlurmError as error:
            self._jobs.failed(sent)
            self._questions.note("jobs", error)
            self.view = replace(self.view, jobs_failure=error)
            return False
        self._questions.note("jobs", None)
        if found is None:
            self._jobs.asked(sent, answered)
        else:
            listed = await in_slices(self._book.listing(found.jobs, sent), namespace=self._rest.namespace)
            self._jobs.listed(found.last_update, sent, answered)
            self._listed_jobs = len(found.jobs)
            self.view = replace(self.view, jobs=listed)
        # Those that look drained and have a job may have lost it between the two lists.
        owed = self.view.owed & self.view.jobs.by_node.keys()
        self.view = replace(self.view, jobs_listed_at=sent, jobs_failure=None, owed=owed)
        return True

    async def _timed(self, request: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        """Return an answer, and when it came."""
        answer = await self._questions.ask(request())
        return answer, asyncio.get_running_loop().time()

    async def _ask_reservations(self) -> None:
        sent = asyncio.get_running_loop().time()
        since = self._reservations.since(sent, self._timing.whole)
        try:
            found = await self._questions.ask(self._rest.reservations(since), self._aside)
            self._of_same_cluster("" if found is None else found.cluster)
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

    async def _ask_uptime(self) -> bool:
        """Ask for how long slurmctld has been up; return whether it is another one than before."""
        sent = asyncio.get_running_loop().time()
        self._uptimes.asked(sent, sent)
        try:
            diag = await self._questions.ask(self._rest.diag(), self._aside)
        except SlurmError as error:
            self._questions.note("diag", error)
            return False
        self._questions.note("diag", None)
        another = self.node_trust.uptime(diag.uptime, sent, asyncio.get_running_loop().time())
        if another:
            # What has not changed since a moment of the other one's clock may have changed all the same.
            for poll in (self._nodes, self._jobs, self._reservations):
                poll.distrust()
        started = diag.server_started
        self.view = replace(self.view, started=None if started is None else started.timestamp())
        self._show_snapshot()
        return another
