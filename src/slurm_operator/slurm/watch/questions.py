"""Requests of a watch: each has a deadline, what goes wrong is a SlurmError, failures are logged once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from slurm_operator.slurm.errors import BadReply, RestUnreachable, SlurmError

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


def of_same_cluster(reported: str, nodes: str) -> None:
    """Raise BadReply if an answer is of another cluster than the nodes."""
    if reported and nodes and reported != nodes:
        raise BadReply(f"the list is of the cluster {reported!r}, and that of the nodes of {nodes!r}")


class Questions:
    """Waits for answers, and remembers which parts of the Slurm state cannot be read."""

    def __init__(self, limit: float, log: Any) -> None:
        self._limit = limit
        self._log = log
        self._failing: dict[str, str] = {}

    async def ask(self, request: Awaitable[T], limit: float | None = None) -> T:
        """Wait for an answer; whatever goes wrong is a SlurmError."""
        limit = self._limit if limit is None else limit
        try:
            async with asyncio.timeout(limit):
                return await request
        except SlurmError:
            raise
        except TimeoutError:
            raise RestUnreachable(f"no answer within {limit:g} s") from None
        except Exception as error:
            self._log.exception("a request to Slurm failed in an unexpected way")
            raise BadReply(f"unexpected {type(error).__name__} while asking Slurm") from error

    def note(self, part: str, error: SlurmError | None) -> None:
        """Log when a part of the view begins or ceases to fail."""
        before = self._failing.pop(part, None)
        if error is not None:
            self._failing[part] = error.kind
            if before != error.kind:
                self._log.warning(
                    "a part of the Slurm state cannot be read", part=part, kind=error.kind, error=str(error)
                )
        elif before is not None:
            self._log.info("a part of the Slurm state can be read again", part=part)
