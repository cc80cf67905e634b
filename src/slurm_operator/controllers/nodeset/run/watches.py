"""What the controller knows of Kubernetes, and which NodeSets each change there concerns.

Pods, claims and ConfigMaps are watched by the label of our workers, PodDisruptionBudgets and Nodes all,
revisions as far as they have a hash; of other controllers' revisions the data are thrown away. The Service
that workers share has no label, and there may be very many Services, so it is watched by its name.

The handler of pods is also where expectations come true: it hears of each change before a key is queued for
it.

`SlurmNames` keeps the names of workers in Slurm as pods come and go, so that observing one NodeSet need not
read the pods of all. A pod that has ended has no name any more; one that is being deleted does until it is
gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from slurm_operator.api import Controller, NodeSet, wellknown
from slurm_operator.api.nodeset import ScalingMode
from slurm_operator.controllers.nodeset.decide import name_conflicts
from slurm_operator.controllers.shared import node_events
from slurm_operator.kube.cache.referenced_objects import ReferencedObjects
from slurm_operator.kube.decide.expectations import Expectations
from slurm_operator.kube.manifests.revisions import HASH_LABEL
from slurm_operator.kube.models.kinds import (
    ConfigMap,
    ControllerRevision,
    Node,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Service,
)
from slurm_operator.kube.models.meta import Key
from slurm_operator.objects import slurmd_identity
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.node_fit import node_fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.decide.name_conflicts import Neighbour
    from slurm_operator.controllers.shared.node_events import SlurmNodeEvent
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.meta import Object, T
    from slurm_operator.kube.models.store import Change
    from slurm_operator.objects.node_fit import Fit
    from slurm_operator.slurm.model.view import ClusterView, ViewUpdate

WORKERS: Final = f"{wellknown.LABEL_APP_NAME}={wellknown.APP_SLURMD}"
OWNER_INDEX: Final = "nodeset owner"
_INSTANCE: Final = "nodeset instance"
_NODE: Final = "nodeset node"
_SLURM_NODE: Final = "nodeset Slurm node"
_ANNOTATIONS: Final = (
    wellknown.ANNOTATION_NODE_CORDON_REASON,
    wellknown.ANNOTATION_NODE_FEATURES,
    wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE,
    wellknown.ANNOTATION_TOPOLOGY,
)
_NONE: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


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
        self.services = ReferencedObjects(wiring.client, Service)
        self._propagated = wiring.propagated_node_conditions
        # It brings the index by Controller, which others here use, too.
        self._by_marks = node_events.nodeset_mapper(self.nodesets.store)
        self.pods.add_index(OWNER_INDEX, _owner)
        self.pods.add_index(_NODE, _node)
        self.pods.add_index(_SLURM_NODE, _slurm_node)
        self.claims.add_index(_INSTANCE, _instance)
        self.revisions.add_index(OWNER_INDEX, _owner)

    # ------------------------------------------------------------------------------------------------ reading
    def owned_pods(self, nodeset: NodeSet) -> list[Pod]:
        """Return the pods that a NodeSet controls."""
        return self.pods.store.by_index(OWNER_INDEX, nodeset.metadata.uid)

    def orphan_pods(self, nodeset: NodeSet) -> list[Pod]:
        """Return the pods of a NodeSet's namespace that have no controller."""
        return self.pods.store.by_index(OWNER_INDEX, _no_owner(nodeset.metadata.namespace))

    def claims_of(self, nodeset: NodeSet) -> list[PersistentVolumeClaim]:
        """Return the claims with the labels of a NodeSet."""
        return self.claims.store.by_index(_INSTANCE, str(nodeset.key))

    def revisions_of(self, nodeset: NodeSet) -> list[ControllerRevision]:
        """Return the revisions that a NodeSet controls, and those of its namespace without a controller."""
        store = self.revisions.store
        orphans = store.by_index(OWNER_INDEX, _no_owner(nodeset.metadata.namespace))
        return [*store.by_index(OWNER_INDEX, nodeset.metadata.uid), *orphans]

    def siblings(self, namespace: str, controller: str) -> list[NodeSet]:
        """Return all NodeSets of a Controller."""
        key = str(Key(namespace, controller))
        return self.nodesets.store.by_index(node_events.CONTROLLER_INDEX, key)

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
        found = dict.fromkeys(key for pod in self.pods.store.by_index(_NODE, name) for key in _belongs(pod))
        for nodeset in self.nodesets.store.list():
            if nodeset.spec.scaling_mode == ScalingMode.DAEMON_SET or nodeset.spec.pin_to_node:
                found[nodeset.key] = None
        return found

    def node_matters(self, change: Change[Node]) -> bool:
        """Return whether something changed about a node that a NodeSet depends on."""
        if change.old is None or change.new is None or change.old is change.new:
            return True
        return self._relevant(change.old) != self._relevant(change.new)

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

    def _relevant(self, node: Node) -> tuple[object, ...]:
        annotations = node.metadata.annotations
        conditions = (node.condition(kind) for kind in self._propagated)
        return (
            node.spec,
            node.metadata.labels,
            [annotations.get(name) for name in _ANNOTATIONS],
            [one and (one.status, one.reason, one.message) for one in conditions],
        )


