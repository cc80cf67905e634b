"""The comment of a Slurm node, which identifies its pod to administrators and to the next operator.

It is JSON with its keys in a fixed order, because two comments are compared as strings. The reasons of drains
are in `controllers.nodeset.decide.actions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from slurm_operator.api import NodeSet
    from slurm_operator.kube.models.kinds import Pod


class PodInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The comment of a Slurm node: which pod it is. The fields have the order of Slinky slurm-operator."""

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
