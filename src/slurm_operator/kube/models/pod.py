"""The read model of a Pod; it follows the rules of `kinds`, which also exports it."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import ClassVar

import msgspec
from msgspec.structs import force_setattr

from slurm_operator.kube.models.meta import (
    Condition,
    LabelSelectorRequirement,
    Object,
    Part,
    Resource,
    find_condition,
    share,
    share_string,
)


class NodeSelectorTerm(Part, frozen=True):
    """One alternative of a node affinity."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(Part, frozen=True):
    """The alternatives of a node affinity; one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Part, frozen=True):
    """The part of node affinity that must hold."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Part, frozen=True):
    """Where a Pod may run."""

    node_affinity: NodeAffinity | None = None


class ContainerPort(Part, frozen=True):
    """A port a container names."""

    name: str = ""
    container_port: int = 0


class Container(Part, frozen=True):
    """A container as specified."""

    name: str = ""
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()


class ClaimVolume(Part, frozen=True):
    """A volume that is a claim."""

    claim_name: str = ""


class Volume(Part, frozen=True):
    """A volume, with its claim if it has one."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None


class Toleration(Part, frozen=True):
    """A taint that a Pod does not mind."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodSpec(Part, frozen=True):
    """What a Pod should be."""

    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    termination_grace_period_seconds: int | None = None

    def __post_init__(self) -> None:
        if self.node_name:
            force_setattr(self, "node_name", share_string(self.node_name))
        if self.subdomain:
            force_setattr(self, "subdomain", share_string(self.subdomain))
        if self.affinity is not None:
            force_setattr(self, "affinity", share(self.affinity))
        force_setattr(self, "tolerations", share(self.tolerations))
        force_setattr(self, "containers", share(self.containers))
        force_setattr(self, "init_containers", share(self.init_containers))
        force_setattr(self, "volumes", share(self.volumes))


class StateWaiting(Part, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class StateRunning(Part, frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class StateTerminated(Part, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Part, frozen=True):
    """One of three states."""

    waiting: StateWaiting | None = None
    running: StateRunning | None = None
    terminated: StateTerminated | None = None


class ContainerStatus(Part, frozen=True):
    """A container as observed."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "name", share_string(self.name))
        if self.last_state == _NO_STATE:
            force_setattr(self, "last_state", _NO_STATE)


_NO_STATE = ContainerState()


class PodStatus(Part, frozen=True):
    """What a Pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    host_ip: str = msgspec.field(name="hostIP", default="")
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "phase", share_string(self.phase))
        force_setattr(self, "host_ip", share_string(self.host_ip))
        if self.reason:
            force_setattr(self, "reason", share_string(self.reason))


class Pod(Object, frozen=True):
    """A Pod."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "pods", "Pod")

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type."""
        return find_condition(self.status.conditions, kind)

    @property
    def ready(self) -> bool:
        """Return whether the Pod serves."""
        condition = self.condition("Ready")
        return condition is not None and condition.status == "True"

    @property
    def finished(self) -> bool:
        """Return whether no container will ever run again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def target_node(self) -> str:
        """Return the node it runs on or, before scheduling, the one its affinity pins it to."""
        if self.spec.node_name:
            return self.spec.node_name
        node_affinity = self.spec.affinity.node_affinity if self.spec.affinity else None
        terms = node_affinity.required.node_selector_terms if node_affinity and node_affinity.required else ()
        for term in terms:
            for field in term.match_fields:
                if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
                    return field.values[0]
        return ""

    @property
    def claims(self) -> tuple[str, ...]:
        """Return the names of the claims it mounts."""
        mounted = (volume.persistent_volume_claim for volume in self.spec.volumes)
        return tuple(claim.claim_name for claim in mounted if claim is not None)
