"""The claim for the state that slurmctld must not lose: a core/v1 PersistentVolumeClaimSpec, field for field.

Unlike pod specs this part has a schema, so nothing unknown can be stored in it and the struct holds it
completely: `claim_spec` gives back exactly what the user wrote.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from slurm_operator.api.limits import ENTRIES, MAX_ENTRIES, IntOrWord, Labels, Name, Word
from slurm_operator.api.markers import (
    ATOMIC_LIST,
    ATOMIC_MAP,
    DEFAULTED,
    REQUIRED,
    Immutable,
    max_properties,
    pattern,
)
from slurm_operator.kube.models.meta import Part

# 500m, 4Gi, 1e3, 0.5: what Kubernetes reads as an amount.
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
Quantity = Annotated[
    IntOrWord, pattern(rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$")
]


class TypedLocalObjectReference(Part, frozen=True):
    """Names an object of any kind in the same namespace."""

    MARKERS: ClassVar = (ATOMIC_MAP,)

    api_group: Name | None = None
    """The API group of the object; leave it out for the core group."""

    kind: Annotated[Name, REQUIRED] = ""
    """The kind of the object, such as `VolumeSnapshot`."""

    name: Annotated[Name, REQUIRED] = ""
    """The name of the object."""


class TypedObjectReference(Part, frozen=True):
    """Names an object of any kind, possibly in another namespace."""

    api_group: Name | None = None
    """The API group of the object; leave it out for the core group."""

    kind: Annotated[Name, REQUIRED] = ""
    """The kind of the object, such as `VolumeSnapshot`."""

    name: Annotated[Name, REQUIRED] = ""
    """The name of the object."""

    namespace: Name | None = None
    """The namespace of the object, if it is another one; needs a ReferenceGrant there."""


class VolumeResources(Part, frozen=True):
    """How much storage the volume must offer."""

    limits: Annotated[dict[str, Quantity], max_properties(MAX_ENTRIES)] = msgspec.field(default_factory=dict)
    """The most storage that the volume may have."""

    requests: Annotated[dict[str, Quantity], max_properties(MAX_ENTRIES)] = msgspec.field(
        default_factory=dict
    )
    """The storage that the volume must have at least, for example `storage: 4Gi`."""


class VolumeSelectorRequirement(Part, frozen=True):
    """One condition on one label."""

    key: Annotated[Name, REQUIRED] = ""
    """The label that the condition is about."""

    operator: Annotated[Name, REQUIRED] = ""
    """How label and values relate: `In`, `NotIn`, `Exists` or `DoesNotExist`."""

    values: Annotated[tuple[Name, ...], ATOMIC_LIST, ENTRIES] = ()
    """The values for `In` and `NotIn`; empty for the other two."""


class VolumeSelector(Part, frozen=True):
    """Chooses objects by their labels; all conditions must hold."""

    MARKERS: ClassVar = (ATOMIC_MAP,)

    match_expressions: Annotated[tuple[VolumeSelectorRequirement, ...], ATOMIC_LIST, ENTRIES] = ()
    """Conditions with an operator."""

    match_labels: Labels = msgspec.field(default_factory=dict)
    """Labels that must be present with exactly these values."""


class PersistentVolumeClaimSpec(Part, frozen=True):
    """What kind of volume to claim."""

    access_modes: Annotated[tuple[Name, ...], ATOMIC_LIST, ENTRIES] = ()
    """How the volume may be mounted. `ReadWriteOnce` is enough for one slurmctld; several need
    `ReadWriteMany`."""

    data_source: TypedLocalObjectReference | None = None
    """A VolumeSnapshot or another claim whose content the new volume starts with."""

    data_source_ref: TypedObjectReference | None = None
    """Like dataSource, but any kind of object that a volume populator understands, also from another
    namespace."""

    resources: VolumeResources = VolumeResources()
    """How much storage to ask for, for example:

      requests:
        storage: 4Gi
    """

    selector: VolumeSelector | None = None
    """Chooses among existing PersistentVolumes by their labels."""

    storage_class_name: Name | None = None
    """The StorageClass to ask. Left out, the cluster's default class; an empty string, no class at all."""

    volume_attributes_class_name: Name | None = None
    """The VolumeAttributesClass that sets what the storage driver lets you tune, such as its speed."""

    volume_mode: Word | None = None
    """`Filesystem`, which is also what you get when it is left out; slurmctld cannot use `Block`."""

    volume_name: Name = ""
    """The one PersistentVolume to bind to, by name."""


class Persistence(PersistentVolumeClaimSpec, frozen=True):
    """Where slurmctld keeps the state of jobs, nodes and reservations between restarts.

    With it switched off, the state lives in the pod: it survives a restart of the container, and is lost with
    all jobs when the pod is replaced, be it for a new image, a changed configuration or a drained node. For
    experiments only. Otherwise either name a claim that exists (`existingClaim`) or describe the one to
    make:

      persistence:
        storageClassName: fast
        accessModes: [ReadWriteOnce]
        resources:
          requests:
            storage: 4Gi
    """

    enabled: Annotated[bool, REQUIRED, DEFAULTED, Immutable("persistence_enabled")] = True
    """Whether the state survives the pod."""

    existing_claim: Annotated[
        Name, Immutable("claim_in_use", note="It cannot be changed while persistence is enabled.")
    ] = ""
    """The name of a PersistentVolumeClaim to use as it is; the other fields that describe a claim then
    do nothing. High availability needs one, with the access mode ReadWriteMany."""

    def claim_spec(self) -> dict[str, Any]:
        """Return the part that goes into a PersistentVolumeClaim."""
        spec: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))  # lists, not tuples
        spec.pop("enabled", None)
        spec.pop("existingClaim", None)
        return spec
