"""Who owns which field of an object, as `metadata.managedFields` records it.

An entry is a field manager, the way it wrote (`Apply` or `Update`), the subresource, and a set of fields as
a tree of maps: `{"f:spec": {"f:replicas": {}}}`. An apply removes a field only if the applier owned it and no
other manager does, so fields that another program wrote with updates would stay forever. To clean up after
such a predecessor its entries are renamed: they become the `Apply` entry of a caretaker, a second name of
this operator. When the caretaker then applies nothing, all fields that it alone owned are removed.

The caretaker is not the operator's own name, because the cleaning may be impossible (the predecessor set a
field that is immutable). Then the caretaker keeps its fields, and the operator's own applies work as before.

Many programs are called `manager`. An entry is taken only from the one that set the reference to an owner,
because that one created the object. Entries of subresources stay: the status belongs to the manager that
writes it.

Caches do not keep these entries; `with_managers` is a model that reads them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from slurm_operator.kube.models.meta import Object, ObjectMeta, T

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class FieldsEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One entry of `metadata.managedFields`."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str | None = None
    fields_type: str = ""
    fields_v1: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")
    subresource: str = ""


def hand_over(
    entries: Sequence[FieldsEntry],
    predecessors: Collection[str],
    caretaker: str,
    *,
    owners: Collection[str],
) -> list[FieldsEntry] | None:
    """Turn the updates of the predecessors into an apply of the caretaker; return None if there are none.

    A predecessor is who has one of the names and set the reference to one of the owners (UIDs).
    """
    old = [
        entry
        for entry in entries
        if entry.operation == "Update"
        and entry.manager in predecessors
        and not entry.subresource
        and _set_owner(entry, owners)
    ]
    if not old:
        return None
    # From a migration that ended half-way.
    old += [entry for entry in entries if _applied_by(entry, caretaker)]
    fields: dict[str, Any] = {}
    for entry in old:
        fields = union(fields, entry.fields_v1)
    merged = msgspec.structs.replace(old[0], manager=caretaker, operation="Apply", fields_v1=fields)
    return [merged, *(entry for entry in entries if entry not in old)]


def claim(
    entries: Sequence[FieldsEntry], paths: Collection[Sequence[str]], caretaker: str
) -> list[FieldsEntry] | None:
    """Move fields from all entries but those of subresources to the caretaker; None if there are none."""
    claimed: dict[str, Any] = {}
    rest: list[FieldsEntry] = []
    for entry in entries:
        fields = entry.fields_v1
        for path in paths:
            names = [f"f:{name}" for name in path]
            if not entry.subresource and _holds(fields, names):
                fields = _without(fields, names)
                claimed = union(claimed, _tree(names))
        rest.append(msgspec.structs.replace(entry, fields_v1=fields))
    if not claimed:
        return None
    before = [entry for entry in rest if _applied_by(entry, caretaker)]
    for entry in before:
        claimed = union(claimed, entry.fields_v1)
    others = [entry for entry in rest if entry not in before]
    merged = msgspec.structs.replace(
        others[0] if others else before[0],
        manager=caretaker,
        operation="Apply",
        subresource="",
        fields_v1=claimed,
    )
    return [merged, *(entry for entry in others if entry.fields_v1)]


def has_applied(entries: Sequence[FieldsEntry], manager: str) -> bool:
    """Return whether a manager owns fields by an apply."""
    return any(_applied_by(entry, manager) for entry in entries)


def _applied_by(entry: FieldsEntry, manager: str) -> bool:
    return entry.operation == "Apply" and entry.manager == manager and not entry.subresource


def _set_owner(entry: FieldsEntry, owners: Collection[str]) -> bool:
    references = entry.fields_v1.get("f:metadata", {}).get("f:ownerReferences", {})
    return any(f'k:{{"uid":"{uid}"}}' in references for uid in owners)


def _holds(fields: dict[str, Any], names: Sequence[str]) -> bool:
    return not names or (names[0] in fields and _holds(fields[names[0]], names[1:]))


def _without(fields: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the set of fields without one, and without the fields above it that held nothing else."""
    below = _without(fields[names[0]], names[1:]) if len(names) > 1 else {}
    return {
        name: below if name == names[0] else value
        for name, value in fields.items()
        if name != names[0] or below
    }


def _tree(names: Sequence[str]) -> dict[str, Any]:
    return {names[0]: _tree(names[1:])} if names else {}


def union(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Return the set of fields that either tree holds."""
    result = dict(left)
    for key, below in right.items():
        result[key] = union(result[key], below) if key in result else below
    return result


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
