"""For how many nodes a running slurmctld keeps room.

MaxNodeCount grows at once, since nodes beyond it cannot register. It never shrinks by itself: a slurmctld
that starts with less room than it has records of nodes drops those beyond it, and the jobs that run on them.
What the NodeSets declare says nothing of these records. Workers that are scaled in drain for as long as their
jobs take, the records of those that are gone may stay, and some nodes may be none of ours. Whoever knows
better sets MaxNodeCount in `extraConf`.

The room that there is stands in the slurm.conf that was written last, in the ConfigMap. Where that is gone,
the hash in the template of the pods still tells, as long as nothing else changes. More room than anybody
asked for, written there by hand, harms nobody and stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_operator.objects import config, slurmctld
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.slurm.confline import settings

if TYPE_CHECKING:
    from slurm_operator.objects.config import Cluster
    from slurm_operator.objects.references import Found

_MAX_DIGITS = 9


def keep_room(cluster: Cluster, found: Found, written: str, running: str) -> Cluster:
    """Return the cluster with at least the room that slurmctld has.

    `written` is the slurm.conf that was written last, and `running` the hash of the files that slurmctld runs
    with; each is empty if there is none.
    """
    kept = replace(cluster, room=_room(written))
    if kept.room or not running:
        return kept
    try:
        room = config.max_nodes(cluster.controller, cluster.node_sets)
        wider = cluster
        while slurmctld.config_hash(wider, found) != running:
            if (room := 2 * room) > config.MOST_NODES:
                return cluster
            wider = replace(cluster, room=room)
    except Unbuildable:
        return cluster  # and nothing is rendered
    return wider


def _room(written: str) -> int:
    count = settings(written).get("maxnodecount", "")
    return int(count) if count.isascii() and count.isdigit() and len(count) <= _MAX_DIGITS else 0
