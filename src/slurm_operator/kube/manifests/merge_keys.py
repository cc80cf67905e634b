"""Which lists of the Kubernetes API are merged element by element, and by which key.

A strategic merge needs to know three things about a field: whether its list is merged or replaced, the key
that identifies an element, and the type of what lies below. Kubernetes publishes them as
`x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key` in its OpenAPI document; the facts below
are those of version 1.36. A field that is not listed has no strategy of its own and none below it: its maps
are merged, its lists replaced. That is why the table is this short, and why a field newer than the table
still merges as a plain field would.

An integration test compares the table with the OpenAPI document of the API server under test.
"""

from __future__ import annotations

from typing import NamedTuple


class MergeField(NamedTuple):
    """How a field is merged: strategies joined by commas, key of its list, type of value or elements."""

    strategy: str = ""
    key: str = ""
    type: str = ""

    @property
    def merged(self) -> bool:
        """Return whether the elements of this list are merged rather than replaced as a whole."""
        return "merge" in self.strategy.split(",")

    @property
    def replaced(self) -> bool:
        """Return whether a map in this field is replaced although maps are merged otherwise."""
        return "replace" in self.strategy.split(",")


def _by(key: str, type_: str = "") -> MergeField:
    return MergeField("merge", key, type_)


def _of(type_: str) -> MergeField:
    return MergeField("", "", type_)


_CONTAINER = {
    "env": _by("name"),
    "ports": _by("containerPort"),
    "volumeDevices": _by("devicePath"),
    "volumeMounts": _by("mountPath"),
}
_META = {"metadata": _of("ObjectMeta")}
_CONDITIONS = {"conditions": _by("type")}


def _kind(name: str) -> dict[str, MergeField]:
    return {**_META, "spec": _of(f"{name}Spec"), "status": _of(f"{name}Status")}


TYPES: dict[str, dict[str, MergeField]] = {
    # Kinds, by the name of their Go type.
    "ConfigMap": _META,
    "ControllerRevision": _META,
    "DaemonSet": _kind("DaemonSet"),
    "Deployment": _kind("Deployment"),
    "Event": _META,
    "Lease": _META,
    "Namespace": {**_META, "status": _of("NamespaceStatus")},
    "Node": _kind("Node"),
    "PersistentVolumeClaim": {**_META, "status": _of("PersistentVolumeClaimStatus")},
    "Pod": _kind("Pod"),
    "PodDisruptionBudget": _kind("PodDisruptionBudget"),
    "ReplicaSet": _kind("ReplicaSet"),
    "Secret": _META,
    "Service": _kind("Service"),
    "ServiceAccount": {**_META, "secrets": _by("name")},
    "StatefulSet": _kind("StatefulSet"),
    # What is inside them.
    "Container": _CONTAINER,
    "ContainerStatus": {"allocatedResourcesStatus": _by("name"), "volumeMounts": _by("mountPath")},
    "DaemonSetSpec": {"template": _of("PodTemplateSpec")},
    "DaemonSetStatus": _CONDITIONS,
    "DeploymentSpec": {"strategy": MergeField("retainKeys"), "template": _of("PodTemplateSpec")},
    "DeploymentStatus": _CONDITIONS,
    "EphemeralContainer": _CONTAINER,
    "EphemeralVolumeSource": {"volumeClaimTemplate": _of("PersistentVolumeClaimTemplate")},
    "NamespaceStatus": _CONDITIONS,
    "NodeSpec": {"podCIDRs": MergeField("merge")},
    "NodeStatus": {"addresses": _by("type"), **_CONDITIONS},
    "ObjectMeta": {"finalizers": MergeField("merge"), "ownerReferences": _by("uid")},
    "PersistentVolumeClaimStatus": _CONDITIONS,
    "PersistentVolumeClaimTemplate": _META,
    "PodDisruptionBudgetSpec": {"selector": MergeField("replace")},
    "PodDisruptionBudgetStatus": _CONDITIONS,
    "PodSpec": {
        "containers": _by("name", "Container"),
        "ephemeralContainers": _by("name", "EphemeralContainer"),
        "hostAliases": _by("ip"),
        "imagePullSecrets": _by("name"),
        "initContainers": _by("name", "Container"),
        "resourceClaims": MergeField("merge,retainKeys", "name"),
        "schedulingGates": _by("name"),
        "topologySpreadConstraints": _by("topologyKey"),
        "volumes": MergeField("merge,retainKeys", "name", "Volume"),
    },
    "PodStatus": {
        **_CONDITIONS,
        "containerStatuses": _of("ContainerStatus"),
        "ephemeralContainerStatuses": _of("ContainerStatus"),
        "hostIPs": _by("ip"),
        "initContainerStatuses": _of("ContainerStatus"),
        "podIPs": _by("ip"),
        "resourceClaimStatuses": MergeField("merge,retainKeys", "name"),
    },
    "PodTemplateSpec": {**_META, "spec": _of("PodSpec")},
    "ReplicaSetSpec": {"template": _of("PodTemplateSpec")},
    "ReplicaSetStatus": _CONDITIONS,
    "ServiceSpec": {"ports": _by("port")},
    "ServiceStatus": _CONDITIONS,
    "StatefulSetSpec": {
        "template": _of("PodTemplateSpec"),
        "volumeClaimTemplates": _of("PersistentVolumeClaim"),
    },
    "StatefulSetStatus": _CONDITIONS,
    "Volume": {"ephemeral": _of("EphemeralVolumeSource")},
}

PLAIN: dict[str, MergeField] = {}
