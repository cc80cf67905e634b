"""What every controller is built from, made once by the process and handed to each `build(wiring)`.

Everything in it is shared: one client, one recorder of Events, one watch per Secret or ConfigMap that a
custom resource references, one connection per Slurm cluster. A controller gets its informers from the
manager, which returns the same informer for the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from slurm_operator.api import wellknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.plan import Plan
    from slurm_operator.controllers.shared.node_events import SlurmNodeEvent
    from slurm_operator.kube.cache.referenced_objects import ReferencedObjects
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.kinds import ConfigMap, Secret
    from slurm_operator.kube.models.meta import Key
    from slurm_operator.kube.runtime.apply import Applier
    from slurm_operator.kube.runtime.controller import Controller
    from slurm_operator.kube.runtime.events import EventRecorder
    from slurm_operator.kube.runtime.manager import Manager
    from slurm_operator.kube.runtime.sources import Channel
    from slurm_operator.slurm.rest.connections import Connections


class PlanListener(Protocol):
    """Is told of every plan of a NodeSet; must neither wait nor raise."""

    def planned(self, seen: Observation, plan: Plan, /) -> None:
        """Take in a plan that is about to be carried out."""

    def forgotten(self, key: Key, /) -> None:
        """Take in that a NodeSet is gone."""


@dataclass(frozen=True)
class Wiring:
    """The parts of the process that controllers share."""

    manager: Manager
    client: Client
    applier: Applier
    events: EventRecorder
    secrets: ReferencedObjects[Secret]
    """Secrets that a kind names; never all Secrets of the cluster."""
    config_maps: ReferencedObjects[ConfigMap]
    """ConfigMaps that a kind names; never all ConfigMaps of the cluster."""
    connections: Connections
    """The connection to each Slurm cluster: made by the SlurmClient and Cluster controllers, read by all."""
    node_events: Channel[SlurmNodeEvent]
    """Changes of Slurm nodes, one event per node, for the controller that owns the node's pod."""
    workers: Mapping[str, int]
    """How many keys each controller works on at the same time, by the name of its flag."""
    registry: CollectorRegistry
    """Where controllers register their metrics."""
    propagated_node_conditions: tuple[str, ...] = ()
    """Conditions of Kubernetes nodes whose text becomes the reason of a drain."""
    cluster_domain: str = wellknown.DEFAULT_CLUSTER_DOMAIN
    """The DNS domain of the Kubernetes cluster."""
    plans: PlanListener | None = None
    """Is told of every plan of a NodeSet."""
    slurm_api_override: str | None = None
    """Where every connection goes instead of its own URL; for a manager outside of the cluster."""


Build: TypeAlias = Callable[[Wiring], "Controller"]
