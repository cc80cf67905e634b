"""Long computations beside the event loop, a step at a time, so that none of them keeps the others waiting.

The steps of a namespace wait in line for the one thread of this module, and namespaces take turns; so a
namespace that has little to compute is done soon, however much others have. Between two steps the computation
can be cancelled. A thread cannot be ended, so what matters is that no single step is long.

One thread: more of them would compute nothing faster, and with each the event loop waits longer for its turn.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from slurm_operator.slurm.steps import step
from slurm_operator.slurm.thread_turns import Turns

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="slurm-replies")
_TURNS: Final = Turns(1, 1)


async def in_slices(computation: Generator[None, None, T], *, beside: bool = False, namespace: str = "") -> T:
    """Return what a computation returns; only its first step runs here, and not even that if `beside`."""
    done, value = (False, None) if beside else step(computation)
    while not done:
        async with _TURNS.taken(namespace):
            done, value = await asyncio.get_running_loop().run_in_executor(_THREAD, step, computation)
    return value  # type: ignore[return-value]
