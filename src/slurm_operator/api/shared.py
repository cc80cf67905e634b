"""Structs that several kinds have in common.

Every reference is to an object in the namespace of the object that holds it. Parts that Kubernetes itself
defines and validates later (a PodSpec, a Container, a ServiceSpec) stay open dicts here: they are merged
and passed on, never read field by field, and must not lose a field that this operator is too old to know.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.limits import Address, Annotations, Labels, Name, Port  # noqa: TC001 - msgspec resolves annotations at run time
from slurm_operator.api.markers import (
    ATOMIC_MAP,
    DEFAULTED,
    NULLABLE,
    REQUIRED,
    Definition,
    Int64,
    Rule,
    max_length,
    min_length,
    minimum,
    one_of,
    pattern,
)
from slurm_operator.kube.models import meta
from slurm_operator.kube.models.meta import Object, Part

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kind(Object, frozen=True):
    """Base of the kinds of this API: what they all have besides `metadata`, `spec` and `status`."""

    CRD: ClassVar[Definition]


Container: TypeAlias = dict[str, Any]
"""A core/v1 Container, open."""

PodSpec: TypeAlias = dict[str, Any]
"""A core/v1 PodSpec, open."""


class ConditionStatus(StrEnum):
    """What a condition says; `Unknown` is never to be read as either of the others."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(meta.Condition, frozen=True):
    """One observation about the object, in a form for users and tools alike."""

    type: Annotated[
        str,
        REQUIRED,
        max_length(316),
        pattern(
            r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        ),
    ]
    """What is being observed, such as `Ready`. There is one condition of each type."""

    status: Annotated[str, REQUIRED, one_of(ConditionStatus)]
    """Whether it holds: `True`, `False`, or `Unknown` when it could not be found out."""

    reason: Annotated[
        str,
        REQUIRED,
        min_length(1),
        max_length(1024),
        pattern(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ] = ""
    """One CamelCase word for the cause of the present status, stable enough to alert on."""

    message: Annotated[str, REQUIRED, max_length(32768)] = ""
    """A sentence for users: what was found, and what to do about it where something can be done."""

    last_transition_time: Annotated[datetime | None, REQUIRED] = None
    """When the status last changed from one value to another."""

    observed_generation: Annotated[Int64 | None, minimum(0)] = None
    """The `metadata.generation` this was found for. Older than the object's own: not looked at again
    since the last edit."""


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of one type, if it has been observed."""
    return next((condition for condition in conditions if condition.type == kind), None)


class LocalObjectReference(Part, frozen=True):
    """Names another object in the same namespace."""

    MARKERS: ClassVar = (ATOMIC_MAP,)

    name: Annotated[Name, DEFAULTED] = ""
    """The name of the object, in the namespace of the one that refers to it."""


class SecretKeySelector(Part, frozen=True):
    """Names one key of a Secret in the same namespace."""

    MARKERS: ClassVar = (ATOMIC_MAP,)

    name: Annotated[Name, DEFAULTED] = ""
    """The name of the Secret, in the same namespace."""

    key: Annotated[Name, REQUIRED] = ""
    """The key inside the Secret's `data`."""

    optional: bool | None = None
    """Whether pods may start although the Secret or the key does not exist."""


class ConfigMapKeySelector(Part, frozen=True):
    """Names one key of a ConfigMap in the same namespace."""

    MARKERS: ClassVar = (ATOMIC_MAP,)

    name: Annotated[Name, DEFAULTED] = ""
    """The name of the ConfigMap, in the same namespace."""

    key: Annotated[Name, REQUIRED] = ""
    """The key inside the ConfigMap's `data`."""

    optional: bool | None = None
    """Whether pods may start although the ConfigMap or the key does not exist."""


class Metadata(Part, frozen=True):
    """Labels and annotations to add. The operator's own labels win where both set the same key."""

    labels: Annotated[Labels | None, NULLABLE] = None
    """Labels to add to the object, by their keys."""

    annotations: Annotated[Annotations | None, NULLABLE] = None
    """Annotations to add to the object, by their keys."""


class PodTemplate(Part, frozen=True):
    """What to add to the pods, or to change in them.

    The operator builds a complete pod and merges this into it the way `kubectl patch` merges a strategic
    patch: maps are merged, volumes by name, and what you set wins. Containers listed here run in addition
    to the operator's own; to change the operator's container itself, use the field that is named after it.
    """

    metadata: Metadata = Metadata()
    """Labels and annotations for the pods. The operator's own labels win where both set the same key."""

    spec: PodSpec = msgspec.field(default_factory=dict)
    """A Kubernetes PodSpec; see `kubectl explain pod.spec`. Set only what should differ, for example:

      nodeSelector:
        node.kubernetes.io/instance-type: gpu-large
      tolerations:
      - key: nvidia.com/gpu
        operator: Exists
      priorityClassName: slurm-critical

    Its content is not validated when the object is stored; a mistake shows when the pods are made, in an
    event and in the Ready condition."""


class ServiceSpec(Part, frozen=True):
    """How the Service in front of the daemon looks to its clients."""

    metadata: Metadata = Metadata()
    """Labels and annotations for the Service, for example those that tell a cloud's load balancer what
    to do."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    """A Kubernetes ServiceSpec; see `kubectl explain service.spec`. Typically only the type:

      type: LoadBalancer

    Ports listed here are added to the daemon's own. To a selector given here the operator adds its own
    labels, which win, so that it can only narrow down which of the daemon's pods are reached. `externalIPs`
    is always dropped: it would let anyone who may edit this object capture the traffic of others."""

    port: Port = 0
    """The port that clients connect to. The daemon's usual port when unset."""

    node_port: Port = 0
    """The port on every node, for Services of type NodePort or LoadBalancer. Kubernetes picks one when
    unset."""


class ExternalConfig(Part, frozen=True):
    """Where a daemon that is run elsewhere can be reached."""

    host: Annotated[Address, REQUIRED] = ""
    """The DNS name or address of the daemon, as seen from the pods of this cluster."""

    port: Annotated[Port, REQUIRED] = 0
    """The TCP port the daemon listens on."""


def selector(instance: str, app: str) -> str:
    """Return the label selector of a workload's pods, in the text form that autoscalers read."""
    return f"{wellknown.LABEL_APP_INSTANCE}={instance},{wellknown.LABEL_APP_NAME}={app}"


def jwt_key(
    current: SecretKeySelector | None, deprecated: SecretKeySelector | None
) -> SecretKeySelector | None:
    """Resolve the two spellings of the JWT key; the newer one wins."""
    return current if current is not None else deprecated


# The three rules for a daemon that runs either here or somewhere else.
IN_CLUSTER_RULES = (
    Rule(
        "self.external || has(self.slurmKeyRef)",
        "slurmKeyRef is required unless external is true: name the Secret and key that hold slurm.key",
        field="slurmKeyRef",
    ),
    Rule(
        "self.external || has(self.jwtKeyRef) || has(self.jwtHs256KeyRef)",
        "jwtKeyRef is required unless external is true: name the Secret and key that sign Slurm's JSON web "
        "tokens (jwtHs256KeyRef is accepted as its older name)",
        field="jwtKeyRef",
    ),
    Rule(
        "!self.external || has(self.externalConfig)",
        "externalConfig is required when external is true: say at which host and port the daemon listens",
        field="externalConfig",
    ),
)
