"""Read models of workloads and claims with the few fields more that these controllers look at."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from slurm_operator.kube.models import kinds
from slurm_operator.kube.models.meta import Condition, Object, Part, Resource
from slurm_operator.kube.models.workloads import WorkloadSpec


class DaemonSpec(WorkloadSpec, frozen=True):
    """What a workload should be, with what decides about a restart or a new volume."""

    template: dict[str, Any] = msgspec.field(default_factory=dict)
    """As it runs: there are only a few workloads, and all of it decides about a restart."""
    volume_claim_templates: tuple[dict[str, Any], ...] = ()
    pod_management_policy: str = ""

    @property
    def template_annotations(self) -> dict[str, str]:
        """Return the annotations of the pods: where the hashes are."""
        found: dict[str, str] = self.template.get("metadata", {}).get("annotations") or {}
        return found


class StatefulSetDetails(kinds.StatefulSet, frozen=True):
    """A StatefulSet."""

    spec: DaemonSpec = msgspec.field(default_factory=DaemonSpec)


class DeploymentDetails(kinds.Deployment, frozen=True):
    """A Deployment."""

    spec: DaemonSpec = msgspec.field(default_factory=DaemonSpec)


Workload = StatefulSetDetails | DeploymentDetails


class MonitorObject(Object, frozen=True):
    """A ServiceMonitor of the Prometheus operator."""

    RESOURCE: ClassVar[Resource] = Resource(
        "monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"
    )


class ClaimResources(Part, frozen=True):
    """How much a claim asks for."""

    requests: dict[str, str] = msgspec.field(default_factory=dict)


class VolumeClaimSpec(Part, frozen=True):
    """What a claim asks for."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    resources: ClaimResources = ClaimResources()


class VolumeClaimStatus(Part, frozen=True):
    """What a claim got."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class VolumeClaim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    RESOURCE: ClassVar[Resource] = kinds.PersistentVolumeClaim.RESOURCE

    spec: VolumeClaimSpec = msgspec.field(default_factory=VolumeClaimSpec)
    status: VolumeClaimStatus = msgspec.field(default_factory=VolumeClaimStatus)

    @property
    def requested(self) -> str:
        """Return how much space is asked for."""
        return self.spec.resources.requests.get("storage", "0")


class StorageClass(Object, frozen=True):
    """A StorageClass."""

    RESOURCE: ClassVar[Resource] = Resource(
        "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
    )

    allow_volume_expansion: bool = False
