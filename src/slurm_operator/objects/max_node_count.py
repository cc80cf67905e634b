"""The MaxNodeCount that a running slurmctld keeps.

MaxNodeCount grows at once, since nodes beyond it cannot register. It never shrinks by itself: a slurmctld
that starts with a MaxNodeCount below its number of node records drops those beyond it, and the jobs that run
on them. The number of these records does not follow from the NodeSets. Workers that are scaled in drain for
as long as their jobs take, the records of deleted workers may stay, and some nodes may not be managed by this
operator. An administrator who needs another value sets MaxNodeCount in `extraConf`.

The current value is in the slurm.conf that was written last, in the ConfigMap. If that is gone, the value is
recovered from the hash in the pod template, as long as nothing else has changed. A larger value than needed,
written into the ConfigMap by hand, does no harm and stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_operator.objects import slurm_conf, slurmctld
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.slurm.conf.conf_lines import settings

if TYPE_CHECKING:
    from slurm_operator.objects.content_references import Found
    from slurm_operator.objects.slurm_conf import SlurmCluster

_MAX_DIGITS = 9


def keep_room(cluster: SlurmCluster, found: Found, written: str, running: str) -> SlurmCluster:
    """Return the cluster with at least the room that slurmctld has.

    `written` is the slurm.conf that was written last, and `running` the hash of the files that slurmctld runs
    with; each is empty if there is none.
    """
    kept = replace(cluster, room=_room(written))
    if kept.room or not running:
        return kept
    try:
        room = slurm_conf.max_nodes(cluster.controller, cluster.node_sets)
        wider = cluster
        while slurmctld.config_hash(wider, found) != running:
            if (room := 2 * room) > slurm_conf.MOST_NODES:
                return cluster
            wider = replace(cluster, room=room)
    except Unbuildable:
        return cluster  # and nothing is rendered
    return wider


def _room(written: str) -> int:
    count = settings(written).get("maxnodecount", "")
    return int(count) if count.isascii() and count.isdigit() and len(count) <= _MAX_DIGITS else 0
