"""What is written on Slurm nodes: comments."""

from __future__ import annotations

import msgspec
import pytest

from slurm_operator.kube.models.kinds import Pod
from slurm_operator.objects.slurmd_marks import (
    PodInfo,
    comment,
    pod_info,
)
from tests.support.objects.resources import node_set

POD: Pod = msgspec.convert(
    {"metadata": {"name": "gpu-0", "namespace": "NS"}, "spec": {"nodeName": "m1"}}, Pod
)


def test_the_comment_has_its_keys_in_order() -> None:
    """The comment is compact JSON with the keys in the order in which Slinky slurm-operator writes them."""
    text = comment(node_set("gpu"), POD)
    assert text == (
        '{"namespace":"NS","podName":"gpu-0","node":"m1","nodeSetName":"gpu","nodeSetUID":"uid-gpu"}'
    )
    assert pod_info(text) == PodInfo("NS", "gpu-0", "m1", "gpu", "uid-gpu")


def test_what_is_empty_stays_out_as_in_the_reference() -> None:
    """A pod without a node has an empty one in its comment; a set that is not named is left out."""
    info = PodInfo("NS", "gpu-0", "")
    assert msgspec.json.encode(info) == b'{"namespace":"NS","podName":"gpu-0","node":""}'


@pytest.mark.parametrize("text", ["", "free for all", "{", "{}", '{"namespace":1}', '["a"]', '{"\ud800":1}'])
def test_a_comment_of_somebody_else_is_none_of_ours(text: str) -> None:
    """A comment that is not ours says nothing, whatever it contains."""
    assert pod_info(text) is None
