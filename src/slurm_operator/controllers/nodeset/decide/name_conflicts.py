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
from slurm_operator.controllers.nodeset.decide.actions import Hold, Wait
from slurm_operator.objects.slurmd_names import Series, series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slurm_operator.api import NodeSet
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.kube.models import Node
    from slurm_operator.objects.nodefit import Fit

_NOBODY: Final[frozenset[str]] = frozenset()
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another NodeSet of the same Controller, and the names that it asks for."""

    name: str
    uid: str
    older: bool
    """It was there before the NodeSet that is looked at."""
    numbers: Series | None
    machines: Fit | None
    """Which Kubernetes nodes give their names to its workers."""

    def wants(self, name: str, machine: Node | None) -> bool:
        """Tell whether one of its workers should have a name; `machine` is the node called so."""
        if self.numbers is not None and name in self.numbers:
            return True
        return self.machines is not None and machine is not None and self.machines.suits(machine)


def age(nodeset: NodeSet) -> tuple[datetime, str, str]:
    """Return what NodeSets are sorted by, the oldest first."""
    meta = nodeset.metadata
    return meta.creation_timestamp or _NEVER, meta.namespace, meta.name


def neighbours(
    nodeset: NodeSet, siblings: Iterable[NodeSet], machines: Callable[[NodeSet], Fit | None]
) -> tuple[Neighbour, ...]:
    """Return the other NodeSets of a Controller, the oldest first; `machines` says where workers belong."""
    others = sorted((one for one in siblings if one.metadata.uid != nodeset.metadata.uid), key=age)
    mine = age(nodeset)
    return tuple(_neighbour(one, older=age(one) < mine, machines=machines) for one in others)


def heirs(
    nodesets: Iterable[NodeSet],
    machines: Callable[[NodeSet], Fit | None],
    name: str,
    machine: Node | None,
) -> list[NodeSet]:
    """Return the NodeSets that ask for a name; `machine` is the Kubernetes node of that name."""
    return [one for one in nodesets if _neighbour(one, older=False, machines=machines).wants(name, machine)]


def taken(seen: Observation, name: str, machine: Node | None = None) -> Hold | None:
    """Say why a NodeSet must not make a worker of a name, if it is another one's."""
    if not seen.neighbours or (machine is None and series(seen.nodeset) is None):
        # With host networking a worker has the name of its Kubernetes node, which is not known yet.
        return None
    bearers = seen.bearers.get(name, _NOBODY)
    having = next((one for one in seen.neighbours if one.uid in bearers), None)
    if having is not None:
        return _hold(seen, having, f"{name!r} in Slurm is a worker of NodeSet {having.name}")
    node = machine or _called(seen.nodes, name)
    wanting = next((one for one in seen.neighbours if one.older and one.wants(name, node)), None)
    if wanting is None:
        return None
    return _hold(seen, wanting, f"{name!r} in Slurm is for NodeSet {wanting.name}, which is older")


def shared(seen: Observation) -> dict[str, Hold]:
    """Return the names of this NodeSet's workers that workers of an older one have, too, each with a hold."""
    older = [one for one in seen.neighbours if one.older]
    if not older:
        return {}
    mine = {seen.nodeset.metadata.uid}
    found = {}
    for worker in seen.workers:
        name = worker.slurm_name
        bearers = seen.bearers.get(name, _NOBODY)
        if bearers == mine:
            continue
        if (other := next((one for one in older if one.uid in bearers), None)) is not None:
            text = f"{name!r} in Slurm is a worker of NodeSet {other.name}, too, which is older"
            found[name] = _hold(seen, other, text, ", and delete this one's pod when no job is in it")
    return found


def borne(seen: Observation, name: str) -> bool:
    """Tell whether another NodeSet has a worker of a name."""
    bearers = seen.bearers.get(name, _NOBODY)
    return any(one.uid in bearers for one in seen.neighbours)


def _neighbour(nodeset: NodeSet, *, older: bool, machines: Callable[[NodeSet], Fit | None]) -> Neighbour:
    follows = nodeset.spec.scaling_mode == ScalingMode.DAEMON_SET and not nodeset.deleting
    return Neighbour(
        name=nodeset.metadata.name,
        uid=nodeset.metadata.uid,
        older=older,
        numbers=series(nodeset),
        machines=machines(nodeset) if follows else None,
    )


def _called(nodes: Mapping[str, Node], name: str) -> Node | None:
    """Return the Kubernetes node that gives its worker a name."""
    node = nodes.get(name)
    return node if node is not None and expected_hostname(node) == name else None


def _hold(seen: Observation, other: Neighbour, text: str, rest: str = "") -> Hold:
    by_machine = series(seen.nodeset) is None and other.numbers is None
    field = "nodeSelector" if by_machine else "hostname"
    return Hold(Wait.NAME_TAKEN, f"{text}: change spec.template.spec.{field} of one of them{rest}")


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
