"""One picture of a Slurm cluster, and the questions it answers.

A `ClusterView` is immutable and holds what `NodeListTrust` trusts about nodes, the jobs that hold them, the
reservations, and how slurmctld is. It knows when each part was true (`listed_at`: the moment its request was
sent) and how old it may grow. So a question comes with `now`, and with `newer_than` when only what was asked
after some moment counts: a drain is seen in a list that was asked for after it was requested, not in one that
was on its way. The answer that nothing has changed keeps the nodes from growing stale (`confirmed`); only a
whole list makes them newer.

`nodes` is what is trusted, for counting and showing. Decisions must use `node` or `drained`, because a
node in `nodes` of an old or doubted list is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurm_operator.slurm import errors
from slurm_operator.slurm.decide.drain import no, work_in_jobs, work_in_power_state, work_in_state
from slurm_operator.slurm.errors import WrongCluster
from slurm_operator.slurm.model.answers import Absent, Answer, AnswerReason, DrainAnswer, Known, Unknown
from slurm_operator.slurm.model.jobs import NO_JOBS, UnfinishedJobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.slurm.decide.node_list_trust import Evidence
    from slurm_operator.slurm.errors import SlurmError
    from slurm_operator.slurm.model.records import Node, Ping, Reservation

__all__ = [
    "EMPTY",
    "Absent",
    "Answer",
    "AnswerReason",
    "ClusterView",
    "DrainAnswer",
    "Known",
    "NodeDelta",
    "Unknown",
    "ViewUpdate",
    "deltas",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What is known about a cluster; all moments but `started` are of the event loop's clock."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    listed_at: float | None = None
    confirmed: float | None = None
    """When Slurm last had nothing newer to say than this list; None: when the list itself was asked for."""
    answered_at: float | None = None
    """When the round that asked for this list was over, and with it came the jobs if they were needed."""
    cluster: str = ""
    """The ClusterName that came with the list of nodes; empty if none did."""
    complete: bool = False
    """A name of which nothing else is known is absent: enough lists would have shown it."""
    suspicion: str | None = None
    doubts: Mapping[str, Evidence] = field(default_factory=dict)
    absent: Mapping[str, Evidence] = field(default_factory=dict)
    others: Evidence | None = None
    failure: SlurmError | None = None
    """Why the last attempt to list the nodes failed; None when it did not."""

    jobs: UnfinishedJobs = NO_JOBS
    jobs_listed_at: float | None = None
    jobs_failure: SlurmError | None = None
    owed: frozenset[str] = frozenset()
    """Nodes that began to look drained, or were drained again, after the last list of jobs was asked for."""
    covered: frozenset[str] = frozenset()
    """Nodes whose drain is older than the last list of jobs: that list has every job that can be on them."""

    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    reservations_listed_at: float | None = None
    controllers: tuple[Ping, ...] = ()
    """Every slurmctld, by its `hostname`; `responding` as of `controllers_pinged_at`."""
    controllers_pinged_at: float | None = None

    up_since: float | None = None
    """A moment at which slurmctld was up already."""
    just_started: bool = False
    """slurmctld is too young to prove that a node is absent, or may be."""
    started: float | None = None
    """Slurm's own word for `up_since`, in seconds since 1970."""
    version: str = ""
    """The version of Slurm, such as 26.05.5; empty until it is known."""

    stale_after: float = 30.0
    jobs_stale_after: float = 120.0

    # --- age

    def age(self, now: float) -> float:
        """Return how many seconds ago Slurm said that the nodes are so; infinite if never."""
        if self.listed_at is None:
            return math.inf
        return now - (self.listed_at if self.confirmed is None else self.confirmed)

    def stale(self, now: float) -> bool:
        """Return whether the list of nodes is too old for any answer."""
        return self.age(now) > self.stale_after

    def uptime(self, now: float) -> float | None:
        """Return for how many seconds slurmctld has been up at least, or None if that is unknown."""
        return None if self.up_since is None else max(0.0, now - self.up_since)

    # --- whose it is

    def expecting(self, cluster: str) -> ClusterView:
        """Return what is known about a cluster of this name: nothing, if the list is of another one."""
        if not is_other(self.cluster, cluster):
            return self
        return ClusterView(
            cluster=self.cluster,
            failure=WrongCluster(cluster, self.cluster),
            version=self.version,
            stale_after=self.stale_after,
            jobs_stale_after=self.jobs_stale_after,
        )

    # --- questions

    def node(self, name: str, now: float, newer_than: float = -math.inf) -> Answer:
        """Say what is known about a node, from what was asked after `newer_than`."""
        if (blind := self._blind(now)) is not None:
            return blind
        listed_at = -math.inf if self.listed_at is None else self.listed_at
        if listed_at <= newer_than:
            return Unknown(AnswerReason.VIEW_PENDING, "waiting for a newer node list from Slurm")
        if name in self.nodes:
            return Known(self.nodes[name], listed_at)
        return self._unlisted(name, listed_at)

    def drained(self, name: str, now: float, newer_than: float = -math.inf) -> DrainAnswer:
        """Say whether a node is drained: no work is on it and none can come, as of after `newer_than`.

        The list of jobs may be older than that if it covers the drain: no job has come to the node since.
        """
        answer = self.node(name, now, newer_than)
        if isinstance(answer, Unknown):
            pending = answer.reason is AnswerReason.VIEW_PENDING
            return no(AnswerReason.DRAIN_PENDING if pending else answer.reason, answer.message)
        if isinstance(answer, Absent):
            return no(AnswerReason.NODE_ABSENT, f"Slurm does not list {name}")
        return (
            work_in_state(answer.node, self.jobs)
            or self._jobs_lack(name, now, newer_than)
            or work_in_jobs(name, self.jobs)
            or DrainAnswer(
                drained=True, reason=AnswerReason.DRAINED, message=f"{name} is drained and has no job"
            )
        )

    def powered_down(self, name: str, now: float, newer_than: float = -math.inf) -> DrainAnswer:
        """Say whether Slurm powers a node down and no work is on it, as of after `newer_than`."""
        answer = self.node(name, now, newer_than)
        if isinstance(answer, Unknown):
            return no(answer.reason, answer.message)
        if isinstance(answer, Absent):
            return no(AnswerReason.NODE_ABSENT, f"Slurm does not list {name}")
        return (
            work_in_power_state(answer.node, self.jobs)
            or self._jobs_lack(name, now, newer_than)
            or work_in_jobs(name, self.jobs)
            or DrainAnswer(
                drained=True, reason=AnswerReason.DRAINED, message=f"{name} is powered down and has no job"
            )
        )

    def latest_end(self, name: str) -> float | None:
        """Return when the last job on a node ends at the latest; None without a job, infinite without an end.

        In Slurm's clock, seconds since 1970.
        """
        hold = self.jobs.by_node.get(name)
        return None if hold is None else hold.end

    # --- inside

    def _blind(self, now: float) -> Unknown | None:
        """Say why nothing is known about any node, if so."""
        if self.listed_at is None:
            if self.failure is None:
                return Unknown(AnswerReason.NO_VIEW, "Slurm has not answered yet")
            if isinstance(self.failure, WrongCluster):
                return Unknown(AnswerReason.CLUSTER_NAME_MISMATCH, str(self.failure))
            return Unknown(_reason(self.failure), f"the Slurm nodes could never be listed: {self.failure}")
        if self.stale(now):
            if self.failure is None:
                return Unknown(
                    AnswerReason.VIEW_STALE, f"the node list of Slurm is {self.age(now):.0f} s old"
                )
            return Unknown(
                _reason(self.failure),
                f"the node list of Slurm is {self.age(now):.0f} s old: {self.failure}",
            )
        return None if self.suspicion is None else Unknown(AnswerReason.LIST_SUSPICIOUS, self.suspicion)

    def _unlisted(self, name: str, listed_at: float) -> Answer:
        """Say what it means that a list does not have a name."""
        if self.up_since is None or self.just_started:
            why = "slurmctld has just started, or has not reported its start time"
            return Unknown(AnswerReason.CONTROLLER_JUST_STARTED, f"Slurm does not list {name}, but {why}")
        if (evidence := self.absent.get(name)) is not None:
            return Absent(listed_at, evidence.lists, evidence.since)
        evidence = self.doubts.get(name, self.others)
        if self.complete and name not in self.doubts and evidence is not None:
            return Absent(listed_at, evidence.lists, evidence.since)
        lists = 0 if evidence is None else evidence.lists
        return Unknown(
            AnswerReason.NODE_MISSING,
            f"Slurm does not list {name}: waiting for more lists, {lists} so far",
        )

    def _jobs_lack(self, name: str, now: float, newer_than: float) -> DrainAnswer | None:
        """Say why the list of jobs cannot be used for a node, if so."""
        because = f": {self.jobs_failure}" if self.jobs_failure is not None else ""
        too_large = isinstance(self.jobs_failure, errors.ReplyTooLarge)
        reason = AnswerReason.REPLY_TOO_LARGE if too_large else AnswerReason.JOBS_UNKNOWN
        if self.jobs_listed_at is None:
            return no(reason, f"the Slurm jobs could never be listed{because}")
        if (age := now - self.jobs_listed_at) > self.jobs_stale_after:
            return no(reason, f"the job list of Slurm is {age:.0f} s old{because}")
        if self.jobs_listed_at <= newer_than and name not in self.covered:
            return no(AnswerReason.DRAIN_PENDING, f"waiting for a newer job list from Slurm{because}")
        if name in self.owed:
            return no(reason, f"waiting for a job list that is newer than the drain of {name}{because}")
        return None


