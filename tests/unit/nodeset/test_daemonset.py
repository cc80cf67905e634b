from __future__ import annotations

from typing import Any

import msgspec

from slurm_operator.controllers.nodeset import names
from slurm_operator.controllers.nodeset.actions import CreatePod, DrainNodes, UndrainNodes
from slurm_operator.controllers.nodeset.daemon import daemon_name
from slurm_operator.controllers.nodeset.decisions import Cause
from slurm_operator.controllers.nodeset.plan import Plan, plan
from slurm_operator.kube.models import Taint
from slurm_operator.objects.nodefit import node_fit
from tests.unit.nodeset.clustermodel import SimPod, make_node, make_nodeset
from tests.unit.nodeset.making import observe, pod
from tests.unit.slurm.views import NOW, node

NODESET = make_nodeset(
    scalingMode="DaemonSet",
    finalizers=(names.FINALIZER_DRAIN,),
    template={"spec": {"nodeSelector": {"gpu": "yes"}}},
)
FIT = node_fit(NODESET)


def daemon(index: int, **fields: Any) -> SimPod:
    settled = {"mode": "DaemonSet", "index": "", "name": f"gpu-x{index}", "hostname": f"node-{index}"}
    return pod(index, **(settled | fields))


def machine(index: int, *taints: Taint, gpu: str = "yes", **fields: Any) -> Any:
    node = make_node(f"node-{index}", labels={"gpu": gpu}, **fields)
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))


def decide(pods: list[SimPod], machines: list[Any], **fields: Any) -> Plan:
    nodes = {one.metadata.name: one for one in machines}
    return plan(observe(*pods, nodeset=NODESET, nodes=nodes, fit=FIT, **fields))


def creates(decided: Plan) -> list[str]:
    return [one.node for one in decided.actions if isinstance(one, CreatePod)]


def test_every_node_that_matches_gets_one_worker() -> None:
    """Nodes that do not match, or repel, get none; nobody asks Slurm."""
    repels = Taint(key="maintenance", effect="NoSchedule")
    decided = decide(
        [daemon(0)], [machine(0), machine(1), machine(2, gpu="no"), machine(3, repels)], view=None
    )
    assert creates(decided) == ["node-1"]
    assert decided.desired == 2


def test_a_worker_has_the_name_of_its_node() -> None:
    """A create that is repeated hits the pod that is there."""
    first, second = (creates_names(decide([], [machine(1)])) for _ in range(2))
    assert first == second == [daemon_name(NODESET, machine(1))]
    assert daemon_name(NODESET, machine(1)) != daemon_name(NODESET, machine(2))


def creates_names(decided: Plan) -> list[str]:
    return [one.name for one in decided.actions if isinstance(one, CreatePod)]


def test_a_worker_stays_on_a_node_that_only_takes_no_new_ones() -> None:
    """NoSchedule drives nobody away, NoExecute does."""
    keeps = decide([daemon(0)], [machine(0, Taint(key="x", effect="NoSchedule"))])
    drives = decide([daemon(0)], [machine(0, Taint(key="x", effect="NoExecute"))])
    assert keeps.going == {}
    assert drives.going == {"uid-0": Cause.NODE_UNFIT}


def test_a_worker_whose_node_matches_no_more_goes() -> None:
    """A changed label takes the worker away."""
    assert decide([daemon(0)], [machine(0, gpu="no")]).going == {"uid-0": Cause.NODE_UNFIT}


def test_a_worker_on_a_node_that_is_gone_is_left_to_kubernetes() -> None:
    """Kubernetes collects it; a node that the cache lacks must not empty a set."""
    decided = decide([daemon(0)], [])
    assert decided.going == {}


def test_of_two_workers_on_a_node_the_one_that_serves_stays() -> None:
    """The better pod stays, not the one that is easier to delete."""
    spare = daemon(0, name="gpu-y", uid="uid-9", ready_since=None, created=0.0)
    assert decide([spare, daemon(0)], [machine(0)]).going == {"uid-9": Cause.DUPLICATE}


def test_the_drain_of_a_duplicate_is_not_taken_back_for_its_twin() -> None:
    """Pods that share a node in Slurm agree: one that must get no work outweighs one that may."""
    spare = daemon(0, name="gpu-y", uid="uid-9", created=NOW)
    busy = node("node-0", "MIXED", "DRAIN", alloc=1, reason="slurm-operator: x")
    decided = decide([spare, daemon(0)], [machine(0)], slurm=(busy,))
    assert not [one for one in decided.actions if isinstance(one, (DrainNodes, UndrainNodes))]


def test_a_worker_with_another_hostname_than_its_node_asks_for_goes() -> None:
    """An override of the hostname renames the worker."""
    renamed = machine(0, annotations={"nodeset.slinky.slurm.net/hostname-override": "big-0"})
    assert decide([daemon(0)], [renamed]).going == {"uid-0": Cause.HOSTNAME}
