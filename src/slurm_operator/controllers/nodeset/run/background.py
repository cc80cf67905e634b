"""How work of a NodeSet runs: side by side, in a thread, or as a background task that waits for Slurm.

A reconcile never waits for Slurm: a NodeSet that is scaled out gets its workers while slurmrestd hangs. What
a reconcile needs from Slurm it starts here, as a background task, and ends; when a task with a result ends,
the NodeSet is put back into the queue, so that the next reconcile sees the result at once. Background tasks
are cancelled with the process, with its lease, and with their NodeSet.

A NodeSet has one task of each kind at a time, except for state changes: two of these never concern the same
node, because a node whose state is being changed is left out of the next ones.

Query Slurm again, in the background: for its nodes, and for single ones by their names.

The reconcile that starts this ends without an answer. The next one, which the answer causes, finds it in the
view and in `RequestedEvidence`, decides everything once more, and continues while the answer is valid
(`deletion`).
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

import structlog

from slurm_operator.controllers.nodeset.decide.deletion import FRESH_SECONDS, LONGEST_SECONDS, Confirmed
from slurm_operator.controllers.nodeset.decide.observation import NodeAnswer
from slurm_operator.kube.process.threads import run_in_thread
from slurm_operator.slurm.errors import NotInSlurm, SlurmError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence

    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.run.reconcile_state import PlannedWork, ReconcileOutcome
    from slurm_operator.controllers.shared.problems import NodeSetProblem
    from slurm_operator.kube.models.meta import Key
    from slurm_operator.kube.runtime.sources import Channel
    from slurm_operator.slurm.rest.connections import Connection

log = structlog.get_logger(__name__)

H = TypeVar("H")
T = TypeVar("T")

# Of the 64 requests that the client has under way at once; more make nothing faster, and each new connection
# costs a handshake and memory.
AT_ONCE: Final = 32
_MANY: Final = 500
_NOTHING: Final = object()

# Answers about single nodes are asked for anew long before.
FORGET_SECONDS: Final = 3600.0
# After a defect of our own: not at once, or it would be met again without a pause.
_AFTER_DEFECT: Final = 5.0


async def run_decision(seen: Observation, decide: Callable[[], T]) -> T:
    """Run a pure function that decides about many workers without blocking the event loop.

    It takes some 20 µs for each worker that there is or should be, so that thousands would block the event
    loop for too long for the lease and for other NodeSets. In a thread of its own it yields every few
    milliseconds. What it reads is frozen.
    """
    wanted = len(seen.nodes) if seen.daemon else seen.nodeset.most_replicas
    if max(len(seen.workers), wanted) < _MANY:
        await asyncio.sleep(0)
        return decide()
    return await run_in_thread(decide, seen.nodeset.metadata.namespace)


def costed(decide: Callable[[], T]) -> tuple[T, float]:
    """Decide, and return also what that took of a processor: on a busy machine much more time has passed."""
    started = time.thread_time()
    return decide(), time.thread_time() - started


async def each(
    items: Iterable[T], function: Callable[[T], Awaitable[object]], seconds: float = math.inf
) -> list[T]:
    """Do something with each item, many at a time, and begin nothing new after so many seconds.

    Return what is left. An error that is not caught there ends all.
    """
    everything = [*items]
    waiting = iter(everything)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    async def work() -> None:
        while loop.time() < end and (item := next(waiting, _NOTHING)) is not _NOTHING:
            await function(cast("T", item))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, len(everything))):
            group.create_task(work())
    return [*waiting]


async def slowly(items: Iterable[T], function: Callable[[T], Awaitable[bool]]) -> int:
    """Do something with each item, at first one, then ever more at a time; return how many were begun.

    Each success lets two follow, so the number doubles with each answer, as in batches of 1, 2, 4 and so on,
    but without waiting for the slowest of a batch. After the first failure no new item is begun: what fails
    for one mostly fails for all, and a thousand rejected requests are of no use.
    """
    waiting = iter(items)
    running: set[asyncio.Task[bool]] = set()
    ended: list[asyncio.Task[bool]] = []
    # `asyncio.wait` would look at each running task whenever one ends.
    news = asyncio.Event()

    def end(task: asyncio.Task[bool]) -> None:
        running.discard(task)
        ended.append(task)
        news.set()

    window, begun, healthy = 1, 0, True
    try:
        while True:
            while healthy and len(running) < window and (item := next(waiting, None)) is not None:
                begun += 1
                task = asyncio.ensure_future(function(item))
                running.add(task)
                task.add_done_callback(end)
            if not running and not ended:
                return begun
            await news.wait()
            news.clear()
            while ended:
                healthy = ended.pop().result() and healthy
                window = min(AT_ONCE, window + 1)
    finally:
        left = {*running}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


class TaskKind(Enum):
    """What a background task is about."""

    STATE = "change node states"
    FIELDS = "write node fields"
    ASK = "list nodes again"
    DELETE_RECORDS = "delete records"
    RESERVE = "write the reservation"
    CREATE_RECORDS = "create records"


class BackgroundTasks:
    """The background tasks of all NodeSets; `again` takes the NodeSets to reconcile."""

    def __init__(self, again: Channel[Key]) -> None:
        self._again = again
        self._tasks: defaultdict[Key, dict[asyncio.Task[bool], TaskKind]] = defaultdict(dict)
        # What came while a background task of its kind was under way: reconcile when that is done.
        self._waiting: set[tuple[Key, TaskKind]] = set()
        self._over = False

    async def run(self) -> None:
        """Hold what runs in the background until cancelled, then end it."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._over = True
            tasks = [task for some in self._tasks.values() for task in some]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def start(self, key: Key, kind: TaskKind, coroutine: Coroutine[None, None, bool]) -> None:
        """Begin a background task; it returns whether its NodeSet must be reconciled again."""
        if self._over:
            coroutine.close()
            return
        # Not the context of the reconcile: the lines it logs belong to no reconcile.
        task = asyncio.create_task(coroutine, name=f"{kind.value} of {key}", context=contextvars.Context())
        self._tasks[key][task] = kind
        task.add_done_callback(lambda done: self._ended(key, kind, done))

    def busy(self, key: Key, kind: TaskKind) -> bool:
        """Return whether such a background task is under way; if so, the NodeSet is requeued when it ends."""
        if kind not in self._tasks.get(key, {}).values():
            return False
        self._waiting.add((key, kind))
        return True

    def drop(self, key: Key) -> None:
        """End the background tasks of a NodeSet that is gone."""
        for task in self._tasks.pop(key, {}):
            task.cancel()
        self._waiting -= {(key, kind) for kind in TaskKind}

    def under_way(self, key: Key) -> Collection[TaskKind]:
        """Return what is under way for a NodeSet."""
        return tuple(self._tasks.get(key, {}).values())

    def _ended(self, key: Key, kind: TaskKind, task: asyncio.Task[bool]) -> None:
        mine = self._tasks.get(key, {})
        if mine.pop(task, None) is None or task.cancelled():
            return  # it was dropped, or everything ends
        if not mine:
            del self._tasks[key]
        waited = (key, kind) in self._waiting
        self._waiting.discard((key, kind))
        if (defect := task.exception()) is not None:
            log.error("a background task failed", nodeset=str(key), task=kind.value, exc_info=defect)
            asyncio.get_running_loop().call_later(_AFTER_DEFECT, self._again.send, key)
        elif task.result() or waited:
            self._again.send(key)


