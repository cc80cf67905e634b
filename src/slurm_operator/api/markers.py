"""The words with which a struct says more about a field than its type can.

A field's annotation carries markers (`Annotated[int, minimum(1), DEFAULTED]`), a struct carries them in
`MARKERS`. They are data. `schema` turns them into OpenAPI; the admission webhook reads `Immutable`; the
decoder ignores all of them on purpose: the API server has validated what we read, and an object with one
odd value must stay readable so that the operator can say what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum


class Flag(Enum):
    """A marker without an argument."""

    REQUIRED = "the API server refuses an object without this field"
    DEFAULTED = "the API server fills in the struct's default, so it is visible in stored objects"


REQUIRED = Flag.REQUIRED
DEFAULTED = Flag.DEFAULTED


@dataclass(frozen=True)
class Keyword:
    """An OpenAPI keyword that is written into the schema as it is."""

    name: str
    value: Any

    def keywords(self) -> Mapping[str, Any]:
        """Return what this marker adds to the schema."""
        return {self.name: self.value}


# `null` is an accepted value and is kept; without it the API server drops the field.
NULLABLE = Keyword("nullable", value=True)
# Two owners never share such a map or list: who sets it sets all of it.
ATOMIC_MAP = Keyword("x-kubernetes-map-type", "atomic")
ATOMIC_LIST = Keyword("x-kubernetes-list-type", "atomic")

Int32 = Annotated[int, Keyword("format", "int32")]
Int64 = Annotated[int, Keyword("format", "int64")]
Timestamp = Annotated[str, Keyword("format", "date-time")]


def minimum(value: int) -> Keyword:
    """Name the smallest accepted number."""
    return Keyword("minimum", value)


def maximum(value: int) -> Keyword:
    """Name the largest accepted number."""
    return Keyword("maximum", value)


def pattern(expression: str) -> Keyword:
    """Name the regular expression that a string must match."""
    return Keyword("pattern", expression)


def min_length(value: int) -> Keyword:
    """Name the fewest characters of a string."""
    return Keyword("minLength", value)


def max_length(value: int) -> Keyword:
    """Name the most characters of a string."""
    return Keyword("maxLength", value)


def max_items(value: int) -> Keyword:
    """Name the most entries of a list."""
    return Keyword("maxItems", value)


def max_properties(value: int) -> Keyword:
    """Name the most entries of a map."""
    return Keyword("maxProperties", value)


def one_of(values: type[StrEnum]) -> Keyword:
    """Name the accepted values of a string, which stays a plain `str` in the struct."""
    return Keyword("enum", [str(value) for value in values])


@dataclass(frozen=True)
class KeyedList:
    """A list whose items are told apart by one field, so that several owners can each keep their own."""

    key: str

    def keywords(self) -> Mapping[str, Any]:
        """Return what this marker adds to the schema."""
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}


@dataclass(frozen=True)
class Rule:
    """A CEL rule of a struct: what must hold, which field to blame, what to tell who wrote the manifest."""

    expression: str
    message: str
    field: str
    reason: str = "FieldValueRequired"

    def as_validation(self) -> dict[str, Any]:
        """Return the entry for `x-kubernetes-validations`."""
        return {
            "rule": self.expression,
            "message": self.message,
            "fieldPath": f".{self.field}",
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Immutable:
    """A value that an update may not change; the admission webhook refuses the change.

    By default the value is the field's own. `value` names an attribute of the *kind* to compare instead,
    for fields whose effect matters rather than their spelling: a cluster name that was computed may be
    written out later. With `in_schema` the API server refuses the change, too, by a CEL rule: the field then
    holds without a webhook. Only for fields whose spelling is their meaning, and which are always present.
    """

    value: str = ""
    note: str = "It cannot be changed after creation."
    in_schema: bool = False

    def as_validation(self, field: str) -> dict[str, Any]:
        """Return the entry for `x-kubernetes-validations` of the field."""
        message = f"{field} cannot be changed after creation: create another object, and then delete this one"
        return {"rule": "self == oldSelf", "message": message}


IMMUTABLE_SLURM_KEY = Immutable(
    "slurm_key_name", note="The name of the Secret cannot be changed after creation; the key can."
)
IMMUTABLE_JWT_KEY = Immutable(
    "jwt_key",
    note="The key that is in use cannot be changed after creation. Moving the same selector from "
    "jwtHs256KeyRef to jwtKeyRef is allowed.",
)


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`; priority 1 shows it only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0

    def as_printer_column(self) -> dict[str, Any]:
        """Return the entry for `additionalPrinterColumns`."""
        column: dict[str, Any] = {"name": self.name, "jsonPath": self.path, "type": self.type}
        if self.description:
            column["description"] = self.description
        if self.priority:
            column["priority"] = self.priority
        return column


@dataclass(frozen=True)
class Definition:
    """What a kind's CustomResourceDefinition says besides its schema."""

    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    scalable: bool = False


AGE = Column("AGE", ".metadata.creationTimestamp", "date", "Time since the object was created.")
READY = Column(
    "READY",
    '.status.conditions[?(@.type=="Ready")].status',
    description="Whether what this object describes is up and serving.",
)
# NodeSet and Cluster have used the name READY for a count and for a flag since their first version.
HEALTHY = Column("HEALTHY", READY.path, description=READY.description)
REASON = Column(
    "REASON",
    '.status.conditions[?(@.type=="Ready")].reason',
    description="One word that says why the object is or is not ready; the condition's message says more.",
    priority=1,
)
