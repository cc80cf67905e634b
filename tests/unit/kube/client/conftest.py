from __future__ import annotations

from tests.support import event_loops

pytest_asyncio_loop_factories = event_loops.loop_factories
