"""Pods that keep their own replacement from being made; pure.

A StatefulSet that starts its pods in order waits until a pod is ready before it replaces it, even when the
pod is of an old revision and will never be ready: a wrong image, a node that does not exist. The user fixes
the mistake in the spec, and the pod stays. Such a pod serves no clients and will be replaced in any case, so
it may be deleted. A pod in which a daemon runs may not, even if that daemon is still reading its state and
has not answered a probe yet; nor may a pod that is bound to a node and whose kubelet has reported no
containers yet: a daemon may run in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
    from slurm_operator.kube.models.kinds import Pod

_REVISION: Final = "controller-revision-hash"


def stuck_pods(workload: StatefulSetDetails, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of an old version that a StatefulSet waits for and in which nothing runs."""
    status = workload.status
    if workload.deleting or status.observed_generation != workload.metadata.generation:
        return []
    if not status.update_revision:
        return []
    return [
        pod
        for pod in pods
        if (owner := pod.controller_owner) is not None
        and owner.uid == workload.metadata.uid
        and pod.metadata.labels.get(_REVISION) != status.update_revision
        and not (pod.ready or pod.deleting)
        and not _may_run(pod)
    ]


def _may_run(pod: Pod) -> bool:
    """Return whether a daemon may run in the pod."""
    containers = pod.status.container_statuses
    if not containers:
        return bool(pod.spec.node_name)
    return any(
        one.started or one.ready or one.state is None or one.state.running is not None for one in containers
    )
