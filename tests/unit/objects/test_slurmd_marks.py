"""What is written on Slurm nodes: comments and reasons."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.kube.models import Node, Pod
from slurm_operator.objects.slurmd_marks import (
    PodInfo,
    comment,
    node_cordoned,
    pod_condemned,
    pod_cordoned,
    pod_info,
    pod_uncordoned,
)
from tests.unit.objects.making import node_set

POD: Pod = msgspec.convert(
    {"metadata": {"name": "gpu-0", "namespace": "NS"}, "spec": {"nodeName": "m1"}}, Pod
)
USUAL = "Node (m1) was cordoned, Pod (NS/gpu-0) must be cordoned"
REASON = "nodeset.slinky.slurm.net/node-cordon-reason"


def machine(annotation: str | None = None, *conditions: tuple[str, str]) -> Node:
    """Return a machine, perhaps with a reason in its annotation, and with conditions of type and status."""
    body: dict[str, Any] = {
        "metadata": {"name": "m1", "annotations": {} if annotation is None else {REASON: annotation}},
        "status": {
            "conditions": [
                {"type": kind, "status": status, "reason": f"{kind}Seen", "message": f"{kind} is bad"}
                for kind, status in conditions
            ]
        },
    }
    return msgspec.convert(body, Node)


def test_the_comment_has_its_keys_in_order() -> None:
    """The comment is compact JSON with the keys in the order in which the Go operator writes them."""
    text = comment(node_set("gpu"), POD)
    assert text == (
        '{"namespace":"NS","podName":"gpu-0","node":"m1","nodeSetName":"gpu","nodeSetUID":"uid-gpu"}'
    )
    assert pod_info(text) == PodInfo("NS", "gpu-0", "m1", "gpu", "uid-gpu")


def test_what_is_empty_stays_out_as_in_the_reference() -> None:
    """A pod without a machine has an empty one in its comment; a set that is not named is left out."""
    info = PodInfo("NS", "gpu-0", "")
    assert msgspec.json.encode(info) == b'{"namespace":"NS","podName":"gpu-0","node":""}'


@pytest.mark.parametrize("text", ["", "free for all", "{", "{}", '{"namespace":1}', '["a"]', '{"\ud800":1}'])
def test_a_comment_of_somebody_else_is_none_of_ours(text: str) -> None:
    """A comment that is not ours says nothing, whatever it contains."""
    assert pod_info(text) is None


def test_reasons_name_the_pod() -> None:
    """Reasons of drains are the texts that dashboards know."""
    assert pod_cordoned(POD) == "Pod (NS/gpu-0) was cordoned"
    assert pod_uncordoned(POD) == "Pod (NS/gpu-0) was uncordoned"
    assert pod_condemned(POD) == "Pod (NS/gpu-0) is pending termination for scale-in"


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (machine(), USUAL),
        (machine("fan\tbroken\n\x07 "), "fan broken"),
        (machine("x" * 300), "x" * 256),
        (machine(" \n"), USUAL),
        (machine(None, ("Gpu", "True")), "(GpuSeen: Gpu is bad)"),
        (machine(None, ("Gpu", "True"), ("Fan", "True")), "(FanSeen: Fan is bad); (GpuSeen: Gpu is bad)"),
        (machine(None, ("Gpu", "False"), ("Fan", "Unknown")), USUAL),
        (machine(None, ("Other", "True")), USUAL),
        (machine("mine", ("Gpu", "True")), "mine"),
    ],
)
def test_the_machine_says_why_it_was_cordoned(node: Node, reason: str) -> None:
    """The annotation wins over the conditions to pass on, in their order, and those over the usual text."""
    assert node_cordoned(POD, node, ["Fan", "Gpu"]) == reason
