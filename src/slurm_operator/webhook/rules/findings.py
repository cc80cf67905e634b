"""What a rule found: errors, by the field to change, and warnings.

An error is a sentence for the person who wrote the manifest: what is wrong, and what to write instead.
Several come together, so that one change can fix all of them. Values that may hold a secret are never quoted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurm_operator.objects.desired import Unbuildable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slurm_operator.objects.desired import Problem


# A manifest can be a megabyte of mistakes; more findings would not help the user.
_MOST: Final = 50
_LONGEST: Final = 500


class CauseType(StrEnum):
    """The kinds of mistakes that Kubernetes knows, as `status.details.causes` has them."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with one field."""

    path: str
    message: str
    cause: CauseType = CauseType.INVALID

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(slots=True)
class Findings:
    """Collects what the rules find, each thing once."""

    errors: dict[tuple[str, str], Finding] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def deny(self, path: str, message: str, cause: CauseType = CauseType.INVALID) -> None:
        """Refuse the object because of a field."""
        short = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
        if len(self.errors) < _MOST:
            self.errors.setdefault((path, short), Finding(path, short, cause))

    def require(self, path: str, message: str) -> None:
        """Refuse the object because a field is not set."""
        self.deny(path, message, CauseType.REQUIRED)

    def warn(self, path: str, message: str) -> None:
        """Tell the user something about a field, and accept the object."""
        self.warnings.setdefault(f"{path}: {message}")

    def note(self, problems: Iterable[Problem]) -> None:
        """Refuse the object for what the renderers say; of a field already complained of, say no more."""
        blamed = {path for path, _ in self.errors}
        for problem in problems:
            # A renderer of another object blames "the field of a NodeSet": here, that is this one.
            path = problem.field.partition(" of ")[0]
            if blamed.isdisjoint((path, f"{path}.name", f"{path}.key")):
                self.deny(path, problem.message)

    def attempt(self, build: Callable[[], object]) -> None:
        """Run a renderer for what it says when it cannot."""
        try:
            build()
        except Unbuildable as error:
            self.note(error.problems)
