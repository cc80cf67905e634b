from __future__ import annotations

from typing import Any

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide import messages
from slurm_operator.controllers.nodeset.decide.actions import (
    CreatePod,
    DrainNodes,
    RemovalCause,
    UndrainNodes,
)
from slurm_operator.controllers.nodeset.decide.name_conflicts import daemon_name
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.controllers.nodeset.decide.status import report
from slurm_operator.kube.models.kinds import Taint
from slurm_operator.objects.node_fit import node_fit
from tests.support.simulation.kubernetes import SimPod, make_node, make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import NOW, node

NODESET = make_nodeset(
    scalingMode="DaemonSet",
    finalizers=(wellknown.FINALIZER_DRAIN,),
    template={"spec": {"nodeSelector": {"gpu": "yes"}}},
)
FIT = node_fit(NODESET)


def daemon(index: int, **fields: Any) -> SimPod:
    settled = {"mode": "DaemonSet", "index": "", "name": f"gpu-x{index}", "hostname": f"node-{index}"}
    return pod(index, **(settled | fields))


def kube_node(index: int, *taints: Taint, gpu: str = "yes", **fields: Any) -> Any:
    node = make_node(f"node-{index}", labels={"gpu": gpu}, **fields)
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))


def decide(pods: list[SimPod], kube_nodes: list[Any], **fields: Any) -> Plan:
    nodes = {one.metadata.name: one for one in kube_nodes}
    return plan(observe(*pods, nodeset=NODESET, nodes=nodes, fit=FIT, **fields))


def creates(decided: Plan) -> list[str]:
    return [one.node for one in decided.actions if isinstance(one, CreatePod)]


def test_every_node_that_matches_gets_one_worker() -> None:
    """Nodes that do not match, or repel, get none; nobody asks Slurm."""
    repels = Taint(key="maintenance", effect="NoSchedule")
    decided = decide(
        [daemon(0)], [kube_node(0), kube_node(1), kube_node(2, gpu="no"), kube_node(3, repels)], view=None
    )
    assert creates(decided) == ["node-1"]
    assert decided.desired == 2


def test_a_worker_has_the_name_of_its_node() -> None:
    """A create that is repeated hits the pod that is there."""
    first, second = (creates_names(decide([], [kube_node(1)])) for _ in range(2))
    assert first == second == [daemon_name(NODESET, kube_node(1))]
    assert daemon_name(NODESET, kube_node(1)) != daemon_name(NODESET, kube_node(2))


def creates_names(decided: Plan) -> list[str]:
    return [one.name for one in decided.actions if isinstance(one, CreatePod)]


def test_a_worker_stays_on_a_node_that_only_takes_no_new_ones() -> None:
    """NoSchedule drives nobody away, NoExecute does."""
    keeps = decide([daemon(0)], [kube_node(0, Taint(key="x", effect="NoSchedule"))])
    drives = decide([daemon(0)], [kube_node(0, Taint(key="x", effect="NoExecute"))])
    assert keeps.going == {}
    assert drives.going == {"uid-0": RemovalCause.NODE_UNFIT}


def test_a_worker_whose_node_matches_no_more_goes() -> None:
    """A changed label takes the worker away."""
    assert decide([daemon(0)], [kube_node(0, gpu="no")]).going == {"uid-0": RemovalCause.NODE_UNFIT}


def test_a_worker_on_a_node_that_is_gone_is_left_to_kubernetes() -> None:
    """Kubernetes collects it; a node that the cache lacks must not empty a set."""
    decided = decide([daemon(0)], [])
    assert decided.going == {}


def test_of_two_workers_on_a_node_the_one_that_serves_stays() -> None:
    """The better pod stays, not the one that is easier to delete."""
    spare = daemon(0, name="gpu-y", uid="uid-9", ready_since=None, created=0.0)
    assert decide([spare, daemon(0)], [kube_node(0)]).going == {"uid-9": RemovalCause.DUPLICATE}


