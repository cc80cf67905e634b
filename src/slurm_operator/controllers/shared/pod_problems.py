"""The pods of a workload: whose they are, and why they do not run; pure.

A StatefulSet says nothing about pods that cannot start, and a Deployment only after ten minutes. So the pods
themselves are asked. What is said must not change from one restart of a container to the next: neither counts
nor times are repeated here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.kube.models.meta import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from slurm_operator.kube.models.kinds import ContainerStatus, Pod
    from slurm_operator.kube.models.store import Change

# Waiting for these is a matter of time.
_PATIENCE: Final = ("", "ContainerCreating", "PodInitializing")


def instances(app: str) -> Callable[[Change[Pod]], Iterable[Key]]:
    """Return the mapper from pods of one daemon to the custom resources that they are for."""

    def owners(change: Change[Pod]) -> Iterable[Key]:
        versions = [pod.metadata.labels for pod in (change.old, change.new) if pod is not None]
        names = {labels.get(wellknown.LABEL_APP_INSTANCE, "") for labels in versions if is_named(labels, app)}
        return [Key(change.key.namespace, name) for name in sorted(names) if name]

    return owners


def is_named(labels: dict[str, str], app: str) -> bool:
    """Return whether labels are those of one daemon."""
    return labels.get(wellknown.LABEL_APP_NAME) == app


def complaints(pods: Iterable[Pod], app: str, instance: str, placed_by: datetime) -> list[str]:
    """Return why pods of a custom resource do not run, each with its name.

    A pod that has been waiting for a node since after `placed_by` does not complain yet: its volume may be in
    the making, or a node for it.
    """
    mine = [
        pod
        for pod in pods
        if is_named(pod.metadata.labels, app)
        and pod.metadata.labels.get(wellknown.LABEL_APP_INSTANCE) == instance
        and not (pod.ready or pod.deleting)
    ]
    return [
        f"Pod {pod.metadata.name!r}: {found}"
        for pod in sorted(mine, key=lambda pod: pod.metadata.name)
        if (found := complaint(pod, placed_by))
    ]


def complaint(pod: Pod, placed_by: datetime) -> str:
    """Say why a pod does not run; empty if that is only a matter of time."""
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable":
        since = scheduled.last_transition_time
        waits = since is not None and since > placed_by
        return "" if waits else f"no node fits: {scheduled.message}"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if found := _container(status):
            return found
    return ""


def _container(status: ContainerStatus) -> str:
    waiting = status.state.waiting if status.state is not None else None
    if status.restart_count and not status.ready:
        # It waits longer and longer between its restarts; what it says of that changes each time.
        return f"container {status.name!r} keeps restarting: see its log"
    if waiting is not None and waiting.reason not in _PATIENCE:
        return f"container {status.name!r} cannot start: {waiting.reason}"
    return ""
