"""How many workers there should be, and which ones go: one worker per Kubernetes node.

A pod on a node that Kubernetes does not have any more is left to Kubernetes, which collects it. Of several
pods for one node the best stays: the one that serves, else the oldest.

A worker is called after its node, up to the first dot, or as an annotation of the node says. So two nodes may
ask for one name, as all nodes that are called by their IP addresses do. Two slurmd of one name would fight
for the node in Slurm, and jobs would be lost: the node whose worker has the name keeps it, else the first;
the other nodes get no worker, and their existing workers keep their names, until an administrator annotates
the nodes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    CreatePod,
    Defer,
    Note,
    RemovalCause,
)
from slurm_operator.controllers.nodeset.decide.claims import obstacle
from slurm_operator.controllers.nodeset.decide.name_conflicts import (
    daemon_name,
    expected_hostname,
    name_conflict,
)
from slurm_operator.controllers.nodeset.decide.scale import (
    NAME_TAKEN_SECONDS,
    Demand,
    full,
    leave_other_mode,
    marked,
    name_in_use,
    replace_finished,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_operator.controllers.nodeset.decide.observation import Observation, Worker
    from slurm_operator.kube.models.kinds import Node


def per_node(seen: Observation) -> Demand:
    """Decide about the workers of a NodeSet that follows the nodes."""
    demand = Demand(0)
    leave_other_mode(seen, demand)
    pods: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in seen.workers:
        # One that has ended and is being deleted only waits for its kubelet: its node is free.
        if worker.mode == seen.nodeset.spec.scaling_mode and not (worker.finished and worker.deleting):
            pods[worker.node].append(worker)
            if not worker.scheduled and worker.node not in seen.nodes and worker.active:
                # Kubernetes collects what ran on a node that is gone, not what waits for it to come.
                demand.going[worker.uid] = RemovalCause.NODE_UNFIT
    wanted: list[tuple[Node, str]] = []
    check = seen.memo.node_checks(seen.fit, seen.nodes, expected_hostname)
    for name, node in seen.nodes.items():
        keeps, admits, hostname = check(node)
        here = pods.get(name)
        if here and not keeps:
            _all_go(here, RemovalCause.NODE_UNFIT, demand)
        elif here or admits:
            wanted.append((node, hostname))
    losers = _losers(wanted, pods, demand)
    users = {worker.slurm_name: worker for worker in seen.workers if not worker.finished}
    for node, hostname in wanted:
        lost = node.metadata.name in losers
        if here := pods.get(node.metadata.name):
            demand.desired += 1
            _keep_one(here, hostname, demand, renames=not lost)
        elif not lost and (foreign := name_conflict(seen, hostname, node)) is not None:
            demand.waits.append(foreign)
            demand.requeue_after.append(NAME_TAKEN_SECONDS)
        elif not lost:
            demand.desired += 1
            _create(seen, node, users, demand)
    replace_finished(seen, demand.stay, demand)
    if demand.creates:
        message = messages.creating_on_nodes(len(demand.creates))
        demand.notes.append(Note(Reason.SCALING_UP, "ScaleUp", message))
    return demand


def _losers(wanted: list[tuple[Node, str]], pods: Mapping[str, list[Worker]], demand: Demand) -> set[str]:
    """Return the Kubernetes nodes whose name in Slurm is another one's, and say so."""
    losers: set[str] = set()
    if len({hostname for _, hostname in wanted}) == len(wanted):
        return losers
    asking: defaultdict[str, list[str]] = defaultdict(list)
    for node, hostname in wanted:
        asking[hostname].append(node.metadata.name)
    for hostname, some in asking.items():
        if len(some) == 1:
            continue
        first, *rest = sorted(some, key=lambda name: (not _has_name(pods.get(name, ()), hostname), name))
        losers.update(rest)
        text = messages.same_name(hostname, first, rest[0])
        demand.waits += [Defer(Reason.NAME_TAKEN, text)] * len(rest)
    return losers


def _has_name(pods: Iterable[Worker], hostname: str) -> bool:
    return any(worker.slurm_name == hostname and worker.active for worker in pods)


def _create(seen: Observation, node: Node, users: Mapping[str, Worker], demand: Demand) -> None:
    if full(demand):
        return
    name, hostname = daemon_name(seen.nodeset, node), expected_hostname(node)
    blocked = name_in_use(hostname, users) or obstacle(seen, hostname, name)
    if blocked is None:
        failures = seen.failures.get(name, 0)
        demand.creates.append(CreatePod(name, node=node.metadata.name, failures=failures))
    else:
        demand.waits.append(blocked)
        demand.requeue_after.append(5.0)


def _keep_one(pods: list[Worker], wanted: str, demand: Demand, *, renames: bool) -> None:
    active = [worker for worker in pods if not worker.deleting]
    if not active:
        return
    best = active[0] if len(active) == 1 else min(active, key=_worth)
    demand.going |= {worker.uid: RemovalCause.DUPLICATE for worker in active if worker is not best}
    demand.stay.append(best)
    hostname = best.labels.get(wellknown.LABEL_POD_HOSTNAME) or best.slurm_name
    if renames and hostname != wanted:
        demand.going[best.uid] = RemovalCause.HOSTNAME
        if not marked(best, RemovalCause.HOSTNAME):
            text = messages.renaming(best.name, hostname, wanted)
            demand.notes.append(Note(Reason.HOSTNAME_MISMATCH, "Info", text, pod=best.name))


def _worth(worker: Worker) -> tuple[bool, bool, bool, object, str]:
    return (worker.finished, not worker.ready, not worker.started, worker.created, worker.name)


def _all_go(pods: list[Worker], cause: RemovalCause, demand: Demand) -> None:
    demand.going |= {worker.uid: cause for worker in pods if worker.active}