@dataclass(slots=True)
class Refusals(Generic[H]):
    """The writes of one kind that Slurm did not accept: they are reported, and tried again later.

    Only these wait: one Kubernetes node with a bad annotation must not delay the others.
    """

    first: float
    longest: float
    """Seconds until it is tried again, the first time and at most."""
    items: frozenset[H] = frozenset()
    trouble: NodeSetProblem | None = None
    retry_at: float = 0.0
    _row: int = field(default=0, repr=False)

    def keep(self, items: Collection[H]) -> None:
        """Forget all but these; when nothing is left, nothing has been refused."""
        self.items &= frozenset(items)
        if not self.items:
            self.trouble, self.retry_at, self._row = None, 0.0, 0

    def tell(self, outcome: ReconcileOutcome) -> None:
        """Report the rejected writes in the outcome of a reconcile."""
        if self.trouble is not None:
            outcome.trouble(self.trouble.reason, self.trouble.message)

    def wait(self, items: Collection[H], now: float, outcome: ReconcileOutcome) -> frozenset[H]:
        """Return which of these must wait, and see to it that they are tried again."""
        waiting = self.items & frozenset(items) if now < self.retry_at else frozenset()
        if waiting:
            outcome.requeue_after(self.retry_at - now)
        return waiting

    def tried(
        self, items: Collection[H], refused: Collection[H], trouble: NodeSetProblem | None, now: float
    ) -> None:
        """Take in what became of a background task: `refused` of `items` were not done."""
        self.items = self.items - frozenset(items) | frozenset(refused)
        if not refused:
            self.keep(self.items)
            return
        self._row += 1
        self.trouble = trouble
        self.retry_at = now + min(self.longest, self.first * 2 ** min(self._row - 1, 10))


