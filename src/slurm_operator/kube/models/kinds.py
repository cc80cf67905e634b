"""The built-in kinds this operator reads, with the fields it reads and no others.

Every field has a default: an absent field is normal, an unknown one is skipped, and only a wrong type is an
error. Enumerations that the server owns stay plain strings, so that a new Kubernetes value is a value and not
a failure.

A cache of ten thousand Pods holds the same few hundred strings ten thousand times unless they are shared.
The structs that are cached in large numbers therefore share repeated values when decoded (`meta`): label
values, node names, images, reasons, and whole immutable parts such as container lists that every Pod of a set
has in common.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import msgspec

from slurm_operator.kube.models.meta import (
    Condition,
    IntOrString,
    LabelSelector,
    Object,
    ObjectReference,
    Part,
    Resource,
    find_condition,
)
from slurm_operator.kube.models.pod import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    Toleration,
)
from slurm_operator.kube.models.workloads import (
    ControllerRevision,
    CustomResourceDefinition,
    Deployment,
    Event,
    EventSeries,
    Lease,
    LeaseSpec,
    PodDisruptionBudget,
    Scale,
    StatefulSet,
)

__all__ = [
    "Condition",
    "ConfigMap",
    "Container",
    "ContainerState",
    "ContainerStatus",
    "ControllerRevision",
    "CustomResourceDefinition",
    "Deployment",
    "Event",
    "EventSeries",
    "LabelSelector",
    "Lease",
    "LeaseSpec",
    "Namespace",
    "Node",
    "ObjectReference",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PodSpec",
    "PodStatus",
    "Scale",
    "Secret",
    "Service",
    "StatefulSet",
    "Taint",
    "Toleration",
    "find_condition",
    "metadata_only",
]

# ------------------------------------------------------------------------------------------------------- Node


class Taint(Part, frozen=True):
    """What keeps Pods away from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Part, frozen=True):
    """What a node should be."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(Part, frozen=True):
    """One address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(Part, frozen=True):
    """What a node is."""

    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class Node(Object, frozen=True):
    """A Node."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "nodes", "Node", namespaced=False)

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type."""
        return find_condition(self.status.conditions, kind)

    @property
    def ready(self) -> bool:
        """Return whether the kubelet reports the node ready."""
        condition = self.condition("Ready")
        return condition is not None and condition.status == "True"


# ---------------------------------------------------------------------------------------- Service and storage


class ServicePort(Part, frozen=True):
    """One port of a Service."""

    name: str = ""
    protocol: str = ""
    port: int = 0
    target_port: IntOrString | None = None
    node_port: int = 0


class ServiceSpec(Part, frozen=True):
    """What a Service should be."""

    type: str = ""
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] = ()
    publish_not_ready_addresses: bool = False


class LoadBalancerIngress(Part, frozen=True):
    """Where a load balancer listens."""

    ip: str = ""
    hostname: str = ""


class LoadBalancerStatus(Part, frozen=True):
    """The load balancer's addresses."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(Part, frozen=True):
    """What a Service is."""

    load_balancer: LoadBalancerStatus | None = None


class Service(Object, frozen=True):
    """A Service."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "services", "Service")

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


class Secret(Object, frozen=True):
    """A Secret; its values are decoded from base64 and never printed."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "secrets", "Secret")

    type: str = ""
    data: dict[str, bytes] | None = None
    immutable: bool = False

    def __repr__(self) -> str:
        return f"Secret({self.key}, keys={sorted(self.data or ())})"


class ConfigMap(Object, frozen=True):
    """A ConfigMap."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "configmaps", "ConfigMap")

    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None
    immutable: bool = False


class NamespaceStatus(Part, frozen=True):
    """What a Namespace is."""

    phase: str = ""


class Namespace(Object, frozen=True):
    """A Namespace."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class ClaimSpec(Part, frozen=True):
    """What a claim asks for."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""


class ClaimStatus(Part, frozen=True):
    """What a claim got."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()


class PersistentVolumeClaim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


@functools.cache
def metadata_only(kind: type[Object]) -> type[Object]:
    """Return a read model of a kind that fetches and keeps only its metadata."""
    model = msgspec.defstruct(
        f"{kind.__name__}Metadata",
        [],
        bases=(Object,),
        namespace={"RESOURCE": kind.RESOURCE, "METADATA_ONLY": True},
        frozen=True,
    )
    assert issubclass(model, Object)  # noqa: S101 - narrows the type: the base was given above
    return model
