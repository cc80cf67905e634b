"""The memory that the replies of all Slurm clusters may take together while they are read.

Each reply has its own limit, but there may be many clusters, and one who may create a Cluster may create many
of them. A short reply always has room. A reply beyond that takes its part of what all share, and is refused
when there is none left: the state of that cluster's nodes is then unknown, until a later request finds room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from slurm_operator.slurm.limits import MAX_READ_TOGETHER, SHORT, megabytes

if TYPE_CHECKING:
    from types import TracebackType


class NoRoomError(Exception):
    """There is no room for more of a reply; the words name the limit."""


class Room:
    """What all replies that are being read share."""

    def __init__(self, size: int = MAX_READ_TOGETHER) -> None:
        self.size = size
        self.taken = 0

    def lease(self) -> Lease:
        """Return the part of one call, to be used in a `with` statement."""
        return Lease(self)


class Lease:
    """The part of one call; it grows with its reply and is given back in the end."""

    def __init__(self, room: Room) -> None:
        self._room = room
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
        if self._room.taken + more > self._room.size:
            most = megabytes(self._room.size)
            raise NoRoomError(f"the replies of all Slurm clusters may take {most} at the same time")
        self._size += size
        self._room.taken += more

    def reset(self) -> None:
        """Give everything back."""
        self._room.taken -= max(0, self._size - SHORT.size)
        self._size = 0


SHARED: Final = Room()
