"""Background tasks (errands) that wait for Slurm while the reconciles of a NodeSet go on.

A reconcile never waits for Slurm: a NodeSet that is scaled out gets its workers while slurmrestd hangs. What
a reconcile needs from Slurm it starts here, as a background task, and ends; when a task with a result ends,
the NodeSet is put back into the queue, so that the next reconcile sees the result at once. Background tasks
are cancelled with the process, with its lease, and with their NodeSet.

A NodeSet has one task of each kind at a time, except for state changes: two of these never concern the same
node, because a node whose state is being changed is left out of the next ones.

Query Slurm again, in the background: for its nodes, and for single ones by their names.

The reconcile that starts this ends without an answer. The next one, which the answer causes, finds it in the
view and in the memory, decides everything once more, and continues while the answer is valid (`deletion`).
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog

from slurm_operator.controllers.nodeset.decide.deletion import FRESH_SECONDS, Confirmed
from slurm_operator.controllers.nodeset.decide.observation import Asked
from slurm_operator.controllers.nodeset.run.one_pass import each
from slurm_operator.slurm.errors import NotFound, SlurmError

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Sequence

    from slurm_operator.controllers.nodeset.run.one_pass import Outcome, Trouble, Work
    from slurm_operator.controllers.nodeset.run.state import Memory
    from slurm_operator.kube.meta import Key
    from slurm_operator.kube.sources import Channel
    from slurm_operator.slurm.clients import Connection

log = structlog.get_logger(__name__)

H = TypeVar("H")

# After a defect of our own: not at once, or it would be met again without a pause.
_AFTER_DEFECT: Final = 5.0


class Kind(Enum):
    """What an errand is about."""

    STATE = "change states of nodes"
    FIELDS = "tell nodes what they are"
    ASK = "ask again"
    FORGET = "delete records"
    RESERVE = "keep the reservation"


class Errands:
    """The errands of all NodeSets; `again` takes the NodeSets that have to be looked at."""

    def __init__(self, again: Channel[Key]) -> None:
        self._again = again
        self._tasks: defaultdict[Key, dict[asyncio.Task[bool], Kind]] = defaultdict(dict)
        # What came while an errand of its kind was under way: it must be looked at when that is done.
        self._waiting: set[tuple[Key, Kind]] = set()
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

    def start(self, key: Key, kind: Kind, errand: Coroutine[None, None, bool]) -> None:
        """Begin an errand; it returns whether its NodeSet must be looked at, who waits for it aside."""
        if self._over:
            errand.close()
            return
        # Not the context of the pass: the lines it logs belong to no reconcile.
        task = asyncio.create_task(errand, name=f"{kind.value} of {key}", context=contextvars.Context())
        self._tasks[key][task] = kind
        task.add_done_callback(lambda done: self._ended(key, kind, done))

    def busy(self, key: Key, kind: Kind) -> bool:
        """Tell whether such an errand is under way; if so, the NodeSet is looked at when it ends."""
        if kind not in self._tasks.get(key, {}).values():
            return False
        self._waiting.add((key, kind))
        return True

    def drop(self, key: Key) -> None:
        """End the errands of a NodeSet that is gone."""
        for task in self._tasks.pop(key, {}):
            task.cancel()
        self._waiting -= {(key, kind) for kind in Kind}

    def under_way(self, key: Key) -> Collection[Kind]:
        """Return what is under way for a NodeSet."""
        return tuple(self._tasks.get(key, {}).values())

    def _ended(self, key: Key, kind: Kind, task: asyncio.Task[bool]) -> None:
        mine = self._tasks.get(key, {})
        if mine.pop(task, None) is None or task.cancelled():
            return  # it was dropped, or everything ends
        if not mine:
            del self._tasks[key]
        waited = (key, kind) in self._waiting
        self._waiting.discard((key, kind))
        if (defect := task.exception()) is not None:
            log.error("an errand failed", nodeset=str(key), errand=kind.value, exc_info=defect)
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
    trouble: Trouble | None = None
    retry_at: float = 0.0
    _row: int = field(default=0, repr=False)

    def keep(self, items: Collection[H]) -> None:
        """Forget all but these; when nothing is left, nothing has been refused."""
        self.items &= frozenset(items)
        if not self.items:
            self.trouble, self.retry_at, self._row = None, 0.0, 0

    def tell(self, outcome: Outcome) -> None:
        """Report the rejected writes in the outcome of a reconcile."""
        if self.trouble is not None:
            outcome.trouble(self.trouble.reason, self.trouble.message)

    def wait(self, items: Collection[H], now: float, outcome: Outcome) -> frozenset[H]:
        """Return which of these must wait, and see to it that they get another look."""
        waiting = self.items & frozenset(items) if now < self.retry_at else frozenset()
        if waiting:
            outcome.look(self.retry_at - now)
        return waiting

    def tried(
        self, items: Collection[H], refused: Collection[H], trouble: Trouble | None, now: float
    ) -> None:
        """Take in what became of an errand: `refused` of `items` were not done."""
        self.items = self.items - frozenset(items) | frozenset(refused)
        if not refused:
            self.keep(self.items)
            return
        self._row += 1
        self.trouble = trouble
        self.retry_at = now + min(self.longest, self.first * 2 ** min(self._row - 1, 10))


# A list takes well under a second; the breaker of a connection in trouble lets one through every few.
_VIEW_SECONDS: Final = 15.0
# After something stayed without an answer.
_PAUSE_SECONDS: Final = 2.0


class Asking:
    """Orders questions to Slurm."""

    def __init__(self, errands: Errands) -> None:
        self._errands = errands

    def order(self, work: Work, names: Sequence[str] = (), after: float = -math.inf) -> None:
        """Have the nodes listed, after a moment and lately, and some asked for by name."""
        key, memory = work.nodeset.key, work.memory
        if work.connection is None or self._errands.busy(key, Kind.ASK):
            return
        wait = memory.ask_at - _now()
        if wait > 0:
            work.outcome.look(wait)
            return
        self._errands.start(key, Kind.ASK, _ask(work.connection, memory, after, names))

    def under_way(self, work: Work) -> bool:
        """Tell whether an answer is awaited, which should find the next pass ready."""
        return Kind.ASK in self._errands.under_way(work.nodeset.key)


async def _ask(connection: Connection, memory: Memory, after: float, names: Sequence[str]) -> bool:
    began = _now()
    try:
        await each(names, lambda name: _ask_for(connection, memory, name))
        # The list comes last, for it says more: what is on a node.
        after = max(after, _now() - FRESH_SECONDS)
        await connection.watch.refreshed(after, _now() + _VIEW_SECONDS)
    except SlurmError:
        # The view itself gives the cause to all readers as soon as it is stale. A new connection may work.
        memory.ask_at = 0.0 if connection.watch.closed else _now() + _PAUSE_SECONDS
        return True
    ended = _now()
    memory.confirmed = Confirmed(began, after, ended)
    answered = all((asked := memory.asked.get(name)) is not None and asked.at >= began for name in names)
    memory.ask_at = 0.0 if answered else ended + _PAUSE_SECONDS
    return True


async def _ask_for(connection: Connection, memory: Memory, name: str) -> None:
    """Ask for one node by its name; any other answer than yes or no says nothing."""
    at = _now()
    try:
        await connection.rest.node(name)
    except NotFound:
        memory.asked[name] = Asked(at, exists=False)
    except SlurmError:
        return
    else:
        memory.asked[name] = Asked(at, exists=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
