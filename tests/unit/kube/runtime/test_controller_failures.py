from __future__ import annotations

import pytest

from slurm_operator.kube.errors import Conflict, ConnectionFailed, FencedError, TooManyRequests
from slurm_operator.kube.runtime.failures import describe, is_defect, is_fenced, retry_after


def conflict() -> Conflict:
    return Conflict("the object\nhas  changed", status=409)


def busy(seconds: float | None) -> TooManyRequests:
    return TooManyRequests("too many", status=429, retry_after=seconds)


@pytest.mark.parametrize(
    ("error", "defect"),
    [
        (conflict(), False),
        (ConnectionFailed("cut"), False),
        (TimeoutError("late"), False),
        (OSError("gone"), False),
        (KeyError("x"), True),
        (AssertionError(), True),
        (RecursionError(), True),
        (GeneratorExit(), True),
        (ExceptionGroup("two", [conflict(), ConnectionFailed("cut")]), False),
        (ExceptionGroup("two", [conflict(), ExceptionGroup("inner", [TypeError("x")])]), True),
    ],
)
def test_a_defect_is_a_mistake_of_the_program(error: BaseException, defect: bool) -> None:  # noqa: FBT001 - a column
    """Errors of the world need a retry, mistakes of the program a traceback, alone or in a group."""
    assert is_defect(error) is defect


def test_a_group_is_fenced_only_as_a_whole() -> None:
    """Another error beside the fence is news and must not be silenced with it."""
    assert is_fenced(FencedError("no lease"))
    assert is_fenced(ExceptionGroup("all", [FencedError("a"), FencedError("b")]))
    assert not is_fenced(ExceptionGroup("mixed", [FencedError("a"), conflict()]))


def test_the_longest_wish_of_a_server_counts() -> None:
    """Retry-After is found in the error or in a group of them."""
    assert retry_after(conflict()) == 0.0
    assert retry_after(busy(None)) == 0.0
    assert retry_after(ExceptionGroup("all", [busy(3.0), busy(7.0), ValueError()])) == 7.0


def test_description_is_one_line_with_notes_and_causes() -> None:
    """The line names each error, what the raiser noted, and what it came from."""
    error = OSError("cannot reach slurm/restapi")
    error.add_note("while draining 3 nodes")
    error.__cause__ = ConnectionFailed("refused by 10.0.0.1")
    error.__cause__.__cause__ = OSError("the same again in aiohttp's words")
    text = describe(ExceptionGroup("both", [error, conflict(), AssertionError()]))
    assert text == (
        "OSError: cannot reach slurm/restapi while draining 3 nodes, "
        "caused by ConnectionFailed: refused by 10.0.0.1; "
        "Conflict: the object has changed; AssertionError"
    )


def test_description_survives_circular_causes_and_has_an_end() -> None:
    """Errors that cause each other, or carry pages of text, still make one bounded line."""
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert describe(one) == "ValueError: one, caused by ValueError: two"
    assert len(describe(ValueError("x" * 10_000))) == 2000
