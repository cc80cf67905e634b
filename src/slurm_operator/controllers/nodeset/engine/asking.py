"""Ask Slurm again, in the background: for its nodes, and for single ones by their names.

The pass that orders this ends without an answer. The next one, which the answer calls, finds it in the view
and in the memory, decides everything once more, and goes on while it counts (`evidence`).
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.nodeset.engine.errands import Errands, Kind
from slurm_operator.controllers.nodeset.engine.evidence import FRESH_SECONDS, Confirmed
from slurm_operator.controllers.nodeset.engine.work import each
from slurm_operator.controllers.nodeset.observation import Asked
from slurm_operator.slurm.errors import NotFound, SlurmError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_operator.controllers.nodeset.engine.memory import Memory
    from slurm_operator.controllers.nodeset.engine.work import Work
    from slurm_operator.slurm.clients import Connection

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
        # The view itself says why, to everybody, as soon as it is old. The next connection may do better.
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
