"""Finds what an update of an object may not change.

The markers stand beside the fields; this walks one object and collects the values they speak of, in the
form in which only their meaning counts: `1Gi` and `1024Mi` are equal, as are an empty list and none.
Comparing the collections of an old and a new object is all that an admission webhook has to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import msgspec

from slurm_operator.api.markers import Immutable
from slurm_operator.kube.manifests.semantics import canonical
from slurm_operator.kube.models.meta import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_operator.api.shared import Kind

# Fields of a claim in which Go takes an empty string for an absent one.
_ZERO_FIELDS = frozenset({"volumeName"})


def immutable_values(item: Kind) -> dict[str, Any]:
    """Return the values of an object that must stay as they are, by the path of their field."""
    values: dict[str, Any] = {}
    seen: set[str] = set()
    for path, marker, own in _marked(item.spec, "spec"):  # type: ignore[attr-defined] # every kind of ours has one
        if marker.value in seen:
            continue  # the second spelling of the same value
        if marker.value:
            seen.add(marker.value)
        values[path] = getattr(item, marker.value) if marker.value else _meaning(own)
    return values


def _meaning(own: Any) -> Any:
    """Return a field's value in canonical form: None for everything that says the same as an absent field."""
    return canonical({"own": own}, zero_fields=_ZERO_FIELDS).get("own")


def _marked(part: Part, path: str) -> Iterator[tuple[str, Immutable, Any]]:
    for field in msgspec.structs.fields(part):
        own, below = getattr(part, field.name), f"{path}.{field.encode_name}"
        if get_origin(field.type) is Annotated:
            for marker in get_args(field.type)[1:]:
                if isinstance(marker, Immutable):
                    yield below, marker, own
        if isinstance(own, Part):
            yield from _marked(own, below)
