"""Keep the label by which the clients' Service finds the slurmctld in charge.

Who is in charge is what slurmrestd's pings say, by host name. The decision is in `objects.active`; here pods
are patched, each as the very one that was observed, and in the order given: should the patch of the new one
fail, the old one keeps its label.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slurm_operator.api import Controller, wellknown
from slurm_operator.controllers.shared.pod_problems import is_named
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import Conflict, NotFound
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import Key
from slurm_operator.objects.active import active_pod, relabel
from slurm_operator.slurm.rest.connections import ConnectionKey

if TYPE_CHECKING:
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.cache.informer import Informer
    from slurm_operator.slurm.model.records import Ping
    from slurm_operator.slurm.model.view import ClusterView, ViewUpdate


class ActiveLabel:
    """Moves the label from pod to pod."""

    def __init__(self, wiring: Wiring, pods: Informer[Pod]) -> None:
        self._client = wiring.client
        self._connections = wiring.connections
        self._pods = pods

    async def follow(self, controller: Controller) -> None:
        """Label the pod of the slurmctld in charge."""
        pods = [
            pod for pod in self._pods.store.list(controller.metadata.namespace) if _is_of(controller, pod)
        ]
        labelled = {pod.metadata.name: is_active(pod) for pod in pods}
        ready = {pod.metadata.name for pod in pods if pod.ready and not pod.deleting}
        changes = relabel(labelled, active_pod(controller, self._pings(controller)), ready)
        for name, has in changes.items():
            if not await self._label(controller, name, has=has):
                return  # the pod was deleted or replaced meanwhile, and that event triggers a reconcile

    def _pings(self, controller: Controller) -> tuple[Ping, ...]:
        connection = self._connections.get(ConnectionKey("Controller", *controller.key))
        return () if connection is None else fresh_pings(connection.view, asyncio.get_running_loop().time())

    async def _label(self, controller: Controller, name: str, *, has: bool) -> bool:
        namespace = controller.metadata.namespace
        pod = self._pods.store.get(Key(namespace, name))
        if pod is None:
            return False
        value = wellknown.TRUE if has else None
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {wellknown.LABEL_CONTROLLER_ACTIVE: value}}}
        try:
            await self._client.patch(Pod, name, namespace, body, type=PatchType.MERGE)
        except (NotFound, Conflict):
            return False
        return True


def fresh_pings(view: ClusterView, now: float) -> tuple[Ping, ...]:
    """Return the pings of a view; none when they are too old to show which slurmctld is active."""
    taken = view.controllers_pinged_at
    return view.controllers if taken is not None and now - taken <= view.stale_after else ()


def pings_changed(update: ViewUpdate) -> bool:
    """Return whether another slurmctld may be in charge now."""
    return _responding(update.previous) != _responding(update.view)


def _responding(view: ClusterView) -> list[tuple[str, bool]]:
    return [(ping.hostname, ping.responding) for ping in view.controllers]


def is_active(pod: Pod) -> bool:
    """Return whether the Service leads to a pod."""
    return pod.metadata.labels.get(wellknown.LABEL_CONTROLLER_ACTIVE) == wellknown.TRUE


def _is_of(controller: Controller, pod: Pod) -> bool:
    """Return whether a pod is one of the Controller's StatefulSet, or was until that was recreated."""
    labels = pod.metadata.labels
    if not is_named(labels, wellknown.APP_SLURMCTLD):
        return False
    if labels.get(wellknown.LABEL_APP_INSTANCE) != controller.metadata.name:
        return False
    owner = pod.controller_owner
    named = {controller.pod_name(ordinal) for ordinal in range(controller.replicas)}
    return pod.metadata.name in named and (
        owner is None or (owner.kind, owner.name) == ("StatefulSet", controller.workload_name)
    )
