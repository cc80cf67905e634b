"""Read models of the kinds beyond the core group: workloads, budgets, revisions, leases, events, definitions.

They follow the rules of `kinds`, which also exports them; import them from there.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Any, ClassVar

import msgspec

from slurm_operator.kube.models.meta import (
    Condition,
    IntOrString,
    LabelSelector,
    Object,
    ObjectReference,
    Part,
    Resource,
)


class WorkloadSpec(Part, frozen=True):
    """What a StatefulSet or Deployment should be."""

    replicas: int | None = None
    service_name: str = ""
    selector: LabelSelector | None = None
    min_ready_seconds: int = 0


class WorkloadStatus(Part, frozen=True):
    """What a StatefulSet or Deployment is."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    conditions: tuple[Condition, ...] = ()


class StatefulSet(Object, frozen=True):
    """A StatefulSet."""

    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "statefulsets", "StatefulSet")

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class Deployment(Object, frozen=True):
    """A Deployment."""

    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "deployments", "Deployment")

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class ScaleSpec(Part, frozen=True):
    """The wanted replicas."""

    replicas: int = 0


class ScaleStatus(Part, frozen=True):
    """The observed replicas and the selector that finds them."""

    replicas: int = 0
    selector: str = ""


class Scale(Object, frozen=True):
    """The scale subresource of anything that has one."""

    RESOURCE: ClassVar[Resource] = Resource("autoscaling", "v1", "scale", "Scale")

    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)


class BudgetSpec(Part, frozen=True):
    """How many Pods may be missing."""

    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None


class BudgetStatus(Part, frozen=True):
    """How many Pods may be evicted now."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class PodDisruptionBudget(Object, frozen=True):
    """A PodDisruptionBudget."""

    RESOURCE: ClassVar[Resource] = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")

    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)


class ControllerRevision(Object, frozen=True):
    """One version of the template of a set."""

    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")

    revision: int = 0
    data: Any = None


class LeaseSpec(Part, frozen=True):
    """Who holds a lease, since when and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    """A Lease."""

    RESOURCE: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "leases", "Lease")

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class EventSeries(Part, frozen=True):
    """How often an event has repeated."""

    count: int = 0
    last_observed_time: datetime | None = None


class Event(Object, frozen=True):
    """An event, in the shape of events.k8s.io."""

    RESOURCE: ClassVar[Resource] = Resource("events.k8s.io", "v1", "events", "Event")

    event_time: datetime | None = None
    series: EventSeries | None = None
    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    regarding: ObjectReference = msgspec.field(default_factory=ObjectReference)
    related: ObjectReference | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""


class DefinitionNames(Part, frozen=True):
    """What the kind of a definition is called."""

    kind: str = ""
    plural: str = ""
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()


class DefinitionVersion(Part, frozen=True):
    """One version of a definition."""

    name: str = ""
    served: bool = False
    storage: bool = False


class DefinitionSpec(Part, frozen=True):
    """What a definition defines."""

    group: str = ""
    scope: str = ""
    names: DefinitionNames = msgspec.field(default_factory=DefinitionNames)
    versions: tuple[DefinitionVersion, ...] = ()


class DefinitionStatus(Part, frozen=True):
    """Whether the server serves it."""

    conditions: tuple[Condition, ...] | None = None  # null until the server has looked at it
    stored_versions: tuple[str, ...] | None = None


class CustomResourceDefinition(Object, frozen=True):
    """A CustomResourceDefinition without its schemas."""

    RESOURCE: ClassVar[Resource] = Resource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
    )

    spec: DefinitionSpec = msgspec.field(default_factory=DefinitionSpec)
    status: DefinitionStatus = msgspec.field(default_factory=DefinitionStatus)

    @property
    def established(self) -> bool:
        """Return whether objects of the kind can be written."""
        return any(c.type == "Established" and c.status == "True" for c in self.status.conditions or ())
