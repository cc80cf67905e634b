"""Records in Slurm of workers that are gone for good.

A record is known by its comment, which names the pod and the NodeSet, UID included. It is deleted only if the
pod is not there, nothing will bring it back, the node is down without work, and no person has drained it: a
drain would be forgotten with the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api.nodeset import PruneRecords
from slurm_operator.controllers.nodeset.decide.actions import DeleteRecord, Note
from slurm_operator.controllers.nodeset.decide.name_conflicts import borne, expected_hostname
from slurm_operator.controllers.nodeset.decide.slurm_state import draining, node_busy
from slurm_operator.objects.slurmd_marks import pod_info

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decide.observation import Observation
    from slurm_operator.controllers.nodeset.decide.scale import Demand
    from slurm_operator.controllers.nodeset.decide.slurm_state import Sight
    from slurm_operator.objects.slurmd_marks import PodInfo
    from slurm_operator.slurm.model import Node


def prune(seen: Observation, sight: Sight, demand: Demand) -> tuple[list[DeleteRecord], list[Note]]:
    """Return the records to delete."""
    policy = seen.nodeset.spec.prune_slurm_node_records
    if policy == PruneRecords.NEVER or seen.view is None:
        return [], []
    if not seen.daemon and (policy != PruneRecords.SCALED_IN or not _at_rest(seen, demand)):
        return [], []
    pods = {worker.name for worker in seen.workers}
    in_use = {worker.slurm_name for worker in seen.workers}
    records, notes = [], []
    for name in seen.view.nodes:
        info = pod_info(seen.view.nodes[name].comment)
        if info is None or name in in_use or info.pod_name in pods or not _mine(seen, info):
            continue
        if borne(seen, name):
            continue
        node = sight.node(name)
        if (
            node is None
            or not _defunct(seen, sight, node)
            or (seen.daemon and not _orphaned(seen, info, name))
        ):
            continue
        records.append(DeleteRecord(name))
        text = f"Slurm forgets node {name} of pod {info.pod_name}, which is gone"
        notes.append(Note("DefunctSlurmNodePruned", "Delete", text))
    return records, notes


def _mine(seen: Observation, info: PodInfo) -> bool:
    meta = seen.nodeset.metadata
    return bool(info.pod_name) and (info.namespace, info.node_set_name, info.node_set_uid) == (
        meta.namespace,
        meta.name,
        meta.uid,
    )


def _at_rest(seen: Observation, demand: Demand) -> bool:
    """Tell whether every wanted pod is there: a missing one would come back under its old name."""
    return not demand.going and not demand.creates and len(seen.workers) == demand.desired


def _defunct(seen: Observation, sight: Sight, node: Node) -> bool:
    jobs = seen.view.jobs if seen.view is not None else None
    holds = jobs is None or node.name in jobs.holds or bool(jobs.unplaced)
    drained_by_others = draining(node) and not sight.ours(node.name)
    silent = "NOT_RESPONDING" in node.state or not seen.daemon
    return "DOWN" in node.state and silent and not (holds or node_busy(node) or drained_by_others)


def _orphaned(seen: Observation, info: PodInfo, name: str) -> bool:
    """Tell whether the Kubernetes node of a record is gone, or would be called otherwise now."""
    if not info.node:
        return False
    node = seen.nodes.get(info.node)
    return node is None or expected_hostname(node) != name
