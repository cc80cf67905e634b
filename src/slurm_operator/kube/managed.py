"""Objects together with the owners of their fields, which caches do not keep."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from slurm_operator.kube.managedfields import FieldsEntry  # noqa: TC001 - msgspec reads the annotation
from slurm_operator.kube.meta import Object, ObjectMeta, T


class _ManagedMeta(ObjectMeta, frozen=True):
    managed_fields: tuple[FieldsEntry, ...] = ()


@cache
def with_managers(kind: type[T]) -> type[T]:
    """Return the kind with the field owners in its metadata."""
    made: type[Any] = msgspec.defstruct(
        kind.__name__,
        [("metadata", _ManagedMeta, msgspec.field(default_factory=_ManagedMeta))],
        bases=(kind,),
        frozen=True,
        kw_only=True,
        rename="camel",
        module=kind.__module__,
    )
    return made


def without_managers(kind: type[T], found: T) -> T:
    """Return the object as the cache would hold it."""
    fields = {name: getattr(found, name) for name in kind.__struct_fields__}
    metadata = found.metadata
    plain = ObjectMeta(**{name: getattr(metadata, name) for name in ObjectMeta.__struct_fields__})
    return kind(**{**fields, "metadata": plain})


def managed_fields(found: Object) -> tuple[FieldsEntry, ...]:
    """Return who owns which field of an object that was read `with_managers`."""
    metadata: Any = found.metadata
    fields: tuple[FieldsEntry, ...] = metadata.managed_fields
    return fields
