"""The one failure that no second run excuses."""

from __future__ import annotations


class JobKilled(AssertionError):  # noqa: N818 - it names what happened
    """Something disturbed a job: killed, requeued or cancelled it, or took its worker while it ran.

    CI runs a few failed tests once more (scripts/again.py), but never one whose report has this word in it.
    The word is in the message, too, so that it survives being quoted by another error.
    """

    def __init__(self, message: str) -> None:
        super().__init__(f"JobKilled: {message}")
