"""What the controller knows of Kubernetes, and which NodeSets each change there concerns.

Pods, claims and ConfigMaps are watched by the label of our workers, PodDisruptionBudgets and Nodes all,
revisions as far as they have a hash; of other controllers' revisions the data are thrown away. The Service
that workers share has no label, and there may be very many Services, so it is watched by its name.

The handler of pods is also where expectations come true: it hears of each change before a key is queued for
it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from slurm_operator.api import Controller, NodeSet, wellknown
from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.controllers import nodeevents
from slurm_operator.kube.expectations import Expectations
from slurm_operator.kube.meta import Key
from slurm_operator.kube.models import (
    ConfigMap,
    ControllerRevision,
    Node,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Service,
)
from slurm_operator.kube.references import References
from slurm_operator.kube.revisions import HASH_LABEL
from slurm_operator.objects import slurmd_identity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.nodeevents import SlurmNodeEvent
    from slurm_operator.controllers.wiring import Wiring
    from slurm_operator.kube.meta import Object, T
    from slurm_operator.kube.store import Change
    from slurm_operator.slurm.view import ClusterView, ViewUpdate

WORKERS: Final = f"{wellknown.LABEL_APP_NAME}={wellknown.APP_SLURMD}"
_OWNER: Final = "nodeset owner"
_INSTANCE: Final = "nodeset instance"
_MACHINE: Final = "nodeset machine"
_SLURM_NODE: Final = "nodeset Slurm node"
_ANNOTATIONS: Final = (
    wellknown.ANNOTATION_NODE_CORDON_REASON,
    wellknown.ANNOTATION_NODE_FEATURES,
    wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE,
    wellknown.ANNOTATION_TOPOLOGY,
)


class Caches:
    """Everything of Kubernetes that is read here."""

    def __init__(self, wiring: Wiring) -> None:
        manager = wiring.manager
        self.expectations: Expectations[Key] = Expectations()
        self.nodesets = manager.informer(NodeSet)
        self.controllers = manager.informer(Controller)
        self.pods = manager.informer(Pod, labels=WORKERS)
        self.nodes = manager.informer(Node)
        self.claims = manager.informer(PersistentVolumeClaim, labels=WORKERS)
        self.config_maps = manager.informer(ConfigMap, labels=WORKERS)
        self.budgets = manager.informer(PodDisruptionBudget)
        self.revisions = manager.informer(ControllerRevision, labels=HASH_LABEL, transform=_without_data)
        self.services = References(wiring.client, Service)
        self._propagated = wiring.propagated_node_conditions
        # It brings the index by Controller, which others here use, too.
        self._by_marks = nodeevents.nodeset_mapper(self.nodesets.store)
        self.pods.add_index(_OWNER, _owner)
        self.pods.add_index(_MACHINE, _machine)
        self.pods.add_index(_SLURM_NODE, _slurm_node)
        self.claims.add_index(_INSTANCE, _instance)
        self.revisions.add_index(_OWNER, _owner)

    # ------------------------------------------------------------------------------------------------ reading
    def owned_pods(self, nodeset: NodeSet) -> list[Pod]:
        """Return the pods that a NodeSet controls."""
        return self.pods.store.by_index(_OWNER, nodeset.metadata.uid)

    def orphan_pods(self, nodeset: NodeSet) -> list[Pod]:
        """Return the pods of a NodeSet's namespace that have no controller."""
        return self.pods.store.by_index(_OWNER, _nobodys(nodeset.metadata.namespace))

    def claims_of(self, nodeset: NodeSet) -> list[PersistentVolumeClaim]:
        """Return the claims with the labels of a NodeSet."""
        return self.claims.store.by_index(_INSTANCE, str(nodeset.key))

    def revisions_of(self, nodeset: NodeSet) -> list[ControllerRevision]:
        """Return the revisions that a NodeSet controls, and those of its namespace without a controller."""
        store = self.revisions.store
        nobodys = store.by_index(_OWNER, _nobodys(nodeset.metadata.namespace))
        return [*store.by_index(_OWNER, nodeset.metadata.uid), *nobodys]

    def siblings(self, namespace: str, controller: str) -> list[NodeSet]:
        """Return all NodeSets of a Controller."""
        key = str(Key(namespace, controller))
        return self.nodesets.store.by_index(nodeevents.CONTROLLER_INDEX, key)

    # ------------------------------------------------------------------------------------ changes to NodeSets
    def of_pod(self, change: Change[Pod]) -> Iterable[Key]:
        """Map a pod to the NodeSet that it belonged and belongs to, and note what had been expected of it."""
        found = dict.fromkeys(key for pod in (change.old, change.new) if pod for key in _belongs(pod))
        meta = change.object.metadata
        for key in found:
            if change.new is None or change.new.deleting:
                self.expectations.deletion_observed(key, meta.uid)
            if change.new is not None:
                self.expectations.creation_observed(key, meta.name, meta.uid)
        return found

    def of_child(self, change: Change[T]) -> Iterable[Key]:
        """Map an object with an owner, or the label of a NodeSet, to that NodeSet."""
        return dict.fromkeys(key for one in (change.old, change.new) if one for key in _belongs(one))

    def of_claim(self, change: Change[PersistentVolumeClaim]) -> Iterable[Key]:
        """Map a volume claim to the NodeSet that its label names, whatever its owners are."""
        name = change.object.metadata.labels.get(wellknown.LABEL_APP_INSTANCE, "")
        return (Key(change.key.namespace, name),) if name else ()

    def of_node(self, change: Change[Node]) -> Iterable[Key]:
        """Map a Kubernetes node to the NodeSets with pods on it, and to those that may want some there."""
        name = change.key.name
        found = dict.fromkeys(
            key for pod in self.pods.store.by_index(_MACHINE, name) for key in _belongs(pod)
        )
        for nodeset in self.nodesets.store.list():
            if nodeset.spec.scaling_mode == ScalingMode.DAEMON_SET or nodeset.spec.pin_to_node:
                found[nodeset.key] = None
        return found

    def node_matters(self, change: Change[Node]) -> bool:
        """Tell whether something changed about a node that a NodeSet looks at."""
        if change.old is None or change.new is None or change.old is change.new:
            return True
        return self._looks(change.old) != self._looks(change.new)

    def of_controller(self, change: Change[Controller]) -> Iterable[Key]:
        """Map a Controller to its NodeSets."""
        return self.of_slurm_cluster(change.key)

    def of_slurm_cluster(self, controller: Key) -> Iterable[Key]:
        """Map the key of a Controller to its NodeSets."""
        return [nodeset.key for nodeset in self.siblings(*controller)]

    def of_slurm_node(self, event: SlurmNodeEvent) -> Iterable[Key]:
        """Map a node of Slurm to the NodeSet of its pod, and by the marks that the node carries."""
        pods = self.pods.store.by_index(_SLURM_NODE, str(Key(event.controller.namespace, event.name)))
        return dict.fromkeys([*(key for pod in pods for key in _belongs(pod)), *self._by_marks(event)])

    def of_budget(self, change: Change[PodDisruptionBudget]) -> Iterable[Key]:
        """Map the budget that workers share to their NodeSets."""
        namespace, name = change.key
        return [
            nodeset.key for nodeset in self.nodesets.store.list(namespace) if nodeset.worker_pdb_name == name
        ]

    def _looks(self, node: Node) -> tuple[object, ...]:
        annotations = node.metadata.annotations
        conditions = (node.condition(kind) for kind in self._propagated)
        return (
            node.spec,
            node.metadata.labels,
            [annotations.get(name) for name in _ANNOTATIONS],
            [one and (one.status, one.reason, one.message) for one in conditions],
        )


