"""The event loops under which tests of connections run: asyncio's, and those that a process may have instead.

uvloop is a loop of its own. aiofastnet lets a loop open connections of its own kind. The transports of either
are of no class of asyncio's. aiohttp is to use aiofastnet by itself from 3.15 on, wherever it is installed;
the pinned 3.14 does not, so a test runs with it only if it is marked. That must be settled before 3.15.

A folder whose `conftest.py` has `loop_factories` as the hook of pytest-asyncio runs each test that is marked
`event_loops` under all of them, and every other test under asyncio's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aiofastnet
import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

PLAIN: Final = "asyncio"
LOOPS: Final[Mapping[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    PLAIN: asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "aiofastnet": aiofastnet.loop_factory(),
}


def loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the event loops of a test."""
    return LOOPS if item.get_closest_marker("event_loops") else {PLAIN: LOOPS[PLAIN]}
