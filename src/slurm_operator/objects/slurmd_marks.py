"""What the operator writes on a Slurm node so that people, and the next operator, understand it.

The comment says which pod the node is; it is JSON with its keys in an order that never changes, because two
comments are compared as texts. The reason of a drain says why, in words that have to stay: dashboards match
them, and a drain that the Go operator made is recognised by them. The prefix that marks a reason as ours is
added by the writer (`slurm.wishes`), and so is the limit of its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.slurm.wishes import sanitise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_operator.api import NodeSet
    from slurm_operator.kube.models import Node, Pod

# --------------------------------------------------------------------------------------------------- comment


class PodInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The comment of a Slurm node: which pod it is. The order of the fields is that of the Go operator."""

    namespace: str
    pod_name: str
    node: str
    node_set_name: str = ""
    node_set_uid: str = msgspec.field(default="", name="nodeSetUID")


_DECODER = msgspec.json.Decoder(PodInfo)


def pod_info(comment: str) -> PodInfo | None:
    """Read the comment of a node; None when it is not one of ours."""
    if not comment.startswith("{"):
        return None
    try:
        return _DECODER.decode(comment)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def comment(nodeset: NodeSet, pod: Pod) -> str:
    """Return the comment of the Slurm node that a pod is."""
    info = PodInfo(
        namespace=pod.metadata.namespace,
        pod_name=pod.metadata.name,
        node=pod.spec.node_name,
        node_set_name=nodeset.metadata.name,
        node_set_uid=nodeset.metadata.uid,
    )
    return msgspec.json.encode(info).decode()


# --------------------------------------------------------------------------------------------------- reasons


def pod_cordoned(pod: Pod) -> str:
    """Return why a node is drained whose pod somebody cordoned."""
    return f"Pod ({pod.key}) was cordoned"


def pod_uncordoned(pod: Pod) -> str:
    """Return why a node takes work again."""
    return f"Pod ({pod.key}) was uncordoned"


def pod_condemned(pod: Pod) -> str:
    """Return why a node is drained whose pod is to be deleted, for whatever reason."""
    return f"Pod ({pod.key}) is pending termination for scale-in"


def node_cordoned(pod: Pod, node: Node, propagated: Sequence[str] = ()) -> str:
    """Return why a node is drained whose machine somebody cordoned.

    What an annotation of the machine says comes first; then those of its conditions that the operator was
    told to pass on, in the order in which it was told.
    """
    given = sanitise(
        node.metadata.annotations.get(wellknown.ANNOTATION_NODE_CORDON_REASON, ""), wellknown.MAX_NODE_REASON
    )
    if given:
        return given
    conditions = (node.condition(kind) for kind in propagated)
    told = "; ".join(
        f"({condition.reason}: {condition.message})"
        for condition in conditions
        if condition is not None and condition.status == "True"
    )
    return told or f"Node ({node.metadata.name}) was cordoned, Pod ({pod.key}) must be cordoned"
