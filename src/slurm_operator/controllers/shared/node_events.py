"""From a node that changed in Slurm to the NodeSets that must be reconciled.

A worker's Slurm node carries a comment, a small JSON object that names the pod and the NodeSet that created
it; Slinky slurm-operator writes the same one. That identifies the NodeSet reliably. If the comment is of an
older version that did not name the NodeSet, the prefix of the pod's name is used. Before a comment is written
(a worker has just registered), it is the feature that each NodeSet gives to its nodes, else the prefix of the
node's name. A wrong guess costs one reconcile that finds nothing to do. A node that matches no NodeSet is not
managed by this operator and triggers no reconcile.

Everything here is pure; `nodeset_mapper` is for `Controller.watch_channel`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_operator.kube.models.meta import Key
from slurm_operator.objects.slurmd_marks import pod_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slurm_operator.api.nodeset import NodeSet
    from slurm_operator.kube.models.store import Store
    from slurm_operator.slurm.model.records import Node

CONTROLLER_INDEX = "controller"


@dataclass(frozen=True, slots=True)
class SlurmNodeEvent:
    """One node of a Controller's cluster before (None: it was not there) and after (None: it is gone)."""

    controller: Key
    name: str
    old: Node | None
    new: Node | None


def index_by_controller(nodeset: NodeSet) -> tuple[str, ...]:
    """Index a NodeSet by the Controller that it belongs to."""
    return (str(Key(nodeset.metadata.namespace, nodeset.spec.controller_ref.name)),)


def nodeset_mapper(nodesets: Store[NodeSet]) -> Callable[[SlurmNodeEvent], Iterable[Key]]:
    """Return the mapper from node events to the NodeSets in a store, which gets an index for it."""
    nodesets.add_index(CONTROLLER_INDEX, index_by_controller)
    return lambda event: nodeset_keys(event, nodesets.by_index(CONTROLLER_INDEX, str(event.controller)))


def nodeset_keys(event: SlurmNodeEvent, nodesets: Iterable[NodeSet]) -> tuple[Key, ...]:
    """Return the NodeSets, among those of the event's Controller, that the node belonged or belongs to."""
    candidates = tuple(nodesets)
    found: dict[Key, None] = {}
    for node in (event.old, event.new):
        if node is not None:
            found |= dict.fromkeys(_owners(node, candidates))
    return tuple(found)


def _owners(node: Node, nodesets: tuple[NodeSet, ...]) -> list[Key]:
    info = pod_info(node.comment)
    if info is not None and info.node_set_name:
        named = (info.namespace, info.node_set_name)
        return [nodeset.key for nodeset in nodesets if nodeset.key == named]
    if info is not None:
        mine = [nodeset for nodeset in nodesets if nodeset.metadata.namespace == info.namespace]
        return _longest({nodeset.key: nodeset.pod_generate_name for nodeset in mine}, info.pod_name)
    features = {*node.features, *node.active_features}
    if featured := [nodeset.key for nodeset in nodesets if nodeset.slurm_name in features]:
        return featured
    return _longest({nodeset.key: _name_prefix(nodeset) for nodeset in nodesets}, node.name)


def _name_prefix(nodeset: NodeSet) -> str:
    """Return what the names of a NodeSet's Slurm nodes begin with, unless they come from Kubernetes nodes."""
    return str(nodeset.spec.template.spec.get("hostname") or "") or nodeset.pod_generate_name


def _longest(prefixes: dict[Key, str], name: str) -> list[Key]:
    """Return the keys with the longest prefix of a name: `gpu-large-0` is of `gpu-large-`, not of `gpu-`."""
    fitting = {key: prefix for key, prefix in prefixes.items() if name.startswith(prefix)}
    longest = max(map(len, fitting.values()), default=0)
    return [key for key, prefix in fitting.items() if len(prefix) == longest]