def test_the_drain_of_a_duplicate_is_not_taken_back_for_its_twin() -> None:
    """Pods that share a node in Slurm agree: one that must get no work outweighs one that may."""
    spare = daemon(0, name="gpu-y", uid="uid-9", created=NOW)
    busy = node("node-0", "MIXED", "DRAIN", alloc=1, reason="slurm-operator: x")
    decided = decide([spare, daemon(0)], [kube_node(0)], slurm=(busy,))
    assert not [one for one in decided.actions if isinstance(one, (DrainNodes, UndrainNodes))]


def test_a_worker_with_another_hostname_than_its_node_asks_for_goes() -> None:
    """An override of the hostname renames the worker."""
    renamed = kube_node(0, annotations={"nodeset.slinky.slurm.net/hostname-override": "big-0"})
    assert decide([daemon(0)], [renamed]).going == {"uid-0": RemovalCause.HOSTNAME}


# --- names


def test_nodes_called_by_their_addresses_do_not_share_a_name_in_slurm() -> None:
    """What is before the first dot may be the same everywhere: one node gets a worker, the rest are told."""
    addresses = [make_node(f"10.0.0.{index}", labels={"gpu": "yes"}) for index in (2, 1, 3)]
    decided = decide([], addresses)
    assert creates(decided) == ["10.0.0.1"]
    assert [wait.reason for wait in decided.waits] == [Reason.NAME_TAKEN] * 2
    (note,) = (note for note in decided.notes if note.warning)
    text = messages.similar(messages.same_name("10", "10.0.0.1", "10.0.0.2"), 2)
    assert (note.reason, note.message) == ("NameTaken", text)


def test_a_name_stays_with_the_worker_that_has_it() -> None:
    """A node that comes to ask for the name of another one's worker gets none; the worker is left alone."""
    asks = kube_node(0, annotations={"nodeset.slinky.slurm.net/hostname-override": "node-1"})
    decided = decide([daemon(1)], [asks, kube_node(1)])
    assert creates(decided) == []
    assert decided.going == {}
    both = decide([daemon(0), daemon(1)], [asks, kube_node(1)])
    assert both.going == {}
    assert [wait.reason for wait in both.waits] == [Reason.NAME_TAKEN]


def test_a_name_is_free_when_the_pod_that_has_it_is_gone() -> None:
    """Two slurmd of one name would fight for the node: the new one waits for the end of the old."""
    takes = kube_node(0, annotations={"nodeset.slinky.slurm.net/hostname-override": "node-1"})
    leaves = kube_node(1, annotations={"nodeset.slinky.slurm.net/hostname-override": "node-9"})
    waits = decide([daemon(1)], [takes, leaves])
    assert waits.going == {"uid-1": RemovalCause.HOSTNAME}
    assert creates(waits) == []
    assert [wait.reason for wait in waits.waits] == [Reason.NAME_IN_USE]
    assert creates(decide([], [takes, leaves])) == ["node-0", "node-1"]


def test_a_shared_name_is_complained_about_once() -> None:
    """The event is for those who do not see the condition yet."""
    kube_nodes = [make_node(f"10.0.0.{index}", labels={"gpu": "yes"}) for index in (1, 2)]
    nodes = {one.metadata.name: one for one in kube_nodes}
    first = observe(nodeset=NODESET, nodes=nodes, fit=FIT)
    told = report(first, plan(first))
    status = msgspec.structs.replace(NODESET.status, conditions=told.conditions)
    again = observe(nodeset=msgspec.structs.replace(NODESET, status=status), nodes=nodes, fit=FIT)
    assert any(note.warning for note in plan(first).notes)
    assert not any(note.warning for note in plan(again).notes)


def test_a_worker_that_waits_for_a_node_that_is_gone_is_not_waited_for() -> None:
    """Kubernetes collects what ran on a node that is gone, not what never came there."""
    waits = daemon(0, node="", target="node-0", phase="Pending", started=False, ready_since=None)
    assert decide([waits], []).going == {"uid-0": RemovalCause.NODE_UNFIT}
