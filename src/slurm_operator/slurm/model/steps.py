"""Long computations in steps: generators that yield after every few milliseconds, and return the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


def step(computation: Generator[None, None, T]) -> tuple[bool, T | None]:
    """Run one step; return whether it was the last, and what the computation returned."""
    try:
        next(computation)
    except StopIteration as end:
        return True, end.value
    return False, None


def at_once(computation: Generator[None, None, T]) -> T:
    """Return what a computation returns; all of its steps run here and now."""
    done, value = False, None
    while not done:
        done, value = step(computation)
    return value  # type: ignore[return-value]
