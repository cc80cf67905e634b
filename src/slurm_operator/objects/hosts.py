"""The addresses in slurm.conf of several slurmctlds in high availability.

slurm.conf has a line for each of them, `SlurmctldHost=name(address)`, and every command, slurmrestd and the
standbys themselves resolve all of these addresses, whichever they use. The DNS name that the headless Service
gives a pod resolves only while the pod has an address. For a pod that cannot be scheduled it does not, and
Slurm tries ten times, a second apart, before it goes on. That makes every command slow, slurmrestd too slow
for this operator, and the standby late with everything it does.

So each slurmctld has a Service of its own, whose address is stable. While there is no pod behind it, a
connection is refused at once. With a single slurmctld none of this is needed.

The order matters twice. A slurm.conf must not name a Service that does not exist, or that belongs to another
owner: a standby that cannot reach the first slurmctld would try to take over from it. So the configuration
waits until all Services exist. And a Service that is no longer needed stays until the pods whose slurm.conf
names it are replaced.

A cluster of Slinky slurm-operator, or of an older version of this one, has the names of pods in its
slurm.conf. It works, so it is not worth a restart: they stay until slurmctld has to be restarted for another
reason. Whether it has to is determined from the StatefulSet or, while that is being replaced and its pods
keep running, from the slurm.conf they have.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurm_operator.api import wellknown
from slurm_operator.objects import slurm_conf, slurmctld
from slurm_operator.objects.desired import ObjectName, Unbuildable
from slurm_operator.objects.max_node_count import keep_room

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurm_operator.api import Controller
    from slurm_operator.objects.content_references import Found
    from slurm_operator.objects.desired import Desired
    from slurm_operator.objects.slurm_conf import SlurmCluster

# As many as `ha.backups` allows, and the first.
_MOST: Final = 10
# What tells of the Services, or is made of what does.
_WAITING: Final = ("ConfigMap", "StatefulSet")


def keep_running(cluster: SlurmCluster, found: Found, written: str, running: str) -> SlurmCluster:
    """Return the cluster with what slurmctld must not lose (`keep_room`) or need not be restarted for.

    `written` is the slurm.conf that was written last, and `running` the hash of the files that slurmctld runs
    with; each is empty if there is none. One that is told of changes is not restarted for them.
    """
    controller = cluster.controller
    if controller.replicas > 1 and not controller.spec.inplace_reconfigure:
        by_pod = keep_room(replace(cluster, by_pod=True), found, written, running)
        with suppress(Unbuildable):
            if _is_known(by_pod, found, written, running):
                return by_pod
    return keep_room(cluster, found, written, running)


def _is_known(cluster: SlurmCluster, found: Found, written: str, running: str) -> bool:
    """Return whether slurmctld has the files of this cluster already."""
    if running:
        return slurmctld.config_hash(cluster, found) == running
    return slurm_conf.controller_files(cluster, found)[wellknown.FILE_SLURM_CONF] == written


def possible(controller: Controller) -> frozenset[str]:
    """Return the names of all Services that slurmctlds of this Controller may have or have had."""
    return frozenset(f"{controller.workload_name}-{ordinal}" for ordinal in range(_MOST))


def complete(cluster: SlurmCluster, there: Collection[str]) -> bool:
    """Return whether all Services are there, and ours, that the slurm.conf of a cluster names."""
    return cluster.by_pod or _wanted(cluster) <= set(there)


def in_order(cluster: SlurmCluster, desired: Desired, there: Collection[str], *, settled: bool) -> Desired:
    """Return what to do about the children now.

    `there` has the names of the Services that are ours; `settled` says that all pods are as they should be.
    """
    if settled:
        needless = sorted(set(there) - _wanted(cluster))
        desired = replace(
            desired, unwanted=(*desired.unwanted, *(ObjectName("v1", "Service", name) for name in needless))
        )
    if complete(cluster, there):
        return desired
    return replace(desired, objects=tuple(item for item in desired.objects if item["kind"] not in _WAITING))


def _wanted(cluster: SlurmCluster) -> set[str]:
    return {item["metadata"]["name"] for item in slurmctld.host_services(cluster.controller)}
