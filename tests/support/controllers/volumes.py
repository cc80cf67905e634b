"""Volumes and claims, made by hand: no provisioner runs in the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from slurm_operator.controllers.workload.decide.read_models import StorageClass, VolumeClaim
from slurm_operator.kube.models.meta import Object, Resource

if TYPE_CHECKING:
    from tests.support.controllers.workload_namespace import Stage


class PersistentVolume(Object, frozen=True):
    RESOURCE: ClassVar[Resource] = Resource(
        "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False
    )


async def shared_claim(stage: Stage, name: str, mode: str) -> None:
    """Create a claim, and a volume for it alone."""
    spec = {
        "accessModes": [mode],
        "storageClassName": "",
        "volumeName": f"{stage.namespace}-{name}",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    await volume(stage, name, mode=mode)
    await stage.client.create(
        VolumeClaim, {"metadata": {"name": name, "namespace": stage.namespace}, "spec": spec}
    )


async def volume(stage: Stage, claim: str, *, mode: str = "ReadWriteOnce", class_name: str = "") -> None:
    """Create a volume that only one claim may have."""
    body = {
        "metadata": {"name": f"{stage.namespace}-{claim}"},
        "spec": {
            "accessModes": [mode],
            "capacity": {"storage": "100Gi"},
            "storageClassName": class_name,
            "claimRef": {"namespace": stage.namespace, "name": claim},
            "hostPath": {"path": "/var/empty"},
        },
    }
    await stage.client.create(PersistentVolume, body)


async def storage_class(stage: Stage, *, grows: bool) -> str:
    """Create a storage class of the test's own; return its name."""
    name = f"{stage.namespace}-{'grows' if grows else 'fixed'}"
    body = {
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "allowVolumeExpansion": grows,
    }
    await stage.client.create(StorageClass, body)
    return name
