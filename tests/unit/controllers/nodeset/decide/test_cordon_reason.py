from __future__ import annotations

import pytest

from slurm_operator.api import wellknown
from slurm_operator.controllers.nodeset.decide.actions import DrainNodes, PatchPod, UndrainNodes
from slurm_operator.controllers.nodeset.decide.plan import Plan, plan
from tests.support.simulation.kubernetes import make_node
from tests.support.simulation.observations import observe, pod
from tests.support.slurm.views import node

BY, CORDON = wellknown.ANNOTATION_POD_CORDON_BY, wellknown.ANNOTATION_POD_CORDON
REASON = wellknown.ANNOTATION_POD_CORDON_REASON
USUAL = "NodeSet (slurm/gpu) has this node in a pod that was cordoned"


def decide(annotations: dict[str, str], *state: str, reason: str = "") -> Plan:
    nodes = {"node-0": make_node("node-0", annotations={})}
    slurm = (node("gpu-0", *state, reason=reason),)
    return plan(observe(pod(0, annotations=annotations), slurm=slurm, nodes=nodes))


def drains(decided: Plan) -> list[str]:
    return [one.reason for one in decided.actions if isinstance(one, DrainNodes)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fan broken (by ann)", "fan broken (by ann)"),
        (" fan\tbroken\n\x07", "fan broken"),
        ("x" * 300, "x" * 256),
        (" ", USUAL),
        ("", USUAL),
    ],
)
def test_the_reason_of_a_cordon_reaches_slurm(text: str, reason: str) -> None:
    """What a user writes beside pod-cordon is the reason of the drain, on one line and cut."""
    assert drains(decide({CORDON: "true", REASON: text})) == [reason]


def test_a_reason_without_a_cordon_drains_nothing() -> None:
    """The reason alone is no cordon."""
    assert drains(decide({REASON: "fan broken"})) == []


def test_a_cordon_with_a_reason_is_a_users_also_on_a_drain_of_ours() -> None:
    """A user may take over a drain of the operator: the cordon then stays without a cause."""
    decided = decide(
        {CORDON: "true", REASON: "fan broken"},
        "IDLE",
        "DRAIN",
        reason="slurm-operator: Node (node-0) was cordoned, Pod (slurm/gpu-0) must be cordoned",
    )
    assert not any(isinstance(one, UndrainNodes) for one in decided.actions)
    assert not any(CORDON in one.annotations for one in decided.actions if isinstance(one, PatchPod))
