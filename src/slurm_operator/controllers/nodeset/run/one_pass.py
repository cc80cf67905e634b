"""What the parts that carry out a plan share: the plan with its surroundings, and how many writes at once.

What became of one reconcile of a NodeSet: what went wrong, and when to requeue it without an event.

A trouble is reported to users, in the condition `Degraded`; an error goes to the queue, which tries again
with a growing delay. Most errors are troubles, too. A conflict, or an object that is not found, is neither:
another client changed or deleted the object first, and the caches will show that soon.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, cast

from slurm_operator.controllers.workload.verdict import Cause
from slurm_operator.kube.beside import beside
from slurm_operator.kube.errors import Conflict, FencedError, Forbidden, KubeError, NotFound
from slurm_operator.kube.failures import describe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.actions import Hold
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.controllers.nodeset.run.observe import Ground
    from slurm_operator.controllers.nodeset.run.state import Memory
    from slurm_operator.objects.desired import Unbuildable
    from slurm_operator.objects.slurmd import WorkerTemplate
    from slurm_operator.slurm.clients import Connection

T = TypeVar("T")

# Of the 64 requests that the client has under way at once; more make nothing faster, and each new connection
# costs a handshake and memory.
AT_ONCE: Final = 32
_MANY: Final = 500
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Work:
    """A plan, and all that is needed to carry it out."""

    ground: Ground
    seen: Observation
    plan: Plan
    template: WorkerTemplate | None
    connection: Connection | None
    memory: Memory
    outcome: Outcome
    look: Callable[[], Awaitable[Observation]]
    """Looks again, at what is known by then."""

    @property
    def nodeset(self) -> NodeSet:
        """Return the NodeSet."""
        return self.seen.nodeset


async def aside(seen: Observation, decide: Callable[[], T]) -> T:
    """Run a pure function that decides about many workers without blocking the event loop.

    It takes some 20 µs for each worker that there is or should be, so that thousands would block the event
    loop for too long for the lease and for other NodeSets. In a thread of its own it yields every few
    milliseconds. What it reads is frozen.
    """
    wanted = len(seen.nodes) if seen.daemon else seen.nodeset.spec.replicas
    if max(len(seen.workers), wanted) < _MANY:
        await asyncio.sleep(0)
        return decide()
    return await beside(decide, seen.nodeset.metadata.namespace)


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
    window, begun, healthy = 1, 0, True
    try:
        while True:
            while healthy and len(running) < window and (item := next(waiting, None)) is not None:
                begun += 1
                running.add(asyncio.ensure_future(function(item)))
            if not running:
                return begun
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                healthy = task.result() and healthy
                window = min(AT_ONCE, window + 1)
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


# How troubles begin that have an Event of their own.
FINALIZERS: Final = "the finalizers of NodeSet"
# How soon to look again after a conflict, if the change behind it sends no event to us.
_AFTER_CONFLICT = 1.0
_LEAST_AFTER_ERROR = 1.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that keeps a NodeSet from being as it should: one word, and a sentence with the fix."""

    reason: str
    message: str


@dataclass(slots=True)
class Outcome:
    """Collects what one pass leaves behind."""

    troubles: dict[Trouble, None] = field(default_factory=dict)
    errors: list[KubeError] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    budget: Hold | None = None
    """Why the budget of the workers does not protect them, if so."""
    certain: bool = True
    """Nothing is missing that decides how many pods there should be, and which."""

    def trouble(self, reason: str, message: str) -> None:
        """Record a problem to report in the condition `Degraded`."""
        self.troubles[Trouble(str(reason), message)] = None

    def unbuildable(self, error: Unbuildable) -> None:
        """Note why something could not be built."""
        for problem in error.problems:
            self.trouble(problem.reason.value, f"{problem.field}: {problem.message}")

    def failed(self, what: str, error: KubeError) -> None:
        """Note that a request failed; `what` names the object and what was wanted of it."""
        if isinstance(error, FencedError):
            raise error
        if isinstance(error, NotFound | Conflict):
            self.looks.append(_AFTER_CONFLICT)
            return
        self.errors.append(error)
        if not namespace_ends(error):
            self.trouble(Cause.FAILED, f"{what}: {describe(error)}")

    def look(self, after: float) -> None:
        """Ask for another look."""
        self.looks.append(after)

    def again(self) -> float | None:
        """Return after how many seconds to requeue without an event; None if that was not requested.

        Also after an error, in addition to the growing delay: one part that fails must not delay the others.
        """
        if not self.looks:
            return None
        return max(_LEAST_AFTER_ERROR, min(self.looks)) if self.errors else min(self.looks)


def namespace_ends(error: KubeError) -> bool:
    """Return whether a create failed because its namespace is being deleted, which is not reported."""
    causes = error.details.get("causes", ()) if isinstance(error, Forbidden) else ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
