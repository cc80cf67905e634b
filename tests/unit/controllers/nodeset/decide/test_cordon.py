from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.controllers.nodeset.decide.actions import (
    DeletePod,
    DrainNodes,
    PatchPod,
    ResumeNodes,
    UndrainNodes,
)
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from slurm_operator.kube.models.meta import Condition
from tests.support.simulation.kubernetes import make_node, make_nodeset
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import node, number

if TYPE_CHECKING:
    from slurm_operator.kube.models.kinds import Node as KubeNode
    from slurm_operator.slurm.model.records import Node

BY, CORDON = wellknown.ANNOTATION_POD_CORDON_BY, wellknown.ANNOTATION_POD_CORDON
OURS = "slurm-operator: NodeSet (slurm/gpu) scales in"
GO_SCALE_IN = "slurm-operator: Pod (slurm/gpu-0) is pending termination for scale-in"
GO_NODE = "slurm-operator: Node (node-0) was cordoned, Pod (slurm/gpu-0) must be cordoned"
DRAINED = ("IDLE", "DRAIN")


def decide(
    annotations: dict[str, str], slurm: Node, *, cordoned: bool = False, why: dict[str, str] | None = None
) -> Plan:
    nodes = {"node-0": make_node("node-0", cordoned=cordoned, annotations=why or {})}
    return plan(observe(pod(0, annotations=annotations), slurm=(slurm,), nodes=nodes))


def patch(decided: Plan) -> dict[str, str | None]:
    found = [one for one in decided.actions if isinstance(one, PatchPod)]
    return {key: value for key, value in found[0].annotations.items() if key in (BY, CORDON)} if found else {}


def drains(decided: Plan) -> list[str]:
    return [one.reason for one in decided.actions if isinstance(one, DrainNodes)]


def undrains(decided: Plan) -> bool:
    return any(isinstance(one, UndrainNodes) for one in decided.actions)


def test_a_cordoned_node_cordons_its_pod_and_drains() -> None:
    """kubectl cordon reaches Slurm."""
    decided = decide({}, node("gpu-0"), cordoned=True)
    assert patch(decided) == {CORDON: "true", BY: "NodeCordoned"}
    assert drains(decided) == ["NodeSet (slurm/gpu) has this node on a Kubernetes node that was cordoned"]


USUAL = "NodeSet (slurm/gpu) has this node on a Kubernetes node that was cordoned"


def kube_node(annotation: str | None, *conditions: tuple[str, str]) -> KubeNode:
    """Return a cordoned node, perhaps with a reason in its annotation, and with conditions."""
    marks = {} if annotation is None else {wellknown.ANNOTATION_NODE_CORDON_REASON: annotation}
    told = [
        Condition(type=kind, status=status, reason=f"{kind}Seen", message=f"{kind} is bad")
        for kind, status in conditions
    ]
    bare = make_node("node-0", cordoned=True, annotations=marks)
    return msgspec.structs.replace(bare, status=msgspec.structs.replace(bare.status, conditions=tuple(told)))


@pytest.mark.parametrize(
    ("cordoned", "reason"),
    [
        (kube_node(None), USUAL),
        (kube_node("fan\tbroken\n\x07 "), "fan broken"),
        (kube_node("x" * 300), "x" * 256),
        (kube_node(" \n"), USUAL),
        (kube_node(None, ("Gpu", "True")), "(GpuSeen: Gpu is bad)"),
        (kube_node(None, ("Gpu", "True"), ("Fan", "True")), "(FanSeen: Fan is bad); (GpuSeen: Gpu is bad)"),
        (kube_node(None, ("Gpu", "False"), ("Fan", "Unknown")), USUAL),
        (kube_node(None, ("Other", "True")), USUAL),
        (kube_node("mine", ("Gpu", "True")), "mine"),
    ],
)
def test_annotation_then_conditions_then_the_usual_text_are_the_reason(
    cordoned: KubeNode, reason: str
) -> None:
    """The annotation wins over the conditions to pass on, in their order, and those over the usual text."""
    seen = observe(pod(0), slurm=(node("gpu-0"),), nodes={"node-0": cordoned}, propagated=("Fan", "Gpu"))
    assert drains(plan(seen)) == [reason]


