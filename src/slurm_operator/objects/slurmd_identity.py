"""The identity of a worker: its names, the labels that carry them, and the node it belongs to.

There are two kinds of identity. A *numbered* worker (scaling mode StatefulSet) has an ordinal, and keeps its
name, its hostname and its volumes after a restart, on any node. A worker *of a node* (scaling mode DaemonSet)
has a random pod name, and its hostname and its volumes are those of the node.

slurmd gets its name as an argument (`-N`): the hostname or, for a numbered worker on the network of its node,
the name of that Node. An annotation marks the pods to which this applies (`slurmd_args`); the name of others
is a guess.

The hostname must be fit to be one; what is not is refused here, with the field or annotation to look at,
instead of by the API server at each attempt. The labels are read back as state, also by Slinky
slurm-operator: the scaling mode of a pod is the one on its label, not that of the NodeSet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import ScalingMode, daemon_hostname, slurm_node_name
from slurm_operator.objects.desired import invalid
from slurm_operator.objects.labels import App

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.kube.models.kinds import Node, Pod

SLURMD = App(wellknown.APP_SLURMD, wellknown.COMPONENT_WORKER)

_HOSTNAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ORDINAL = re.compile(r"[0-9]+")
_MAX_LABEL = 63
# More digits than any NodeSet has workers: a longer number is some other pod's name.
MAX_ORDINAL_DIGITS = 9


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """One worker that should exist; `index` is the padded ordinal, `node` the node it is bound to."""

    mode: ScalingMode
    name: str
    hostname: str
    index: str = ""
    node: str = ""
    topology: str | None = None

    @property
    def claim_identity(self) -> str:
        """Return the part of a claim's name that tells workers of one NodeSet apart."""
        return self.index if self.mode is ScalingMode.STATEFUL_SET else self.hostname


def numbered(nodeset: NodeSet, ordinal: int, pin: Node | None = None) -> WorkerIdentity:
    """Return the worker with a number, bound to a Kubernetes node if it has to return there."""
    name = nodeset.pod_name(ordinal)
    prefix = nodeset.spec.template.spec.get("hostname")
    hostname = _fit_hostname(
        nodeset.pod_hostname(ordinal), "spec.template.spec.hostname" if prefix else "metadata.name"
    )
    if len(name) > _MAX_LABEL:
        raise invalid(
            "metadata.name",
            f"the pod name {name!r} has more than {_MAX_LABEL} characters; use a shorter name",
        )
    return WorkerIdentity(
        ScalingMode.STATEFUL_SET,
        name,
        hostname,
        index=nodeset.padded(ordinal),
        node=pin.metadata.name if pin else "",
        topology=node_topology(pin) if pin else None,
    )


def of_node(node: Node, name: str) -> WorkerIdentity:
    """Return the worker of a node; its pod gets the name given, which should be a generated one."""
    annotations = node.metadata.annotations
    override = annotations.get(wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE)
    where = f"annotation {wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE}" if override else "metadata.name"
    hostname = _fit_hostname(
        daemon_hostname(node.metadata.name, annotations), f"{where} of Node {node.metadata.name!r}"
    )
    return WorkerIdentity(
        ScalingMode.DAEMON_SET, name, hostname, node=node.metadata.name, topology=node_topology(node)
    )


def node_topology(node: Node) -> str:
    """Return the place of a node in the network from its topology annotation; empty without one."""
    return node.metadata.annotations.get(wellknown.ANNOTATION_TOPOLOGY, "")


def identity_labels(worker: WorkerIdentity, *, host_network: bool) -> dict[str, str]:
    """Return the labels of a new pod that say which worker it is.

    A numbered worker on the network of its node registers under the node's name, which is known only
    once it runs there; `overdue_labels` adds it then.
    """
    labels = {
        wellknown.LABEL_POD_NAME: worker.name,
        wellknown.LABEL_SCALING_MODE: worker.mode.value,
    }
    if worker.index:
        labels[wellknown.LABEL_POD_INDEX] = worker.index
    if not (host_network and worker.mode is ScalingMode.STATEFUL_SET):
        labels[wellknown.LABEL_POD_HOSTNAME] = worker.hostname
    return labels


# ---------------------------------------------------------------------------------------------- existing pods


def scaling_mode(pod: Pod) -> str:
    """Return the mode in which a pod was made."""
    return pod.metadata.labels.get(wellknown.LABEL_SCALING_MODE, "")


def node_of(pod: Pod) -> str:
    """Return the name under which a pod registers in Slurm; empty while that cannot be known."""
    return slurm_node_name(
        scaling_mode=scaling_mode(pod),
        stated=pod.metadata.annotations.get(wellknown.ANNOTATION_STATED_NAME) == wellknown.TRUE,
        pod_name=pod.metadata.name,
        hostname=pod.spec.hostname,
        host_network=pod.spec.host_network,
        node_name=pod.spec.node_name,
    )


def ordinal_of(nodeset: NodeSet, pod_name: str) -> int | None:
    """Return the number in the name of a pod; None if it is not the name of a numbered worker of this set."""
    digits = pod_name.removeprefix(nodeset.pod_generate_name)
    if digits == pod_name or not _ORDINAL.fullmatch(digits) or len(digits) > MAX_ORDINAL_DIGITS:
        return None
    return int(digits)


def claim_identity_of(nodeset: NodeSet, pod: Pod) -> str:
    """Return the part of its claims' names that a pod has for itself; empty when it has none."""
    if scaling_mode(pod) == ScalingMode.DAEMON_SET:
        # The label has the name in Slurm, which on the network of the node may be another one.
        return pod.spec.hostname or pod.metadata.labels.get(wellknown.LABEL_POD_HOSTNAME, "")
    ordinal = ordinal_of(nodeset, pod.metadata.name)
    return "" if ordinal is None else pod.metadata.name.removeprefix(nodeset.pod_generate_name)


def overdue_labels(nodeset: NodeSet, pod: Pod) -> dict[str, str]:
    """Return the labels of identity that a pod lacks, or has with a wrong value."""
    wanted = {wellknown.LABEL_POD_NAME: pod.metadata.name}
    if scaling_mode(pod) == ScalingMode.STATEFUL_SET:
        wanted[wellknown.LABEL_POD_INDEX] = claim_identity_of(nodeset, pod)
    wanted[wellknown.LABEL_POD_HOSTNAME] = node_of(pod)
    return {
        name: value
        for name, value in wanted.items()
        if value and len(value) <= _MAX_LABEL and pod.metadata.labels.get(name) != value
    }


def _fit_hostname(hostname: str, where: str) -> str:
    if not _HOSTNAME.fullmatch(hostname):
        raise invalid(
            where,
            f"workers would have the hostname {hostname!r}, which is not valid; use at most 63 lowercase "
            "letters, digits and dashes, and neither start nor end with a dash",
        )
    return hostname
