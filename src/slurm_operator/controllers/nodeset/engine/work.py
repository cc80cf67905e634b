"""What the parts that carry out a plan share: the plan with its surroundings, and how many writes at once."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, cast

from slurm_operator.kube.beside import beside

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.engine.memory import Memory
    from slurm_operator.controllers.nodeset.engine.observe import Ground
    from slurm_operator.controllers.nodeset.engine.outcome import Outcome
    from slurm_operator.controllers.nodeset.observation import Observation
    from slurm_operator.controllers.nodeset.plan import Plan
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
    """Let a pure function decide about many workers without holding up everybody else.

    It takes some 20 µs for each worker that there is or should be, so that thousands would keep the event
    loop for longer than is good for the lease and for other NodeSets. In a thread of its own it hands over
    every few milliseconds. What it reads is frozen.
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
    but nobody waits for the slowest of a batch. After the first failure nothing new is begun: what fails for
    one mostly fails for all, and a thousand refusals help nobody.
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