EMPTY: Final = ClusterView()

# The first kind of error that fits says why nothing is known.
_REASONS: Final = (
    (errors.ControllerDown, AnswerReason.SLURMCTLD_DOWN),
    (errors.Unavailable, AnswerReason.SLURM_UNREACHABLE),
    (errors.TokenRefused, AnswerReason.TOKEN_REFUSED),
    (errors.Refused, AnswerReason.SLURM_REFUSED),
    (errors.WrongCluster, AnswerReason.CLUSTER_NAME_MISMATCH),
    (errors.ReplyTooLarge, AnswerReason.REPLY_TOO_LARGE),
)


def is_other(reported: str, expected: str) -> bool:
    """Return whether a reported ClusterName is another than the expected one.

    An empty name, reported or expected, says nothing. Slurm has every ClusterName in lower case.
    """
    return bool(reported and expected) and reported.lower() != expected.lower()


@dataclass(frozen=True, slots=True)
class NodeDelta:
    """A node about which something changed: its record, the jobs on it, or whether it is there.

    `new` is None when it is not listed any more, once when that is first seen and once when it is confirmed;
    the view says which of them. `old` is what was last known.
    """

    name: str
    old: Node | None
    new: Node | None


@dataclass(frozen=True, slots=True)
class ViewUpdate:
    """A new view, the one before, and the nodes that differ; none, if only the health of the view does."""

    view: ClusterView
    previous: ClusterView
    changes: tuple[NodeDelta, ...]

    def expecting(self, cluster: str) -> ViewUpdate:
        """Return what changes for those who expect a cluster of this name."""
        view, previous = self.view.expecting(cluster), self.previous.expecting(cluster)
        if view is self.view and previous is self.previous:
            return self
        return ViewUpdate(view, previous, deltas(previous, view))