# After something stayed without an answer.
_PAUSE_SECONDS: Final = 2.0


@dataclass(slots=True)
class RequestedEvidence:
    """What Slurm answered when it was asked on purpose. Without it Slurm is asked again before a deletion."""

    answers: dict[str, NodeAnswer] = field(default_factory=dict)
    """About single nodes, and the reservation, by name."""
    confirmed: Confirmed | None = None
    """When Slurm was last asked again on purpose."""
    not_before: float = 0.0
    """Something stayed without an answer, so it is not asked again before this."""

    def answered(self, name: str, at: float, *, exists: bool) -> None:
        """Note whether Slurm has something, by an answer about it alone."""
        self.answers[name] = NodeAnswer(at, exists=exists)

    def complete(self, confirmed: Confirmed, names: Sequence[str]) -> None:
        """Note a list, and ask again soon only if all names were answered before it."""
        self.confirmed = confirmed
        answers = map(self.answers.get, names)
        done = all(one is not None and one.at >= confirmed.began for one in answers)
        self.not_before = 0.0 if done else confirmed.ended + _PAUSE_SECONDS

    def failed(self, now: float, *, closed: bool) -> None:
        """Note that the list did not come; another connection may work at once."""
        self.not_before = 0.0 if closed else now + _PAUSE_SECONDS

    def tidy(self, now: float) -> None:
        """Forget old answers."""
        horizon = now - FORGET_SECONDS
        self.answers = {name: one for name, one in self.answers.items() if one.at > horizon}


class SlurmQuestions:
    """Orders questions to Slurm."""

    def __init__(self, background: BackgroundTasks) -> None:
        self._background = background

    def order(self, work: PlannedWork, names: Sequence[str] = (), after: float = -math.inf) -> None:
        """Have the nodes listed, after a moment and lately, and some asked for by name."""
        key, evidence = work.nodeset.key, work.state.evidence
        if work.connection is None or self._background.busy(key, TaskKind.ASK):
            return
        wait = evidence.not_before - _now()
        if wait > 0:
            work.outcome.requeue_after(wait)
            return
        self._background.start(key, TaskKind.ASK, _ask(work.connection, evidence, after, names))

    def under_way(self, work: PlannedWork) -> bool:
        """Return whether an answer is awaited, which should find the next reconcile ready."""
        return TaskKind.ASK in self._background.under_way(work.nodeset.key)


async def _ask(
    connection: Connection, evidence: RequestedEvidence, after: float, names: Sequence[str]
) -> bool:
    began = _now()
    try:
        await each(names, lambda name: _ask_for(connection, evidence, name))
        # The list comes last, for it says more: what is on a node.
        after = max(after, _now() - FRESH_SECONDS)
        await connection.watch.refreshed(after, _now() + LONGEST_SECONDS)
    except SlurmError:
        # The view itself gives the cause to all readers as soon as it is stale.
        evidence.failed(_now(), closed=connection.watch.closed)
    else:
        evidence.complete(Confirmed(began, _now()), names)
    return True


async def _ask_for(connection: Connection, evidence: RequestedEvidence, name: str) -> None:
    """Ask for one node by its name; any other answer than yes or no says nothing."""
    at = _now()
    try:
        await connection.rest.node(name)
    except NotInSlurm:
        evidence.answered(name, at, exists=False)
    except SlurmError:
        return
    else:
        evidence.answered(name, at, exists=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
