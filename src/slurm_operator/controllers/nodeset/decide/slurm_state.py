"""What Slurm says about the nodes of the workers, as far as it may be believed.

A `SlurmState` asks the view once per node, with the moments before which an answer does not count, and puts
an answer that cannot be used into a `Defer`. Its sentences leave out ages and error texts: these change by
themselves, and a condition that changes by itself would be written for ever.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import Defer
from slurm_operator.controllers.nodeset.decide.name_conflicts import shared
from slurm_operator.objects import node_fit
from slurm_operator.slurm.decide.node_changes import decide, drained_by_us
from slurm_operator.slurm.model.records import BUSY_STATES
from slurm_operator.slurm.model.view import Absent, AnswerReason, Unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.slurm.decide.node_changes import NodeChange, Outcome
    from slurm_operator.slurm.model.jobs import NodeJobs as JobsOn
    from slurm_operator.slurm.model.records import Node, NodeUpdate
    from slurm_operator.slurm.model.view import Answer, DrainAnswer

# In place of sentences of the view, which change by themselves: with ages, counts and errors.
_STEADY: Final = {
    AnswerReason.NO_VIEW: f"Slurm has not been queried yet: {messages.UNVERIFIED}",
    AnswerReason.VIEW_STALE: f"Slurm's last list of nodes is stale: {messages.UNVERIFIED}",
    AnswerReason.SLURM_UNREACHABLE: f"slurmrestd does not respond: {messages.UNVERIFIED}",
    AnswerReason.SLURMCTLD_DOWN: f"slurmctld does not respond: {messages.UNVERIFIED}",
    AnswerReason.TOKEN_REFUSED: f"Slurm rejects the operator's token: {messages.UNVERIFIED}",
    AnswerReason.SLURM_REFUSED: f"Slurm refuses to list its nodes: {messages.UNVERIFIED}",
    AnswerReason.REPLY_UNREADABLE: f"Slurm's reply cannot be read: {messages.UNVERIFIED}",
    AnswerReason.REPLY_TOO_LARGE: f"Slurm's reply is larger than the operator accepts: {messages.UNVERIFIED}",
    AnswerReason.LIST_SUSPICIOUS: (
        f"Slurm's list of nodes shrank unexpectedly and is being confirmed: {messages.UNVERIFIED}"
    ),
    AnswerReason.CLUSTER_NAME_MISMATCH: (
        f"slurmrestd belongs to another Slurm cluster than the workers: {messages.UNVERIFIED}"
    ),
    AnswerReason.NODE_MISSING: "Slurm does not list the node; waiting for more lists to confirm this",
    AnswerReason.CONTROLLER_JUST_STARTED: (
        "Slurm does not list the node, but slurmctld has just started; waiting for it to register"
    ),
    AnswerReason.VIEW_PENDING: "Waiting for the next list of Slurm nodes",
    AnswerReason.DRAIN_PENDING: "Waiting for the next lists of Slurm nodes and jobs",
    AnswerReason.UNDRAIN_PENDING: "The node is being undrained",
    AnswerReason.NOT_DRAINING: "The node is not draining yet",
    AnswerReason.JOBS_UNKNOWN: "The node looks drained; waiting for a list of jobs that confirms this",
    AnswerReason.NODE_ABSENT: messages.NOT_LISTED,
}
# Answers whose reason in conditions is another; all others have the same word there.
_REASONS: Final = {
    AnswerReason.VIEW_PENDING: Reason.DRAIN_PENDING,
    AnswerReason.UNDRAIN_PENDING: Reason.DRAIN_PENDING,
    AnswerReason.NOT_DRAINING: Reason.DRAIN_PENDING,
    AnswerReason.DRAINED: Reason.STATE_UNKNOWN,
}
# A question and its answer take less; a deletion that took longer is planned again.
_ASKED_JUST_NOW: Final = 30.0
# A new connection has its first answer from Slurm within a second or two, and later on a busy machine.
FIRST_ANSWER_SECONDS: Final = 10.0
# How long a node that is there by name, and not in the list, is not asked for again.
ASKED_LATELY: Final = 60.0
_NO_CONNECTION: Final = Unknown(AnswerReason.NO_VIEW, messages.NOT_CONNECTED)
_SHARED: Final = Unknown(AnswerReason.STATE_UNKNOWN, "The node may belong to another worker of that name")


class SlurmState:
    """The answers of one view, for one reconcile."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen
        self._answers: dict[str, Answer] = {}
        view = seen.view
        # What `view.node` says first, said once for all nodes.
        self.sees = view is not None and not view.stale(seen.now) and view.suspicion is None
        """Whether anything is known about any node."""
        self._listed: Mapping[str, Node] = view.nodes if view is not None and self.sees else {}
        self.shared = shared(seen) | _elsewhere(seen)
        """Nodes that may be others than those of this NodeSet's workers: of these nothing is known."""
        self._certain = self._certainly_listed()
        self._blind: dict[str, Defer | None] = {}
        self.protects = seen.nodeset.protects_workers
        """Whether workers must be protected before they may get work."""
        self.budget = seen.budget if self.protects else None
        """Why no worker may be made or get work: the budget that protects workers is not in place."""
        self.deadlines = (
            view is not None
            and view.jobs_listed_at is not None
            and seen.now - view.jobs_listed_at <= view.jobs_stale_after
            and not view.jobs.unplaced
        )
        """Whether the ends of jobs are known."""
        self.unasked = (view is None or (view.listed_at is None and view.failure is None)) and seen.now - max(
            seen.since, seen.connected
        ) < FIRST_ANSWER_SECONDS
        """Whether this process or the connection is new, and Slurm has not had the time to answer it."""

    def unheard(self, name: str) -> bool:
        """Return whether nothing is known about a node for no other reason than that."""
        return self.unasked and name not in self.shared

    def answer(self, name: str) -> Answer:
        """Return what is known about a node."""
        if name in self.shared:
            return _SHARED
        found = self._answers.get(name)
        if found is None:
            seen = self._seen
            found = (
                _NO_CONNECTION
                if seen.view is None
                else seen.view.node(name, seen.now, self._not_before(name))
            )
            self._answers[name] = found
        return found

    def node(self, name: str) -> Node | None:
        """Return a node if Slurm certainly has it."""
        return self._certain.get(name)

    def absent(self, name: str) -> Absent | None:
        """Return the evidence that Slurm certainly does not have a node."""
        if name in self._listed:
            return None
        answer = self.answer(name)
        return answer if isinstance(answer, Absent) else None

    def last_known(self, name: str) -> Node | None:
        """Return what this process last knew about a node that Slurm does not list any more."""
        evidence = None if self._seen.view is None else self._seen.view.absent.get(name)
        return None if evidence is None else evidence.last

    def blind(self, name: str) -> Defer | None:
        """Say why nothing is known about a node, if so."""
        if name in self._certain:
            return None
        if name in self.shared:
            return self.shared[name]
        if name not in self._blind:
            answer = self.answer(name)
            self._blind[name] = self._unknown(answer) if isinstance(answer, Unknown) else None
        return self._blind[name]

    def undrained(self, name: str) -> Defer | None:
        """Say why a node is not drained; None if no work is on it and none can come."""
        if (blind := self.blind(name)) is not None:
            return blind
        seen = self._seen
        assert seen.view is not None  # noqa: S101 - narrows: without a view everything is unknown
        verdict = seen.view.drained(name, seen.now, self._not_before(name))
        return None if verdict.drained else _not_drained(verdict, self.node(name))

    def powered(self, name: str) -> Defer | None:
        """Say why a node is not powered down; None if no work is on it and none can come to its slurmd."""
        if (blind := self.blind(name)) is not None:
            return blind
        seen = self._seen
        assert seen.view is not None  # noqa: S101 - narrows: without a view everything is unknown
        verdict = seen.view.powered_down(name, seen.now, self._not_before(name))
        return None if verdict.drained else _not_drained(verdict, self.node(name))

    def jobs_left(self, name: str) -> Defer | None:
        """Say why jobs may be on a node that is not listed, as far as the list of jobs tells."""
        view, now = self._seen.view, self._seen.now
        if view is None or view.jobs_listed_at is None or now - view.jobs_listed_at > view.jobs_stale_after:
            return Defer(Reason.JOBS_UNKNOWN, messages.NO_JOB_LIST)
        if view.jobs_listed_at <= self._not_before(name):
            return Defer(Reason.DRAIN_PENDING, steady(AnswerReason.DRAIN_PENDING))
        if name in view.jobs.by_node:
            return Defer(Reason.JOBS_RUNNING, messages.jobs_on_unlisted(name))
        if view.jobs.unplaced:
            return Defer(Reason.JOBS_UNKNOWN, messages.jobs_unplaced(name))
        return None

    def denied(self, name: str) -> bool:
        """Return whether Slurm, asked for a node by its name just now, said that there is none."""
        asked = self._seen.asked.get(name)
        return (
            asked is not None
            and not asked.exists
            and asked.at > self._not_before(name)
            and self._seen.now - asked.at <= _ASKED_JUST_NOW
        )

    def contradicted(self, name: str) -> bool:
        """Return whether Slurm, asked for a node by its name not long ago, said that it is there."""
        asked = self._seen.asked.get(name)
        return asked is not None and asked.exists and self._seen.now - asked.at <= ASKED_LATELY

    def earliest(self, wall: datetime) -> datetime:
        """Return the earlier of two clocks, ours and slurmctld's: one of them may have jumped ahead."""
        view = self._seen.view
        if view is None or view.started is None or view.up_since is None:
            return wall
        try:
            slurms = datetime.fromtimestamp(view.started + (self._seen.now - view.up_since), UTC)
        except (OverflowError, ValueError, OSError):
            return wall
        return min(wall, slurms)

    def busy(self, name: str) -> bool | None:
        """Return whether work is on a node; None if that is unknown."""
        node = self.node(name)
        if node is None or self._seen.view is None:
            return None
        return node_busy(node) or name in self._seen.view.jobs.by_node

    def deadline(self, name: str) -> tuple[bool, float | None]:
        """Return whether the jobs of a node are known, and if so when the last one ends at the latest."""
        view = self._seen.view
        if view is None or not self.deadlines or self.node(name) is None:
            return False, None
        return True, view.latest_end(name)

    def decide(self, name: str, change: NodeChange) -> NodeUpdate | Outcome:
        """Return what Slurm would be sent for a change, or why nothing."""
        return decide(change, self.answer(name), wellknown.REASON_PREFIX)

    def ours(self, name: str) -> bool:
        """Return whether a node is drained, and the drain is the operator's."""
        node = self.node(name)
        return node is not None and drained_by_us(node, wellknown.REASON_PREFIX)

    def grounds(self, name: str) -> tuple[Node | None, JobsOn | None]:
        """Return all that the upkeep of a worker takes from Slurm."""
        view = self._seen.view
        return self.node(name), None if view is None else view.jobs.by_node.get(name)

    def out_of_service(self, worker: Worker) -> bool:
        """Return whether a person has declared that nothing runs on the worker's Kubernetes node any more."""
        node = self._seen.nodes.get(worker.node)
        return node is not None and node_fit.out_of_service(node)

    def safe(self, worker: Worker) -> bool:
        """Return whether a worker may get work: it is protected and stays so, or need not be.

        A release is sent for a cordoned pod of one version. One without an answer may still take effect, or
        has already where no cache shows it, until the API server has taken the cordon off that version.
        """
        protected = worker.protected and not worker.cordoned and self.budget is None
        return protected or worker.given_up or not self.protects

    def registered(self, worker: Worker) -> bool:
        """Return whether Slurm has certainly had the node of this very worker."""
        last = self.last_known(worker.slurm_name)
        return worker.matched or (last is not None and (worker.stated or alive(last)))

    def _certainly_listed(self) -> Mapping[str, Node]:
        """Return the nodes that Slurm certainly has: not shared, and listed after any write to them."""
        seen, listed = self._seen, self._listed
        taken = None if seen.view is None else seen.view.listed_at
        if taken is None or taken <= seen.since:
            return {}
        written = {name for name, at in seen.written.items() if taken <= at}
        if not written and not self.shared:
            return listed
        return {
            name: node for name, node in listed.items() if name not in written and name not in self.shared
        }

    def _not_before(self, name: str) -> float:
        seen = self._seen
        return max(seen.since, seen.written.get(name, seen.since)) if seen.written else seen.since

    def _unknown(self, answer: Unknown) -> Defer:
        if self._seen.view is None:
            return Defer(Reason.NO_CONNECTION, messages.NOT_CONNECTED)
        return _deferred(answer)


