"""What every Kubernetes object has: identity, metadata, owners, conditions.

Objects are read models. A struct names only the fields this operator reads, unknown fields are skipped by the
decoder, and nothing decoded here is ever sent back whole: writes are creates, applies and patches of plain
dicts.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import ClassVar, NamedTuple, TypeVar

import msgspec
from msgspec.structs import force_setattr

from slurm_operator.kube.sharing import share, share_mapping, share_string


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
        """Tell whether deletion has been requested."""
        return self.metadata.deletion_timestamp is not None

    @property
    def controller_owner(self) -> OwnerReference | None:
        """Return the owner that controls this object, if any."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)


T = TypeVar("T", bound=Object)
