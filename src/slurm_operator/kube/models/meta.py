"""What Kubernetes objects have in common: identity, metadata, owners, conditions, selectors.

Objects are read models. A struct names only the fields this operator reads, unknown fields are skipped by the
decoder, and nothing decoded here is ever sent back whole: writes are creates, applies and patches of plain
dicts.

Equal values are stored once. Strings go through the interpreter's own intern table, which forgets a string
with its last user. Immutable structs and tuples of them have no such table, so there is a small one here: it
forgets everything when it is full, which costs a little sharing and never memory. All of this runs for every
event of a watch, so the loops stay in C.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from sys import intern
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
from msgspec.structs import force_setattr

V = TypeVar("V")

# Distinct container lists, affinities and so on of a large cluster; more than that do not repeat much.
_MOST = 4096

_shared: dict[Any, Any] = {}


def share(value: V) -> V:
    """Return an equal value that was seen before, or this one; it must be immutable and hashable."""
    if len(_shared) >= _MOST:
        _shared.clear()
    return _shared.setdefault(value, value)  # type: ignore[no-any-return]


def share_string(value: str) -> str:
    """Return the one copy of a string."""
    try:
        return intern(value)
    except TypeError:
        return value  # made by hand from an enumeration


def share_mapping(mapping: dict[str, str]) -> dict[str, str]:
    """Return an equal mapping whose keys and values are shared strings."""
    try:
        return dict(zip(map(intern, mapping), map(intern, mapping.values()), strict=True))
    except TypeError:
        return mapping  # as above


class Key(NamedTuple):
    """Names one object of a kind; cluster-scoped objects have an empty namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Resource(NamedTuple):
    """Where the API server serves a kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return `group/version`, or `version` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(parts)


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every struct inside an object: camelCase on the wire, immutable, defaults left out.

    What is decoded from JSON and never changed cannot come to refer to itself. So the garbage collector need
    not know of it: it would walk through all that the caches hold, again and again.
    """


class OwnerReference(Part, frozen=True):
    """One owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Part, frozen=True):
    """The metadata this operator reads."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    def __post_init__(self) -> None:
        if self.namespace:
            force_setattr(self, "namespace", share_string(self.namespace))
        if self.generate_name:
            force_setattr(self, "generate_name", share_string(self.generate_name))
        if self.labels:
            force_setattr(self, "labels", share_mapping(self.labels))
        if self.annotations:
            force_setattr(self, "annotations", share_mapping(self.annotations))
        if self.finalizers:
            force_setattr(self, "finalizers", share(self.finalizers))
        if self.owner_references:
            force_setattr(self, "owner_references", share(self.owner_references))


class Condition(Part, frozen=True):
    """One `metav1.Condition`; also reads the older shapes of Pod and Node conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "type", share_string(self.type))
        force_setattr(self, "status", share_string(self.status))
        if self.reason:
            force_setattr(self, "reason", share_string(self.reason))
        if self.message:
            force_setattr(self, "message", share_string(self.message))


class Object(Part, frozen=True):
    """Base of every kind. A subclass sets `RESOURCE` and adds the fields it reads."""

    RESOURCE: ClassVar[Resource]
    METADATA_ONLY: ClassVar[bool] = False  # the server is asked for the metadata alone

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> Key:
        """Return namespace and name."""
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def deleting(self) -> bool:
        """Return whether deletion has been requested."""
        return self.metadata.deletion_timestamp is not None

    @property
    def controller_owner(self) -> OwnerReference | None:
        """Return the owner that controls this object, if any."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)


T = TypeVar("T", bound=Object)


IntOrString = int | str


class LabelSelectorRequirement(Part, frozen=True):
    """One expression of a selector, over labels or fields."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Part, frozen=True):
    """Selects objects by label."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class ObjectReference(Part, frozen=True):
    """Points at an object of any kind."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


def find_condition(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    """Return the condition of a type, if there is one."""
    return next((condition for condition in conditions or () if condition.type == kind), None)
