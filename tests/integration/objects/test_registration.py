"""What slurmd makes of the argument that workers get, on real Slurm of both releases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from slurm_operator.objects.slurmd_conf import node_conf
from tests.support.executables import read_by_a_shell
from tests.support.objects.resources import node_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubebox.slurm import SlurmBox


@pytest.mark.parametrize("release", ["26.05", "24.11"])
def test_a_node_without_topology_registers(release: str, slurm_box_factory: Callable[..., SlurmBox]) -> None:
    """A worker whose node has no topology is a healthy Slurm node with all options of the user."""
    box = slurm_box_factory(release=release, nodes=1)
    extra = "Feature=a100 cpus=2 realmemory=500 weight=10"
    (conf,) = read_by_a_shell(node_conf(node_set("gpu", extraConf=extra)), SLINKY_TOPOLOGY="")
    box.add_node("gpu-0", conf=conf)
    shown = box.run("scontrol", "show", "node", "gpu-0").stdout
    values = dict(re.findall(r"(\w+)=(\S*)", shown))
    assert set(values["State"].split("+")) == {"IDLE", "DYNAMIC_NORM"}
    assert (values["CPUTot"], values["RealMemory"], values["Weight"]) == ("2", "500", "10")
    assert values["ActiveFeatures"] == "a100,gpu"
