"""How many workers there should be, and which ones go: one worker per Kubernetes node.

A pod on a node that Kubernetes does not have any more is left to Kubernetes, which collects it. Of several
pods for one node the best stays: the one that serves, else the oldest.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.actions import CreatePod, Note
from slurm_operator.controllers.nodeset.claims import obstacle
from slurm_operator.controllers.nodeset.daemon import daemon_name, expected_hostname
from slurm_operator.controllers.nodeset.decisions import Cause
from slurm_operator.controllers.nodeset.scaling import Demand, leave_other_mode, replace_finished

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.observation import Observation, Worker
    from slurm_operator.kube.models import Node


def per_node(seen: Observation) -> Demand:
    """Decide about the workers of a NodeSet that follows the nodes."""
    demand = Demand(0)
    leave_other_mode(seen, demand)
    pods: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in seen.workers:
        # One that has ended and is being deleted only waits for its kubelet: its node is free.
        if worker.mode == seen.nodeset.spec.scaling_mode and not (worker.finished and worker.deleting):
            pods[worker.node].append(worker)
    for name, node in seen.nodes.items():
        here = pods.get(name, [])
        if here and not seen.fit.keeps(node):
            _all_go(here, Cause.NODE_UNFIT, demand)
        elif here:
            demand.desired += 1
            _keep_one(here, node, demand)
        elif seen.fit.admits(node):
            demand.desired += 1
            _create(seen, node, demand)
    replace_finished(seen, demand.stay, demand)
    if demand.creates:
        message = f"Creating {len(demand.creates)} pods on nodes that match"
        demand.notes.append(Note("ScalingUp", "ScaleUp", message))
    return demand


def _create(seen: Observation, node: Node, demand: Demand) -> None:
    name = daemon_name(seen.nodeset, node)
    blocked = obstacle(seen, expected_hostname(node), name)
    if blocked is None:
        demand.creates.append(CreatePod(name, node=node.metadata.name))
    else:
        demand.waits.append(blocked)
        demand.looks.append(5.0)


def _keep_one(pods: list[Worker], node: Node, demand: Demand) -> None:
    active = [worker for worker in pods if worker.active]
    best = min(active, key=_worth, default=None)
    for worker in active:
        if worker is not best:
            demand.going[worker.uid] = Cause.DUPLICATE
    if best is None:
        return
    demand.stay.append(best)
    hostname = best.labels.get(wellknown.LABEL_POD_HOSTNAME) or best.slurm_name
    if hostname != expected_hostname(node):
        demand.going[best.uid] = Cause.HOSTNAME
        text = f"Pod {best.name} is {hostname} in Slurm and should be {expected_hostname(node)}"
        demand.notes.append(Note("HostnameMismatch", "Info", text, pod=best.name))


def _worth(worker: Worker) -> tuple[bool, bool, bool, object, str]:
    return (worker.finished, not worker.ready, not worker.started, worker.created, worker.name)


def _all_go(pods: list[Worker], cause: Cause, demand: Demand) -> None:
    demand.going |= {worker.uid: cause for worker in pods if worker.active}
