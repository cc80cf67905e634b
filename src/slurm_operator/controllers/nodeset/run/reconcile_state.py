"""What one reconcile of a NodeSet works with: what is remembered, the plan, and what became of it.

`NodeSetState` is what this process remembers of a NodeSet between reconciles, in parts. Each part is defined
in the module that owns it; only that module changes it, and others call its methods. All of it saves work or
keeps an outdated view from being used, and none of it has to survive: a new process starts without it and
reaches the same end.

`ReconcileOutcome` collects what went wrong, and when to requeue the NodeSet without an event. A trouble is
reported to users, in the condition `Degraded`; an error goes to the queue, which tries again with a growing
delay. Most errors are troubles, too. A conflict, or an object that is not found, is neither: another client
changed or deleted the object first, and the caches will show that soon.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.run import write_messages
from slurm_operator.controllers.nodeset.run.background import RequestedEvidence
from slurm_operator.controllers.nodeset.run.observe import ReadState
from slurm_operator.controllers.nodeset.run.pod_writes import PodWrites
from slurm_operator.controllers.nodeset.run.report import Reported
from slurm_operator.controllers.nodeset.run.slurm_nodes import NodeWrites
from slurm_operator.controllers.nodeset.run.slurm_records import RecordWrites, ReservationWrites
from slurm_operator.controllers.nodeset.run.template import KnownTemplate, RevisionWrites
from slurm_operator.controllers.shared.problems import NodeSetProblem
from slurm_operator.kube.decide.own_writes import OwnWrites
from slurm_operator.kube.errors import Conflict, FencedError, Forbidden, KubeError, NotFound
from slurm_operator.kube.runtime.failures import describe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import Defer
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.controllers.nodeset.run.observe import ReconcileInputs
    from slurm_operator.kube.models.kinds import PersistentVolumeClaim, Pod
    from slurm_operator.objects.desired import Unbuildable
    from slurm_operator.objects.slurmd import WorkerTemplate
    from slurm_operator.slurm.rest.connections import Connection


class Distance(NamedTuple):
    """How long after a reconcile the next one begins: a multiple of what it cost, between two bounds."""

    times: float
    longest: float
    per_worker: float = 0.0002
    """Thousands of workers also mean thousands of events, so with their number the least distance grows."""
    longest_least: float = 0.1

    def after(self, cost: float, workers: int) -> float:
        """Return the distance after a reconcile of so many workers that cost so much."""
        least = min(self.longest_least, self.per_worker * workers)
        return min(self.longest, max(least, self.times * cost))


# Plans and reports may keep a processor busy for a ninth of the time while workers come and go, and for a
# sixteenth while they only become ready: else the more there are, the more reconciles look at each of them.
_MOVING: Final = Distance(8.0, 3.0)
_CALM: Final = Distance(15.0, 3.0, per_worker=0.0003, longest_least=3.0)
# Deletions wait for Slurm's next answer, which ends the wait, and nothing follows them.
_DELETING: Final = Distance(20.0, 3.0)
# The NodeSet was changed since, or pods were created of which not all are in the cache, and more are to come.
_SOON: Final = Distance(3.0, 1.0)
# More pods are to be created than one reconcile creates.
_NEXT: Final = Distance(0.0, 0.1)
# A change of the NodeSet shortens the wait.
_LOOK_AGAIN: Final = 0.2
# How soon to requeue after a conflict, if the change behind it sends no event to us.
_AFTER_CONFLICT: Final = 1.0
_LEAST_AFTER_ERROR: Final = 1.0


@dataclass(slots=True)
class ReconcilePace:
    """What the last plan and its report cost, and from when on the next reconcile keeps its distance.

    Without it the next one does not wait.
    """

    cost: float = 0.0
    """Seconds of processor time."""
    generation: int | None = None
    """Of the NodeSet that the plan was made for."""
    next: Distance = _MOVING
    ended: float = 0.0
    """When the reconcile ended; while no worker comes or goes, when it began to write conditions of pods."""
    blocked_at: float | None = None
    """When the observation was made on which the last plan decided that a removal waits; None: none does."""
    _reported: bool = False

    async def wait(
        self, workers: int, generation: Callable[[], int | None], answered_at: Callable[[], float | None]
    ) -> None:
        """Keep the distance to the last reconcile that its cost and the number of workers ask for.

        If a removal waits, a newer answer of Slurm ends the distance: it may be what that waits for, and
        lists of thousands of nodes keep a distance themselves.
        """
        while (left := self.left(workers, generation())) > 0 and not self._answered(answered_at()):  # noqa: ASYNC110
            await asyncio.sleep(min(left, _LOOK_AGAIN))

    def _answered(self, answered_at: float | None) -> bool:
        """Return whether Slurm has answered since a plan that blocked removals."""
        if answered_at is None or self.blocked_at is None:
            return False
        return answered_at > self.blocked_at

    def distance(self, workers: int, generation: int | None) -> float:
        """Return how long after the last reconcile the next one may begin."""
        changed = generation != self.generation and self.next is not _NEXT
        return (_SOON if changed else self.next).after(self.cost, workers)

    def planned(self, cost: float, plan: Plan, generation: int, now: float) -> None:
        """Note what a plan for the observation of a moment cost, and what is to come after it."""
        behind = any(wait.reason is Reason.CACHE_BEHIND for wait in plan.waits)
        if plan.unfinished:
            self.next = _NEXT
        elif behind and self.next in (_NEXT, _SOON):
            self.next = _SOON
        elif plan.only_deletes:
            self.next = _DELETING
        else:
            self.next = _MOVING if plan.moves else _CALM
        self.cost, self.generation = cost, generation
        self.blocked_at = now if plan.removals_wait else None

    def reported(self, cost: float) -> None:
        """Note what the report of the last plan cost."""
        self.cost += cost
        self.ended = asyncio.get_running_loop().time()
        self._reported = True

    def left(self, workers: int, generation: int | None) -> float:
        """Return for how long the next reconcile is to wait from now on."""
        return self.ended + self.distance(workers, generation) - asyncio.get_running_loop().time()

    def end(self) -> None:
        """Note that a reconcile has ended."""
        if self.next is not _CALM or not self._reported:
            self.ended = asyncio.get_running_loop().time()
        self._reported = False


@dataclass(slots=True)
class NodeSetState:
    """Of one NodeSet, by its UID: one of the same name that comes later starts with nothing."""

    uid: str
    pods: PodWrites = field(default_factory=PodWrites)
    owned: OwnWrites[Pod] = field(default_factory=OwnWrites)
    """Pods that `ownership` adopted or released. Without it they are patched once more, without effect."""
    claims: OwnWrites[PersistentVolumeClaim] = field(default_factory=OwnWrites)
    """Volume claims as `claim_writes` left them. Without it they are created or patched once more."""
    template: KnownTemplate = field(default_factory=KnownTemplate)
    revisions: RevisionWrites = field(default_factory=RevisionWrites)
    nodes: NodeWrites = field(default_factory=NodeWrites)
    records: RecordWrites = field(default_factory=RecordWrites)
    reservation: ReservationWrites = field(default_factory=ReservationWrites)
    evidence: RequestedEvidence = field(default_factory=RequestedEvidence)
    read: ReadState = field(default_factory=ReadState)
    reported: Reported = field(default_factory=Reported)
    pace: ReconcilePace = field(default_factory=ReconcilePace)

    def tidy(self, names: frozenset[str], now: float) -> None:
        """Forget nodes that no worker has any more."""
        self.nodes.tidy(names, now)
        self.evidence.tidy(now)
        self.pods.tidy(now)


class NodeSetStates:
    """What is remembered of every NodeSet."""

    def __init__(self) -> None:
        self._by_key: dict[object, NodeSetState] = {}

    def knows(self, key: object, uid: str) -> bool:
        """Return whether this NodeSet, and not one of the same name before it, was reconciled here."""
        found = self._by_key.get(key)
        return found is not None and found.uid == uid

    def of(self, key: object, uid: str) -> NodeSetState:
        """Return what is remembered of a NodeSet."""
        if not self.knows(key, uid):
            self._by_key[key] = NodeSetState(uid)
        return self._by_key[key]

    def forget(self, key: object) -> None:
        """Drop what is remembered of a NodeSet that is gone."""
        self._by_key.pop(key, None)


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """A plan, and all that is needed to carry it out."""

    inputs: ReconcileInputs
    seen: Observation
    plan: Plan
    template: WorkerTemplate | None
    connection: Connection | None
    state: NodeSetState
    outcome: ReconcileOutcome
    observe_again: Callable[[], Awaitable[Observation]]
    """Observes what is known by then."""
    generation: Callable[[], int | None]
    """Returns the generation of the NodeSet by then; None if it is gone."""

    @property
    def nodeset(self) -> NodeSet:
        """Return the NodeSet."""
        return self.seen.nodeset


@dataclass(slots=True)
class ReconcileOutcome:
    """Collects what one reconcile leaves behind."""

    troubles: dict[NodeSetProblem, None] = field(default_factory=dict)
    errors: list[KubeError] = field(default_factory=list)
    requeues: list[float] = field(default_factory=list)
    """After how many seconds to requeue; the least counts."""
    budget: Defer | None = None
    """Why the budget of the workers does not protect them, if so."""
    certain: bool = True
    """Nothing is missing that decides how many pods there should be, and which."""

    def trouble(self, reason: Reason, message: str, event: Reason = Reason.SYNC_FAILED) -> None:
        """Record a problem to report in the condition `Degraded`, and in an Event of that reason."""
        self.troubles[NodeSetProblem(reason, message, event)] = None

    def unbuildable(self, error: Unbuildable) -> None:
        """Note why something could not be built."""
        for problem in error.problems:
            named = problem.field == write_messages.CONTROLLER_REF
            event = Reason.CONTROLLER_REF_FAILED if named else Reason.SYNC_FAILED
            self.trouble(problem.reason, f"{problem.field}: {problem.message}", event)

    def failed(self, verb: str, what: str, error: KubeError, event: Reason = Reason.SYNC_FAILED) -> None:
        """Note that a request failed: what was to be done, and to which object."""
        if isinstance(error, FencedError):
            raise error
        if isinstance(error, NotFound | Conflict):
            self.requeue_after(_AFTER_CONFLICT)
            return
        self.errors.append(error)
        if not namespace_ends(error):
            self.trouble(Reason.APPLY_FAILED, write_messages.failed(verb, what, describe(error)), event)

    def requeue_after(self, seconds: float) -> None:
        """Ask for another reconcile."""
        self.requeues.append(seconds)

    def requeue(self) -> float | None:
        """Return after how many seconds to requeue without an event; None if that was not requested.

        Also after an error, in addition to the growing delay: one part that fails must not delay the others.
        """
        if not self.requeues:
            return None
        return max(_LEAST_AFTER_ERROR, min(self.requeues)) if self.errors else min(self.requeues)


def namespace_ends(error: KubeError) -> bool:
    """Return whether a create failed because its namespace is being deleted, which is not reported."""
    causes = error.details.get("causes", ()) if isinstance(error, Forbidden) else ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
