"""How the replies that are read at the same time share their room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.model import reply_limits
from slurm_operator.slurm.rest.reply_memory import NoRoomError, ReplyMemory
from slurm_operator.slurm.rest.session import RestTiming

if TYPE_CHECKING:
    from slurm_operator.slurm.rest.reply_memory import MemoryShare

FREE = reply_limits.SHORT.size
SIZE = 3_000
# The longest that a request, and so its part of the room, can last.
LONGEST = RestTiming().request


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def filled(lease: MemoryShare, most: int = SIZE) -> int:
    """Let a reply grow until it is refused, or has its size, and return how much it took."""
    listed_at = 0
    try:
        lease.grow(FREE)
        while listed_at < most:
            lease.grow(min(10, most - listed_at))
            listed_at += min(10, most - listed_at)
    except NoRoomError:
        pass
    return listed_at


def test_replies_share_their_room() -> None:
    """What is beyond the first mebibyte of each counts; what one gives back another may take."""
    room = ReplyMemory(90)
    with room.lease("a") as first, room.lease("b") as second:
        first.grow(FREE)
        second.grow(FREE)
        assert room.used == 0
        first.grow(60)
        with pytest.raises(NoRoomError, match="of all Slurm clusters may take"):
            second.grow(31)
        second.grow(30)
        assert room.used == 90
        first.reset()
        second.grow(30)
    assert room.used == 0


def test_the_longest_reply_fits_into_the_share_of_one_namespace() -> None:
    """A namespace alone reads the longest list that a cluster may have."""
    room = ReplyMemory()
    lease = room.lease("a")
    lease.grow(reply_limits.JOBS.size)
    assert room.used == reply_limits.JOBS.size - FREE


def test_many_clusters_of_one_namespace_leave_a_third_to_others() -> None:
    """However many replies one namespace reads, the first of another has room at once."""
    room = ReplyMemory(SIZE)
    hostile = [room.lease("hostile") for _ in range(100)]
    assert sum(filled(lease) for lease in hostile) == SIZE * 2 // 3
    with pytest.raises(NoRoomError, match="of one namespace may take"):
        hostile[-1].grow(10)
    assert filled(room.lease("other")) == SIZE // 3


@pytest.mark.parametrize("namespaces", [2, 5, 20])
def test_a_namespace_that_found_no_room_gets_its_share_within_one_deadline(namespaces: int) -> None:
    """Hostile namespaces that take everything, all the time, keep another from its share for one deadline."""
    clock = Clock()
    room = ReplyMemory(SIZE, clock)
    hostile = {f"hostile-{number}": [room.lease(f"hostile-{number}")] for number in range(namespaces)}
    for (lease,) in hostile.values():
        filled(lease)
    assert room.used == SIZE
    waiting = room.lease("other")
    assert filled(waiting) == 0
    # What they have ends at last, each at another time, and each takes as much as it gets again and again.
    for number, leases in enumerate(hostile.values()):
        clock.now = LONGEST * (number + 1) / namespaces
        leases[0].reset()
        for name, others in hostile.items():
            others.append(room.lease(name))
            filled(others[-1])
    share = SIZE // (namespaces + 1)
    waiting.reset()
    assert filled(waiting, share) == share
    # The next one does not wait at all, and is read beside the first.
    waiting.reset()
    for leases in hostile.values():
        filled(leases[0])
    assert filled(room.lease("other"), share) == share


def test_room_is_kept_free_for_a_while_only() -> None:
    """A namespace that needs room no more does not keep others from it for ever."""
    clock = Clock()
    room = ReplyMemory(SIZE, clock)
    first, second, third = (room.lease(name) for name in "abc")
    filled(first)
    filled(second)
    assert filled(third) == 0
    first.reset()
    second.reset()
    assert filled(first) == SIZE // 3
    first.reset()
    clock.now = 3600.0
    assert filled(first) == SIZE * 2 // 3


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 900), st.integers(0, 60)), max_size=80))
def test_whatever_is_taken_is_within_the_limits(steps: list[tuple[int, int, int]]) -> None:
    """No order of replies takes more than all or than two thirds for one, and all is given back."""
    clock = Clock()
    room = ReplyMemory(SIZE, clock)
    leases = [room.lease(f"namespace-{number % 3}") for number in range(6)]
    held = [0] * 6
    for lease in leases:
        lease.grow(FREE)
    for number, size, seconds in steps:
        clock.now += seconds
        if size:
            try:
                leases[number].grow(size)
            except NoRoomError:
                continue
            held[number] += size
        else:
            leases[number].reset()
            leases[number].grow(FREE)
            held[number] = 0
        assert room.used == sum(held) <= SIZE
        assert all(held[first] + held[first + 3] <= SIZE * 2 // 3 for first in range(3))
    for lease in leases:
        lease.reset()
    assert room.used == 0
