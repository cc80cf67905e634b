"""The memory that the replies of all Slurm clusters may take together while they are read.

Each reply has its own limit, but there may be many clusters, and one who may create a Cluster may create many
of them. A short reply always has room. A reply beyond that takes its part of what all share, and is refused
when there is none left: the state of that cluster's nodes is then unknown, until a later request finds room.

Namespaces have shares. A namespace takes at most two thirds, which is as much as the longest reply, so that a
third is left for others. A namespace that found no room although it had less than an equal share is
remembered for a while, and that share is kept free for it: what others took beyond theirs ends with the
deadlines of their requests, and after that they get no more than leaves it free. So such a namespace finds
its share after such a deadline, whatever the others do.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from slurm_operator.slurm.model.reply_limits import MAX_READ_TOGETHER, SHORT, megabytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

# Many times the pause after which a cluster is asked again (30 s) and the deadline of a request (30 s).
_REMEMBERED_SECONDS: Final = 600.0


class NoRoomError(Exception):
    """There is no room for more of a reply; the words name the limit."""


class ReplyMemory:
    """What all replies that are being read share."""

    def __init__(self, size: int = MAX_READ_TOGETHER, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = size
        self._most = size * 2 // 3
        self._clock = clock
        self._held: dict[str, int] = {}
        self._refused: dict[str, float] = {}

    @property
    def used(self) -> int:
        """Return how much is used in all."""
        return sum(self._held.values())

    def lease(self, namespace: str = "") -> MemoryShare:
        """Return the part of one call, to be used in a `with` statement."""
        return MemoryShare(self, namespace)

    def take(self, namespace: str, size: int) -> None:
        """Take more for a namespace; a NoRoomError if that is more than its share, or than there is."""
        if not size:
            return
        held, free = self._held.get(namespace, 0) + size, self.size - self.used - size
        share = self._share(namespace)
        if free < 0:
            if held <= share:
                self._refused[namespace] = self._clock()
            most = megabytes(self.size)
            raise NoRoomError(f"the replies of all Slurm clusters may take {most} at the same time")
        if held > share and (held > self._most or free < self._kept_free(namespace, share)):
            raise NoRoomError(
                f"the replies of the Slurm clusters of one namespace may take {megabytes(share)} at the same "
                f"time while other namespaces need room, and {megabytes(self._most)} otherwise"
            )
        self._held[namespace] = held

    def give_back(self, namespace: str, size: int) -> None:
        """Give back what a namespace has taken."""
        left = self._held.get(namespace, 0) - size
        if left > 0:
            self._held[namespace] = left
        else:
            self._held.pop(namespace, None)

    def _share(self, namespace: str) -> int:
        """Return an equal share of all that take room, or found none a while ago."""
        oldest = self._clock() - _REMEMBERED_SECONDS
        self._refused = {name: at for name, at in self._refused.items() if at > oldest}
        sharing = {namespace} | self._held.keys() | self._refused.keys()
        return min(self._most, self.size // len(sharing))

    def _kept_free(self, namespace: str, share: int) -> int:
        """Return how much is kept free for others that found no room."""
        others = self._refused.keys() - {namespace}
        return sum(max(0, share - self._held.get(other, 0)) for other in others)


class MemoryShare:
    """The part of one call; it grows with its reply and is given back in the end."""

    def __init__(self, room: ReplyMemory, namespace: str) -> None:
        self._room = room
        self._namespace = namespace
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.reset()

    def grow(self, size: int) -> None:
        """Take more; a NoRoomError if that is more than there is."""
        more = max(0, self._size + size - SHORT.size) - max(0, self._size - SHORT.size)
        self._room.take(self._namespace, more)
        self._size += size

    def reset(self) -> None:
        """Give everything back."""
        self._room.give_back(self._namespace, max(0, self._size - SHORT.size))
        self._size = 0


SHARED: Final = ReplyMemory()
