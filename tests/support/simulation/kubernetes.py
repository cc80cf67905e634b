"""Kubernetes as the operator meets it: pods that change, a kubelet, a scheduler, a cache that lags."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import NodeSet
from slurm_operator.kube.models.kinds import (
    ContainerState,
    ContainerStatus,
    Node,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    PodStatus,
)
from slurm_operator.kube.models.meta import Condition, LabelSelectorRequirement, ObjectMeta, OwnerReference
from slurm_operator.kube.models.pod import (
    Affinity,
    ClaimVolume,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    StateRunning,
    StateTerminated,
    Toleration,
    Volume,
)
from slurm_operator.objects.node_fit import Fit

SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE, NAME, UID = "slurm", "gpu", "nodeset-uid"
# The Kubernetes nodes that workers of a history belong on.
LABELS = {"pool": "gpu"}
FIT = Fit(node_name="", selector=(("pool", "gpu"),), terms=None, tolerations=())


def moment(now: float) -> datetime:
    return EPOCH + timedelta(seconds=now)


def make_nodeset(
    *,
    generation: int = 1,
    deleting: bool = False,
    finalizers: Any = (),
    annotations: Any = (),
    status: Any = (),
    **spec: Any,
) -> NodeSet:
    """Return a NodeSet with these fields of its spec, by their names on the wire."""
    body: dict[str, Any] = {
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "generation": generation,
            "finalizers": list(finalizers),
            "annotations": dict(annotations),
        },
        "spec": {"controllerRef": {"name": "slurm"}, **spec},
        "status": dict(status),
    }
    if deleting:
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert(body, NodeSet)


def make_node(name: str, *, cordoned: bool = False, taint: str = "", **fields: Any) -> Node:
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}] if cordoned else []
    taints += [{"key": taint, "effect": "NoExecute"}] if taint else []
    body = {"metadata": {"name": name, **fields}, "spec": {"unschedulable": cordoned, "taints": taints}}
    return msgspec.convert(body, Node)


def _tolerate(key: str, seconds: int | None) -> Toleration:
    return Toleration(key=key, operator="Exists", toleration_seconds=seconds)


@dataclass
class SimClaim:
    """A volume claim as the API server has it."""

    name: str
    uid: str
    owners: tuple[OwnerReference, ...] = ()
    version: int = 1
    deleting: bool = False

    def show(self) -> PersistentVolumeClaim:
        return PersistentVolumeClaim(
            metadata=ObjectMeta(
                name=self.name,
                namespace=NAMESPACE,
                uid=self.uid,
                resource_version=str(self.version),
                deletion_timestamp=EPOCH if self.deleting else None,
                owner_references=self.owners,
            )
        )

    def owned_by(self, uid: str) -> bool:
        return any(owner.uid == uid for owner in self.owners)


@dataclass
class SimPod:
    """A pod as the API server has it, and what its containers really do."""

    name: str
    uid: str
    mode: str
    index: str
    hostname: str
    revision: str
    created: float
    version: int = 1
    node: str = ""
    target: str = ""
    phase: str = "Pending"
    started: bool = False
    ready_since: float | None = None
    began_at: float | None = None
    finished_at: float | None = None
    deleting: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, Condition] = field(default_factory=dict)
    persons_cordon: bool = False
    registered: bool = False
    booted: float = 0.0
    """When its slurmd was started."""
    mounts: tuple[str, ...] = ()
    """The volume claims that it mounts."""
    tolerates: str = ""
    tolerates_for: int | None = None
    silent: int | None = None
    """For how many seconds it tolerates a node that does not answer; None is for ever."""
    stated: bool = True
    """slurmd was told its name."""
    cause: str = ""
    """Why the operator has deleted it; empty if it was not the operator."""

    def clone(self) -> SimPod:
        return replace(
            self,
            labels=dict(self.labels),
            annotations=dict(self.annotations),
            conditions=dict(self.conditions),
        )

    def show(self) -> Pod:
        labels = {
            wellknown.LABEL_SCALING_MODE: self.mode,
            wellknown.LABEL_REVISION_HASH: self.revision,
            wellknown.LABEL_POD_NAME: self.name,
            wellknown.LABEL_CLUSTER: "slurm",
            wellknown.LABEL_POD_HOSTNAME: self.hostname,
            **({wellknown.LABEL_POD_INDEX: self.index} if self.index else {}),
            **self.labels,
        }
        ready = Condition(
            type="Ready",
            status="True" if self.ready_since is not None else "False",
            last_transition_time=None if self.ready_since is None else moment(self.ready_since),
        )
        return Pod(
            metadata=ObjectMeta(
                name=self.name,
                namespace=NAMESPACE,
                uid=self.uid,
                resource_version=str(self.version),
                creation_timestamp=moment(self.created),
                deletion_timestamp=moment(self.created) if self.deleting else None,
                labels=labels,
                annotations={
                    **({wellknown.ANNOTATION_STATED_NAME: "true"} if self.stated else {}),
                    **self.annotations,
                },
            ),
            spec=PodSpec(
                node_name=self.node,
                hostname=self.hostname,
                volumes=tuple(Volume(persistent_volume_claim=ClaimVolume(name)) for name in self.mounts),
                affinity=self._affinity(),
                tolerations=(
                    *(
                        Toleration(
                            key=key, operator="Exists", effect="NoExecute", toleration_seconds=self.silent
                        )
                        for key in SILENT
                    ),
                    *((_tolerate(self.tolerates, self.tolerates_for),) if self.tolerates else ()),
                ),
            ),
            status=PodStatus(
                phase=self.phase,
                conditions=(ready, *self.conditions.values()),
                container_statuses=(self._container(),) if self.started or self.finished_at else (),
            ),
        )

    @property
    def protected(self) -> bool:
        return self.labels.get(wellknown.LABEL_POD_PROTECT) == "true"

    def _affinity(self) -> Affinity | None:
        if not self.target:
            return None
        field_ = LabelSelectorRequirement(key="metadata.name", operator="In", values=(self.target,))
        terms = (NodeSelectorTerm(match_fields=(field_,)),)
        return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=terms)))

    def _container(self) -> ContainerStatus:
        if self.finished_at is not None:
            began = None if self.began_at is None else moment(self.began_at)
            ended = StateTerminated(started_at=began, finished_at=moment(self.finished_at))
            return ContainerStatus(name="slurmd", state=ContainerState(terminated=ended))
        return ContainerStatus(name="slurmd", started=True, state=ContainerState(running=StateRunning()))
