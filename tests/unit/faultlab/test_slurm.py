"""The Slurm of the lab: which jobs it counts as lost."""

from __future__ import annotations

import pytest

from faultlab.slurm import Cluster


def busy() -> Cluster:
    """Return a cluster of two nodes with a job on the second one."""
    cluster = Cluster()
    for name in ("compute-0", "compute-1"):
        cluster.register(name)
    cluster.start("long", "compute-1")
    return cluster


@pytest.mark.parametrize("words", [["compute-1"], ["compute-[0-1]"], ["compute-0,compute-1"]])
def test_a_job_is_lost_when_its_node_is_set_down(words: list[str]) -> None:
    """Also when the request names several nodes in one word, as the operator does."""
    cluster = busy()
    assert cluster.update(words, {"state": ["DRAIN"]}) == []
    assert cluster.lost == []
    assert cluster.update(words, {"state": ["POWER_DOWN"]}) == []
    assert cluster.lost == ["job long on compute-1: its node was set POWER_DOWN"]


def test_a_job_is_lost_when_the_slurmd_of_its_node_ends() -> None:
    """That of another node may."""
    cluster = busy()
    cluster.terminate("compute-0")
    assert cluster.lost == []
    cluster.terminate("compute-1")
    assert cluster.lost == ["job long on compute-1: its pod ended"]
