"""Binding: a worker gets the topology of its Kubernetes node in the same write that binds it to the node.

slurmd reads the topology from an environment variable, which the kubelet takes from an annotation of the pod,
once, when it starts the container. So the annotation must be there before the kubelet sees the pod. The API
server copies the annotations of a Binding to the pod when it binds: this webhook adds the one of the Node to
the Binding. Nothing is written out of band, so there is nothing to undo when the binding fails, and nothing
to be careful about in a dry run beyond the lookups, which it spares.

Every pod of every admitted namespace passes here, so the question is answered whatever happens: a lookup that
fails or is late leaves the Binding as it is, and the operator adds the topology later.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from slurm_operator.api import wellknown
from slurm_operator.kube.errors import KubeError, NotFound
from slurm_operator.kube.models.kinds import Node, Pod, metadata_only
from slurm_operator.kube.models.meta import ObjectMeta, Part
from slurm_operator.webhook.metrics import BINDINGS

if TYPE_CHECKING:
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.meta import Object
    from slurm_operator.webhook.rules.review import AdmissionRequest

_log = structlog.get_logger(__name__)

_POD: Final = metadata_only(Pod)
_NODE: Final = metadata_only(Node)
# A scheduler binds some hundred pods a second at most; beyond this they wait here and not in the API server.
_AT_ONCE: Final = 16


class BindingTarget(Part, frozen=True):
    """What a pod is bound to."""

    kind: str = ""
    name: str = ""


class Binding(Part, frozen=True):
    """The decision of a scheduler."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    target: BindingTarget = BindingTarget()


def is_worker(pod: Object) -> bool:
    """Return whether a pod runs slurmd."""
    return pod.metadata.labels.get(wellknown.LABEL_APP_NAME) == wellknown.APP_SLURMD


def topology_patch(binding: Binding, pod: Object, node: Object) -> list[dict[str, Any]]:
    """Return the JSON patch of a Binding that gives the pod the topology of its node.

    A node without the annotation removes nothing: the pod's template may set the topology.
    """
    key = wellknown.ANNOTATION_TOPOLOGY
    value = node.metadata.annotations.get(key, "")
    if not value or pod.metadata.annotations.get(key) == value:
        return []
    if not binding.metadata.annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": {key: value}}]
    return [{"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": value}]


class Binder:
    """Answers the questions about Bindings; never refuses one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def patch(self, request: AdmissionRequest, seconds: float) -> list[dict[str, Any]]:
        """Return the changes to a Binding, within a time; none when that cannot be found out."""
        if request.dry_run or request.new is None:
            return []
        try:
            binding = msgspec.json.decode(request.new, type=Binding)
            async with asyncio.timeout(seconds), self._slots:
                patch = await self._topology(binding, request, seconds)
        except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
            BINDINGS.labels("failed").inc()
            _log.warning(
                "cannot look up the topology of a node; the pod is bound without it",
                uid=request.uid,
                namespace=request.namespace,
                pod=request.name,
                error=str(error) or "deadline exceeded",
            )
            return []
        BINDINGS.labels("annotated" if patch else "unchanged").inc()
        return patch

    async def _topology(
        self, binding: Binding, request: AdmissionRequest, seconds: float
    ) -> list[dict[str, Any]]:
        name = binding.metadata.name or request.name
        namespace = binding.metadata.namespace or request.namespace
        try:
            pod = await self._client.get(_POD, name, namespace, timeout=seconds)
            if not is_worker(pod) or binding.target.kind not in ("", "Node") or not binding.target.name:
                return []
            node = await self._client.get(_NODE, binding.target.name, timeout=seconds)
        except NotFound:
            return []
        return topology_patch(binding, pod, node)
