"""What an exception from a reconciler means, as pure questions about it.

Errors come alone or as the groups that `asyncio.TaskGroup` raises; a group is classified by its leaves.
"""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING

from slurm_operator.kube.errors import ApiError, FencedError, KubeError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Exceptions that mean a bug in this program, not a failure of its environment: no code has caught them and
# translated them into an error of its own. OSError, including TimeoutError, is a failure of the environment.
_DEFECTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    ImportError,
    LookupError,
    NameError,
    RuntimeError,
    StopAsyncIteration,
    StopIteration,
    TypeError,
    ValueError,
)

# A line that a person reads and a log store accepts; an admission webhook may answer with pages.
_LONGEST = 2000


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside a group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def is_defect(error: BaseException) -> bool:
    """Return whether the error shows a mistake in the program, which needs a traceback and a fix."""
    return any(isinstance(leaf, _DEFECTS) or not isinstance(leaf, Exception) for leaf in leaves(error))


def is_fenced(error: BaseException) -> bool:
    """Return whether nothing failed except that this process may not write any more."""
    return all(isinstance(leaf, FencedError) for leaf in leaves(error))


def retry_after(error: BaseException) -> float:
    """Return the longest time a server asked to wait, or 0."""
    return max((leaf.retry_after or 0.0 for leaf in leaves(error) if isinstance(leaf, ApiError)), default=0.0)


def describe(error: BaseException) -> str:
    """Say in one line what happened: each error with its notes and its causes."""
    text = "; ".join(_with_causes(leaf) for leaf in leaves(error))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _with_causes(error: BaseException) -> str:
    said: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        parts = (str(cause), *getattr(cause, "__notes__", ()))
        message = " ".join(" ".join(part.split()) for part in parts if part)
        name = type(cause).__name__
        said.append(f"{name}: {message}" if message else name)
        # The message of a KubeError is complete without its cause, and it does not help the reader that a
        # timeout is implemented by a cancellation.
        following = None if isinstance(cause, KubeError) else cause.__cause__
        cause = None if isinstance(following, CancelledError) else following
    return ", caused by ".join(said)
