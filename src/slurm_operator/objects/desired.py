"""What a daemon's module returns: objects to apply, objects to remove, and what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from slurm_operator.api.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

Manifest: TypeAlias = dict[str, Any]
"""An object as it is sent to the API server."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that keeps objects from being built; the message is shown to users."""

    reason: Reason
    field: str
    message: str


class Unbuildable(Exception):  # noqa: N818 - it says what became of the object
    """An object cannot be built now; carries every reason at once, so that one look shows them all."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in problems))
        self.problems = problems


def missing(field_: str, what: str) -> Unbuildable:
    """Return the error for an object that a field names and that does not exist."""
    return Unbuildable(Problem(Reason.MISSING_REFERENCE, field_, what))


def invalid(field_: str, message: str) -> Unbuildable:
    """Return the error for a field whose value cannot be used."""
    return Unbuildable(Problem(Reason.INVALID_SPEC, field_, message))


def existing(item: T | None, where: str, kind: str, name: str) -> T:
    """Return an object that a field names, or say that it does not exist."""
    if item is None:
        raise missing(where, f"{kind} {name!r} does not exist; create it")
    return item


def gather(builders: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Return the value of each builder; if any cannot, raise the problems of all of them."""
    values: dict[str, T] = {}
    problems: dict[Problem, None] = {}
    for name, builder in builders.items():
        try:
            values[name] = builder()
        except Unbuildable as error:
            problems.update(dict.fromkeys(error.problems))
    if problems:
        raise Unbuildable(*problems)
    return values


class ObjectName(NamedTuple):
    """One object of the namespace, by what the API server knows it by."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Desired:
    """The objects that should exist, those that should not, and the problems with the rest."""

    objects: tuple[Manifest, ...] = ()
    unwanted: tuple[ObjectName, ...] = ()
    problems: tuple[Problem, ...] = ()

    def find(self, kind: str, name: str) -> Manifest | None:
        """Return one of the objects."""
        return next(
            (item for item in self.objects if item["kind"] == kind and item["metadata"]["name"] == name), None
        )


@dataclass(slots=True)
class Assembly:
    """Collects objects one by one, and the problems of those that cannot be built."""

    objects: list[Manifest] = field(default_factory=list)
    unwanted: list[ObjectName] = field(default_factory=list)
    problems: dict[Problem, None] = field(default_factory=dict)

    def build(self, builder: Callable[[], Manifest]) -> None:
        """Add what the builder returns; if it cannot, remember why."""
        try:
            self.objects.append(builder())
        except Unbuildable as error:
            self.note(error.problems)

    def note(self, problems: Iterable[Problem]) -> None:
        """Remember problems, each once."""
        self.problems.update(dict.fromkeys(problems))

    def done(self) -> Desired:
        """Return everything collected."""
        return Desired(tuple(self.objects), tuple(self.unwanted), tuple(self.problems))
