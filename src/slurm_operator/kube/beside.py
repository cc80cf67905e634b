"""Computing beside the event loop.

Threads make nothing faster, for Python has one interpreter for all of them, but the loop has its turns
meanwhile. Not the threads that asyncio has at hand: these look up names too, which takes long while no name
server answers, and a handful of such lookups keeps everybody else waiting.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# With each one more the loop waits longer for its turn.
_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="beside")


async def beside(compute: Callable[[], T]) -> T:
    """Return what a function computes that waits for nothing; whoever gives up leaves it to its end."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, compute)
