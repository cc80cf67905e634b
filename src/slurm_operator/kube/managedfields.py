"""Who owns which field of an object, as `metadata.managedFields` records it.

An entry is a field manager, the way it wrote (`Apply` or `Update`), the subresource, and a set of fields as
a tree of maps: `{"f:spec": {"f:replicas": {}}}`. An apply removes a field when the applier owned it and
nobody else does. So to let this operator clean up what another program wrote with updates, the other's
entries are merged into this operator's `Apply` entry. Entries of subresources stay: status belongs to
whoever writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

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
    manager: str,
    *,
    owners: Collection[str],
) -> list[FieldsEntry] | None:
    """Merge the predecessors' updates into the manager's apply; return None where there is nothing to do.

    A predecessor's entry counts only if it set the reference to one of the owners (UIDs), if there are any.
    """
    old = [
        entry
        for entry in entries
        if entry.operation == "Update"
        and entry.manager in predecessors
        and not entry.subresource
        and (not owners or _set_owner(entry, owners))
    ]
    ours = next(
        (
            entry
            for entry in entries
            if entry.operation == "Apply" and entry.manager == manager and not entry.subresource
        ),
        None,
    )
    if not old or ours is None:
        return None
    fields = ours.fields_v1
    for entry in old:
        fields = union(fields, entry.fields_v1)
    merged = msgspec.structs.replace(ours, fields_v1=fields)
    return [merged if entry is ours else entry for entry in entries if entry not in old]


def _set_owner(entry: FieldsEntry, owners: Collection[str]) -> bool:
    references = entry.fields_v1.get("f:metadata", {}).get("f:ownerReferences", {})
    return any(f'k:{{"uid":"{uid}"}}' in references for uid in owners)


def union(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Return the set of fields that either tree holds."""
    result = dict(left)
    for key, below in right.items():
        result[key] = union(result[key], below) if key in result else below
    return result
