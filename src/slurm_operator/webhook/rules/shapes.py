"""The shapes of what the schema leaves open: pods, containers, Services, claims.

To the API server these parts of our objects are maps with anything in them. The renderers take a list for a
list; so before they are tried, everything they look into must have its shape. Only the shape: what is allowed
in a pod is for the API server to say, when it is made. A null is the same as nothing, as everywhere in
Kubernetes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from slurm_operator.kube.models.meta import Part
from slurm_operator.kube.models.pod import NodeSelector, Toleration
from slurm_operator.webhook.rules.wording import explain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.webhook.rules.findings import Findings

Map: TypeAlias = dict[str, Any] | None
Maps: TypeAlias = tuple[dict[str, Any], ...]
Words: TypeAlias = tuple[str, ...]
Texts: TypeAlias = dict[str, str] | None
Amounts: TypeAlias = dict[str, str | int | float] | None

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class NamedShape(Part, frozen=True):
    """Anything with a name."""

    name: str = ""


class Resources(Part, frozen=True):
    """What a container or a pod may use."""

    limits: Amounts = None
    requests: Amounts = None
    claims: Maps = ()


class ContainerShape(Part, frozen=True):
    """A container."""

    name: str = ""
    image: str = ""
    command: Words = ()
    args: Words = ()
    env: Maps = ()
    env_from: Maps = ()
    ports: Maps = ()
    volume_mounts: tuple[NamedShape, ...] = ()
    volume_devices: tuple[NamedShape, ...] = ()
    resources: Resources = Resources()
    startup_probe: Map = None
    liveness_probe: Map = None
    readiness_probe: Map = None
    lifecycle: Map = None
    security_context: Map = None
    restart_policy: str = ""
    image_pull_policy: str = ""


class Terms(Part, frozen=True):
    """Which pods to be near to, or far from."""

    required: Maps = msgspec.field(name=_REQUIRED, default=())
    preferred: Maps = msgspec.field(name=_PREFERRED, default=())


class NodeTerms(Part, frozen=True):
    """Which nodes to run on."""

    required: NodeSelector = msgspec.field(name=_REQUIRED, default_factory=NodeSelector)
    preferred: Maps = msgspec.field(name=_PREFERRED, default=())


class AffinityShape(Part, frozen=True):
    """Where a pod wants to run."""

    node_affinity: NodeTerms = NodeTerms()
    pod_affinity: Terms = Terms()
    pod_anti_affinity: Terms = Terms()


class DnsConfig(Part, frozen=True):
    """How names are looked up."""

    nameservers: Words = ()
    searches: Words = ()
    options: Maps = ()


class PodShape(Part, frozen=True):
    """A PodSpec."""

    containers: tuple[ContainerShape, ...] = ()
    init_containers: tuple[ContainerShape, ...] = ()
    volumes: tuple[NamedShape, ...] = ()
    affinity: AffinityShape = AffinityShape()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Texts = None
    node_name: str = ""
    hostname: str = ""
    host_network: bool = False
    dns_config: DnsConfig = DnsConfig()
    resources: Resources = Resources()
    security_context: Map = None
    image_pull_secrets: tuple[NamedShape, ...] = ()
    host_aliases: Maps = ()
    topology_spread_constraints: Maps = ()
    resource_claims: Maps = ()
    scheduling_gates: Maps = ()
    service_account_name: str = ""
    priority_class_name: str = ""
    runtime_class_name: str = ""
    termination_grace_period_seconds: int = 0


class ServiceShape(Part, frozen=True):
    """A ServiceSpec."""

    type: str = ""
    ports: Maps = ()
    selector: Texts = None
    external_ips: Words = msgspec.field(name="externalIPs", default=())
    load_balancer_source_ranges: Words = ()


class ClaimMetadata(Part, frozen=True):
    """The metadata of a claim."""

    name: str = ""
    labels: Texts = None
    annotations: Texts = None


class ClaimShape(Part, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ClaimMetadata = ClaimMetadata()
    spec: Map = None


def fits(value: Mapping[str, Any], shape: type[Part], path: str, findings: Findings) -> bool:
    """Return whether a map has the shape of its kind; refuse each field of it that has not."""
    good = True
    for field in msgspec.structs.fields(shape):
        given = _without_nulls(value.get(field.encode_name))
        if given is None:
            continue
        try:
            msgspec.convert(given, field.type)
        except msgspec.ValidationError as error:
            below, problem = explain(error)
            dot = "." if below and not below.startswith("[") else ""
            findings.deny(f"{path}.{field.encode_name}{dot}{below}", problem)
            good = False
    return good


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
