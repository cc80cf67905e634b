"""The kinds of objects that we have models for: what tests about every model share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.kube.models.kinds import (
    ConfigMap,
    ControllerRevision,
    CustomResourceDefinition,
    Deployment,
    Event,
    Lease,
    Namespace,
    Node,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Secret,
    Service,
    StatefulSet,
)

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object

STORED_KINDS: tuple[type[Object], ...] = (
    ConfigMap,
    ControllerRevision,
    CustomResourceDefinition,
    Deployment,
    Event,
    Lease,
    Namespace,
    Node,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Secret,
    Service,
    StatefulSet,
)