def deltas(old: ClusterView, new: ClusterView) -> tuple[NodeDelta, ...]:
    """Return the nodes about which two views differ."""
    changes: dict[str, NodeDelta] = {}
    if old.nodes is not new.nodes:
        for name, node in new.nodes.items():
            before = old.nodes.get(name)
            if before is not node and before != node:
                changes[name] = NodeDelta(name, before, node)
        for name, before in old.nodes.items():
            if name not in new.nodes:
                changes[name] = NodeDelta(name, before, None)
    if old.absent is not new.absent:
        for name, evidence in new.absent.items():
            if name not in old.absent and name not in changes:
                changes[name] = NodeDelta(name, evidence.last, None)
    if old.jobs is not new.jobs:
        for name in old.jobs.by_node.keys() | new.jobs.by_node.keys():
            before, now = old.nodes.get(name), new.nodes.get(name)
            known = before is not None or now is not None
            if known and old.jobs.by_node.get(name) != new.jobs.by_node.get(name) and name not in changes:
                changes[name] = NodeDelta(name, before, now)
    return tuple(changes.values())


def _reason(failure: SlurmError) -> AnswerReason:
    return next(
        (reason for kind, reason in _REASONS if isinstance(failure, kind)), AnswerReason.REPLY_UNREADABLE
    )