def test_the_node_says_why_it_was_cordoned() -> None:
    """The annotation of the node becomes the reason of the drain, in one line."""
    why = {wellknown.ANNOTATION_NODE_CORDON_REASON: "fan\tbroken\n"}
    assert drains(decide({}, node("gpu-0"), cordoned=True, why=why)) == ["fan broken"]


def test_an_uncordoned_node_gives_everything_back() -> None:
    """What the operator cordoned and drained, it takes back: first the cordon, then the drain."""
    drained = node("gpu-0", *DRAINED, reason=OURS)
    decided = decide({CORDON: "true", BY: "NodeCordoned"}, drained)
    assert patch(decided) == {CORDON: None, BY: None}
    assert not undrains(decided)
    assert undrains(decide({}, drained))


def test_a_cordon_of_a_person_drains_and_is_not_touched() -> None:
    """A cordon without the operator's mark is a person's."""
    decided = decide({CORDON: "true"}, node("gpu-0"))
    assert patch(decided) == {}
    assert drains(decided) == ["NodeSet (slurm/gpu) has this node in a pod that was cordoned"]


@pytest.mark.parametrize("reason", [GO_SCALE_IN, GO_NODE])
def test_cordons_of_the_go_operator_are_recognised(reason: str) -> None:
    """By the words that the Go operator left in Slurm."""
    drained = node("gpu-0", *DRAINED, reason=reason)
    assert patch(decide({CORDON: "true"}, drained)) == {CORDON: None}
    assert undrains(decide({}, drained))


def test_a_cordon_that_the_go_operator_explained_with_the_nodes_words_is_recognised() -> None:
    """The reason that a node's annotation gave is the Go operator's, too."""
    why = {wellknown.ANNOTATION_NODE_CORDON_REASON: "fan broken"}
    decided = decide({CORDON: "true"}, node("gpu-0", *DRAINED, reason="slurm-operator: fan broken"), why=why)
    assert patch(decided) == {CORDON: None}


@pytest.mark.parametrize("reason", ["slurm-operator: Pod (slurm/gpu-0) was cordoned", "slurm-operator: "])
def test_what_the_go_operator_did_for_a_person_stays_the_persons(reason: str) -> None:
    """An unexplained cordon is a person's, and nothing is undone."""
    decided = decide({CORDON: "true"}, node("gpu-0", *DRAINED, reason=reason))
    assert patch(decided) == {}
    assert not undrains(decided)


def test_a_foreign_drain_stays_and_is_told() -> None:
    """Who drains by hand, resumes by hand."""
    decided = decide({}, node("gpu-0", *DRAINED, reason="bad disk"))
    assert not undrains(decided)
    assert [one.wait.reason for one in decided.blocked] == [Reason.FOREIGN_DRAIN]


def test_a_mark_without_a_cordon_is_cleaned_up() -> None:
    """A person who removes the cordon of the operator leaves the mark behind."""
    assert patch(decide({BY: "ScaleIn"}, node("gpu-0"))) == {BY: None}


def test_an_existing_drain_of_ours_keeps_its_reason() -> None:
    """No write for a better word."""
    decided = decide(
        {CORDON: "true", BY: "NodeCordoned"}, node("gpu-0", *DRAINED, reason=OURS), cordoned=True
    )
    assert drains(decided) == []


@pytest.mark.parametrize("down", [False, True])
def test_a_node_gets_no_work_while_a_pod_of_its_name_goes(*, down: bool) -> None:
    """Whoever shares a node with a pod that goes takes work again when that is gone, not before."""
    slurm = node(
        *("gpu-0", "DOWN" if down else "IDLE", "DRAIN"),
        reason=OURS,
        slurmd_start_time=number(20),
        reason_changed_at=number(10),
    )
    shared = (pod(0), pod(1, hostname="gpu-0"))
    leaving = make_nodeset(replicas=1, finalizers=(wellknown.FINALIZER_DRAIN,))
    decided = plan(observe(*shared, slurm=(slurm,), nodeset=leaving))
    assert [one.name for one in decided.actions if isinstance(one, DeletePod)] == ["gpu-1"]
    assert not any(isinstance(one, UndrainNodes | ResumeNodes) for one in decided.actions)
    left = plan(observe(shared[0], slurm=(slurm,), nodeset=leaving))
    assert any(isinstance(one, UndrainNodes | ResumeNodes) for one in left.actions)
