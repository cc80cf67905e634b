"""Run computations in threads, so that the event loop stays responsive.

Threads make nothing faster, because Python has one interpreter for all of them, but the event loop gets its
turns meanwhile. asyncio's default executor is not used: it also resolves host names, which takes long while
no name server answers, and a handful of such lookups would delay all other work in it.

Groups (namespaces) that wait for a thread take turns, so that one with many large NodeSets delays others by
one computation.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from slurm_operator.kube.client.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# With each one more the loop waits longer for its turn.
_COUNT: Final = 2
_THREADS: Final = ThreadPoolExecutor(_COUNT, thread_name_prefix="compute")
_SLOTS: Final = Slots(_COUNT)


async def run_in_thread(compute: Callable[[], T], group: str = "") -> T:
    """Return the result of a function that never blocks; once started, it ends even if its caller is gone."""
    async with _SLOTS.taken(group):
        return await asyncio.get_running_loop().run_in_executor(_THREADS, compute)