def slurm_state_of(seen: Observation) -> SlurmState:
    """Return what Slurm says, as an observation has it."""
    return seen.memo.slurm_state(seen, lambda: SlurmState(seen))


def _elsewhere(seen: Observation) -> dict[str, Defer]:
    """Return the names of workers that have joined another cluster, each with what it waits for.

    `controllerRef` cannot be changed where the webhook runs. Where it was, the cluster that is asked now says
    nothing about jobs of the former one, nor about a node of its own that happens to have the name.
    """
    here = seen.nodeset.spec.controller_ref.name
    found = {}
    for worker in seen.workers:
        there = worker.labels.get(wellknown.LABEL_CLUSTER)
        if there and there != here:
            text = messages.other_cluster(worker.name, there, here)
            found[worker.slurm_name] = Defer(Reason.NO_CONNECTION, text)
    return found


def node_busy(node: Node) -> bool:
    """Return whether a node's own state says that work is on it."""
    return bool(node.alloc_cpus) or not BUSY_STATES.isdisjoint(node.state)


def alive(node: Node) -> bool:
    """Return whether a slurmd answers for a node: its record is not left from a pod that is gone."""
    return "NOT_RESPONDING" not in node.state and not {"IDLE", "MIXED", "ALLOCATED"}.isdisjoint(node.state)


def draining(node: Node) -> bool:
    """Return whether a node is drained or draining, no matter which client drained it."""
    return drain_in(node.state)


def drain_in(state: Collection[str]) -> bool:
    """Return whether a state says that its node is drained or draining."""
    return "DRAIN" in state and "UNDRAIN" not in state


def steady(reason: AnswerReason) -> str:
    """Return the sentence for why nothing is known of a node, without what changes by itself."""
    return _STEADY.get(reason, "")


def failing(name: str) -> Defer:
    """Say that a node cannot be drained because it is marked FAIL."""
    return Defer(
        Reason.NODE_FAILING,
        messages.failing(name),
    )


def _not_drained(verdict: DrainAnswer, node: Node | None) -> Defer:
    if verdict.reason is AnswerReason.NOT_DRAINING and node is not None and "FAIL" in node.state:
        return failing(node.name)
    return _deferred(verdict)


def _deferred(answer: Unknown | DrainAnswer) -> Defer:
    """Return an answer as a condition reports it; its own message only if that changes when Slurm does."""
    reason = _REASONS.get(answer.reason) or Reason(answer.reason.value)
    return Defer(reason, _STEADY.get(answer.reason, answer.message))