def concerns_all(update: ViewUpdate) -> bool:
    """Tell whether a new view of Slurm says more than that single nodes have changed."""
    now = asyncio.get_running_loop().time()
    return not update.changes or _outlook(update.previous, now) != _outlook(update.view, now)


def _outlook(view: ClusterView, now: float) -> tuple[object, ...]:
    return (
        view.taken is None,
        view.stale(now),
        view.suspicion is None,
        view.complete,
        view.just_started,
        type(view.failure),
        view.jobs_taken is None,
        view.jobs.unplaced,
        view.reservations_taken is None,
        view.reservations,
    )


def _nobodys(namespace: str) -> str:
    # No UID has a slash in it.
    return f"{namespace}/"


def _owner(found: Object) -> tuple[str, ...]:
    owner = found.controller_owner
    return (_nobodys(found.metadata.namespace),) if owner is None else (owner.uid,)


def _instance(found: Object) -> tuple[str, ...]:
    name = found.metadata.labels.get(wellknown.LABEL_APP_INSTANCE, "")
    return (str(Key(found.metadata.namespace, name)),) if name else ()


def _machine(pod: Pod) -> tuple[str, ...]:
    return (pod.target_node,) if pod.target_node else ()


def _slurm_node(pod: Pod) -> tuple[str, ...]:
    name = slurmd_identity.node_of(pod)
    return (str(Key(pod.metadata.namespace, name)),) if name else ()


def _belongs(found: Object) -> tuple[Key, ...]:
    """Return the NodeSet of an object: the one that controls it, else the one that its label names."""
    owner, namespace = found.controller_owner, found.metadata.namespace
    if owner is not None:
        group = owner.api_version.rpartition("/")[0]
        mine = (group, owner.kind) == (NodeSet.RESOURCE.group, NodeSet.RESOURCE.kind)
        return (Key(namespace, owner.name),) if mine else ()
    name = found.metadata.labels.get(wellknown.LABEL_APP_INSTANCE, "")
    return (Key(namespace, name),) if name else ()


def _without_data(revision: ControllerRevision) -> ControllerRevision:
    """Keep the data of a revision only where they may be a NodeSet's."""
    owner = revision.controller_owner
    if owner is None or owner.kind == NodeSet.RESOURCE.kind:
        return revision
    return msgspec.structs.replace(revision, data=None)
