"""Names in Slurm that another NodeSet of the same Controller has.

Two slurmd of one name fight for one node of Slurm: each registration takes the node from the other, and jobs
are lost. So a name belongs to one NodeSet. Who has a pod of that name has the name; if several have, or none
has yet, it is the oldest of those that ask for it. Age does not outweigh a pod: a NodeSet that is given other
names must not take them from workers that run.

A NodeSet creates no pod under a name that is another's. It may have such a pod all the same, created without
this check (by the Slinky slurm-operator, or while two NodeSets changed at the same moment). In which of the
two pods the jobs of the node run cannot be determined then. For the younger NodeSet the state of the node is
unknown, as if Slurm did not answer: its pod is not deleted, nothing is written about the node, and a
condition reports what an administrator has to change.

Names of workers that belong to a Kubernetes node.

The name of a worker follows from its node, so that a create which is repeated after a crash, or before the
cache shows the first one, cannot make a second pod.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurm_operator.api.nodeset import ScalingMode, daemon_hostname
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import Defer
from slurm_operator.objects.slurmd_names import Series, series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.kube.models.kinds import Node
    from slurm_operator.objects.node_fit import Fit

_NOBODY: Final[frozenset[str]] = frozenset()
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another NodeSet of the same Controller, and the names that it asks for."""

    name: str
    uid: str
    older: bool
    """It was created before the NodeSet that is being reconciled."""
    numbers: Series | None
    fit: Fit | None
    """Which Kubernetes nodes give their names to its workers."""

    def wants(self, name: str, kube_node: Node | None) -> bool:
        """Return whether one of its workers should have a name; `kube_node` is the node called so."""
        if self.numbers is not None and name in self.numbers:
            return True
        return self.fit is not None and kube_node is not None and self.fit.suits(kube_node)


def age(nodeset: NodeSet) -> tuple[datetime, str, str]:
    """Return what NodeSets are sorted by, the oldest first."""
    meta = nodeset.metadata
    return meta.creation_timestamp or _NEVER, meta.namespace, meta.name


def neighbours(
    nodeset: NodeSet, siblings: Iterable[NodeSet], fits: Callable[[NodeSet], Fit | None]
) -> tuple[Neighbour, ...]:
    """Return the other NodeSets of a Controller, the oldest first; `fits` says where workers belong."""
    others = sorted((one for one in siblings if one.metadata.uid != nodeset.metadata.uid), key=age)
    mine = age(nodeset)
    return tuple(_neighbour(one, older=age(one) < mine, fits=fits) for one in others)


def claimants(
    nodesets: Iterable[NodeSet],
    fits: Callable[[NodeSet], Fit | None],
    name: str,
    kube_node: Node | None,
) -> list[NodeSet]:
    """Return the NodeSets that ask for a name; `kube_node` is the Kubernetes node of that name."""
    return [one for one in nodesets if _neighbour(one, older=False, fits=fits).wants(name, kube_node)]


def name_conflict(seen: Observation, name: str, kube_node: Node | None = None) -> Defer | None:
    """Say why a NodeSet must not make a worker of a name, if it is another one's."""
    if not seen.neighbours or (kube_node is None and series(seen.nodeset) is None):
        # With host networking a worker has the name of its Kubernetes node, which is not known yet.
        return None
    name_holders = seen.name_holders.get(name, _NOBODY)
    having = next((one for one in seen.neighbours if one.uid in name_holders), None)
    if having is not None:
        return _conflict(messages.name_used_by(name, having.name, _field(seen, having)))
    node = kube_node or _called(seen.nodes, name)
    wanting = next((one for one in seen.neighbours if one.older and one.wants(name, node)), None)
    if wanting is None:
        return None
    return _conflict(messages.name_of_older(name, wanting.name, _field(seen, wanting)))


def shared(seen: Observation) -> dict[str, Defer]:
    """Return the names of workers that conflict with an older NodeSet, each with what it waits for."""
    older = [one for one in seen.neighbours if one.older]
    if not older:
        return {}
    mine = {seen.nodeset.metadata.uid}
    found = {}
    for worker in seen.workers:
        name = worker.slurm_name
        name_holders = seen.name_holders.get(name, _NOBODY)
        if name_holders == mine:
            continue
        if (other := next((one for one in older if one.uid in name_holders), None)) is not None:
            found[name] = _conflict(messages.name_conflict(name, other.name, _field(seen, other)))
    return found


def borne(seen: Observation, name: str) -> bool:
    """Return whether another NodeSet has a worker of a name."""
    name_holders = seen.name_holders.get(name, _NOBODY)
    return any(one.uid in name_holders for one in seen.neighbours)


def _neighbour(nodeset: NodeSet, *, older: bool, fits: Callable[[NodeSet], Fit | None]) -> Neighbour:
    follows = nodeset.spec.scaling_mode == ScalingMode.DAEMON_SET and not nodeset.deleting
    return Neighbour(
        name=nodeset.metadata.name,
        uid=nodeset.metadata.uid,
        older=older,
        numbers=series(nodeset),
        fit=fits(nodeset) if follows else None,
    )


def _called(nodes: Mapping[str, Node], name: str) -> Node | None:
    """Return the Kubernetes node that gives its worker a name."""
    node = nodes.get(name)
    return node if node is not None and expected_hostname(node) == name else None


def _conflict(message: str) -> Defer:
    return Defer(Reason.NAME_TAKEN, message)


def _field(seen: Observation, other: Neighbour) -> str:
    """Return the field of the pod template that gives two NodeSets the same name."""
    by_machine = series(seen.nodeset) is None and other.numbers is None
    return "nodeSelector" if by_machine else "hostname"


# Kubernetes' alphabet for generated names.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
# 27^10 names: among ten thousand nodes, two of the same are as good as impossible.
_SUFFIX: Final = 10
_MAX_NAME: Final = 63


def daemon_name(nodeset: NodeSet, node: Node) -> str:
    """Return the name of the worker of a node."""
    digest = hashlib.sha256(f"{nodeset.metadata.uid}/{node.metadata.name}".encode()).digest()
    suffix = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_SUFFIX])
    return f"{nodeset.pod_generate_name[: _MAX_NAME - _SUFFIX]}{suffix}"


def expected_hostname(node: Node) -> str:
    """Return the name in Slurm of the worker of a node."""
    return daemon_hostname(node.metadata.name, node.metadata.annotations)