class OtherNodeSets(NamedTuple):
    """What an observation says about other NodeSets."""

    neighbours: tuple[Neighbour, ...] = ()
    name_holders: Mapping[str, frozenset[str]] = _NONE


class NameHolder(NamedTuple):
    """Whose pod has which name in Slurm."""

    namespace: str
    name: str
    owner: str


class NameHolders:
    """The NodeSets with a pod of a name, by namespace and name, kept as pods come and go."""

    def __init__(self) -> None:
        self._pods: Counter[NameHolder] = Counter()
        self._owners: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)

    def within(self, namespace: str) -> dict[str, frozenset[str]]:
        """Return the UIDs of NodeSets by the names that their pods have in Slurm."""
        # A copy: a plan may be made in a thread, while pods come and go.
        return dict(self._owners[namespace])

    def changed(self, change: Change[Pod]) -> None:
        """Take in what has become of a pod."""
        before, after = _ends(change)
        if before == after:
            return
        if before is not None:
            self._pods[before] -= 1
            if not self._pods[before]:
                del self._pods[before]
                self._note(before, self._known(before) - {before.owner})
        if after is not None:
            self._pods[after] += 1
            self._note(after, self._known(after) | {after.owner})

    def _known(self, holder: NameHolder) -> frozenset[str]:
        return self._owners[holder.namespace].get(holder.name, frozenset())

    def _note(self, holder: NameHolder, owners: frozenset[str]) -> None:
        if owners:
            self._owners[holder.namespace][holder.name] = owners
        else:
            del self._owners[holder.namespace][holder.name]


class SlurmNames:
    """Knows which names in Slurm the workers of each NodeSet have, and which other NodeSets ask for them."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._holders = NameHolders()
        self._fits: dict[str, tuple[int, Fit | None]] = {}
        """By UID, with the generation that they were made for."""
        caches.pods.add_handler(self._holders.changed)

    def others(self, nodeset: NodeSet) -> OtherNodeSets:
        """Return the other NodeSets of the Controller, and the names of all; nothing if there are none."""
        namespace = nodeset.metadata.namespace
        siblings = self._caches.siblings(namespace, nodeset.spec.controller_ref.name)
        near = name_conflicts.neighbours(nodeset, siblings, self._fit)
        return OtherNodeSets(near, self._holders.within(namespace)) if near else OtherNodeSets()

    def claimants(self, change: Change[Pod]) -> Iterable[Key]:
        """Map a pod that gives up its name to the other NodeSets that ask for that name."""
        given_up, after = _ends(change)
        if given_up is None or after == given_up:
            return ()
        node = self._caches.nodes.store.get(Key("", given_up.name))
        others = self._caches.nodesets.store.list(given_up.namespace)
        claimants = name_conflicts.claimants(others, self._fit, given_up.name, node)
        return [one.key for one in claimants if one.metadata.uid != given_up.owner]

    def _fit(self, nodeset: NodeSet) -> Fit | None:
        uid, generation = nodeset.metadata.uid, nodeset.metadata.generation
        known = self._fits.get(uid)
        if known is None or known[0] != generation:
            if len(self._fits) > 2 * len(self._caches.nodesets.store):
                self._fits.clear()
            try:
                known = (generation, node_fit(nodeset))
            except Unbuildable:
                # Nothing is made of it, and it says so itself.
                known = (generation, None)
            self._fits[uid] = known
        return known[1]


def _ends(change: Change[Pod]) -> tuple[NameHolder | None, NameHolder | None]:
    """Return which name a pod had before a change, and which it has now."""
    before = None if change.old is None else name_holder(change.old)
    return before, None if change.new is None else name_holder(change.new)


def name_holder(pod: Pod) -> NameHolder | None:
    """Return which name a pod has in Slurm, and which NodeSet has it by that; None if it has none."""
    owner = pod.controller_owner
    if owner is None or pod.finished:
        return None
    name = slurmd_identity.node_of(pod)
    return NameHolder(pod.metadata.namespace, name, owner.uid) if name else None


def concerns_all(update: ViewUpdate) -> bool:
    """Return whether a new view of Slurm says more than that single nodes have changed."""
    now = asyncio.get_running_loop().time()
    return not update.changes or _outlook(update.previous, now) != _outlook(update.view, now)


def _outlook(view: ClusterView, now: float) -> tuple[object, ...]:
    return (
        view.listed_at is None,
        view.stale(now),
        view.suspicion is None,
        view.complete,
        view.just_started,
        type(view.failure),
        view.jobs_listed_at is None,
        view.jobs.unplaced,
        view.reservations_listed_at is None,
        view.reservations,
    )


def _no_owner(namespace: str) -> str:
    # No UID has a slash in it.
    return f"{namespace}/"


def _owner(found: Object) -> tuple[str, ...]:
    owner = found.controller_owner
    return (_no_owner(found.metadata.namespace),) if owner is None else (owner.uid,)


def _instance(found: Object) -> tuple[str, ...]:
    name = found.metadata.labels.get(wellknown.LABEL_APP_INSTANCE, "")
    return (str(Key(found.metadata.namespace, name)),) if name else ()


def _node(pod: Pod) -> tuple[str, ...]:
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
