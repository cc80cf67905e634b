"""What Slurm is told about autoscaled workers before one runs, and how their pods differ."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from slurm_operator.objects import slurm_conf, slurmd
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.slurmd_names import shared_name
from slurm_operator.objects.slurmd_records import gres_names, record_shape
from slurm_operator.objects.slurmd_revision import revision_data
from tests.support.objects.resources import controller, found, node_set

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_operator.api import NodeSet

LIMITS = {"image": "x", "resources": {"limits": {"cpu": "3500m", "memory": "2Gi"}}}


def scaled(extra: str = "", slurmd: dict[str, Any] | None = None, **scaling: Any) -> NodeSet:
    autoscaling = {"maxReplicas": 8} | scaling
    return node_set(
        "gpu", autoscaling=autoscaling, extraConf=extra, slurmd=LIMITS if slurmd is None else slurmd
    )


def test_a_record_has_what_the_limits_and_extra_conf_say() -> None:
    """CPUs are rounded up and memory down, as slurmd has them; extraConf wins."""
    shape = record_shape(scaled("Gres=gpu:a100:2 Features=big weight=5", idleSeconds=77))
    assert shape.line(f"gpu-{index}" for index in range(8)) == (
        "NodeName=gpu-[0-7] CPUs=4 Features=big,gpu Gres=gpu:a100:2 RealMemory=2048 SuspendTime=77 Weight=5 "
        "State=CLOUD"
    )
    given = record_shape(scaled("cpus=2 RealMemory=100"))
    assert (given.cpus, given.memory, given.features) == (2, 100, frozenset({"gpu"}))
    assert record_shape(scaled(), reserve=True).memory < record_shape(scaled()).memory


def test_what_is_not_known_in_advance_is_refused_with_the_fix() -> None:
    """A worker without limits has as much as its Kubernetes node, which no one knows before it runs."""
    with pytest.raises(Unbuildable, match=r"spec.slurmd.resources.limits.cpu, or CPUs= in spec.extraConf"):
        record_shape(scaled(slurmd={"image": "x"}))


def test_sockets_that_slurm_adds_make_no_difference() -> None:
    """Slurm shows where a GPU is."""
    assert gres_names("gpu:a100:2(S:0-1),shard:4") == gres_names("shard:4,gpu:a100:2")
    assert gres_names("") == frozenset()


def test_autoscaling_makes_no_new_revision() -> None:
    """Switching it on or off replaces workers because of their records, and not as an update."""
    assert revision_data(scaled()) == revision_data(node_set("gpu", slurmd=LIMITS))


def test_room_and_names_are_for_the_most_workers() -> None:
    """MaxNodeCount and the names that no other NodeSet may use count all workers that there may be."""
    assert slurm_conf.max_nodes(controller(), [scaled(maxReplicas=5000)]) == 8192
    other = node_set("other", replicas=1, template={"spec": {"hostname": "gpu-7"}})
    assert shared_name(scaled(), other) == ""
    assert shared_name(scaled(), node_set("other", template={"spec": {"hostname": "gpu-"}})) == "gpu-0"


def test_only_autoscaled_workers_boot_when_they_start() -> None:
    """-b makes slurmd's start the boot that Slurm waits for after a power-up."""
    assert "-b" in slurmd._slurmd(scaled(), controller())["args"]
    assert "-b" not in slurmd._slurmd(node_set("gpu"), controller())["args"]
    assert slurmd.pre_stop(node_set("gpu")) == slurmd.PRE_STOP


@pytest.mark.parametrize(
    ("state", "writes"),
    [
        ("IDLE+CLOUD+DYNAMIC_NORM+POWERING_DOWN", 0),
        ("IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN", 0),
        ("ALLOCATED+CLOUD+DYNAMIC_NORM+NOT_RESPONDING+POWERING_UP", 0),
        ("IDLE+CLOUD+DYNAMIC_NORM+NOT_RESPONDING+POWER_UP", 0),
        ("IDLE+CLOUD+DYNAMIC_NORM", 2),
        ("MIXED+CLOUD+DYNAMIC_NORM+POWER_UP", 2),
        ("MIXED+CLOUD+DYNAMIC_NORM+POWER_DOWN", 2),
    ],
)
def test_a_worker_that_slurm_powers_up_or_down_leaves_its_node_alone(
    tmp_path: Path, state: str, writes: int
) -> None:
    """A drain would requeue the job of a node that powers up; DOWN would keep the next one from it."""
    log = tmp_path / "log"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        "#!/bin/sh\n"
        f"case $1 in show) echo '   State={state} ThreadsPerCore=1' ;; *) echo \"$@\" >>{log} ;; esac\n"
    )
    scontrol.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLINKY_NODE_NAME": "gpu-0"}
    script = slurmd.pre_stop(scaled())
    subprocess.run(["sh", "-c", script], env=environment | {"SLINKY_GRACE_SECONDS": "10"}, check=True)
    assert len(log.read_text().splitlines() if log.exists() else []) == writes


@pytest.mark.parametrize("extra", [f"CPUs={'9' * 5000}", f"RealMemory={'9' * 20}", "CPUs=0", "RealMemory=-1"])
def test_numbers_that_no_node_has_are_refused(extra: str) -> None:
    """Python itself refuses to read very long ones, which would fail every reconcile without a reason."""
    with pytest.raises(Unbuildable, match="use a number"):
        record_shape(scaled(extra))


def test_power_saving_stays_on_until_the_records_are_gone() -> None:
    """Without it a node that powers up has a minute for that, and one that a job was given never does."""

    def lines(node: NodeSet) -> list[str]:
        cluster = slurm_conf.SlurmCluster(controller(), [node])
        text = slurm_conf.controller_files(cluster, found())["slurm.conf"]
        return [line for line in text.splitlines() if "Suspend" in line]

    said = {"conditions": [{"type": "Autoscaling", "status": "False", "reason": "Leaving"}]}
    left = lines(node_set("gpu", status=said, partition={"enabled": True}))
    assert left[-1].startswith("PartitionName=gpu Nodes=gpu SuspendTimeout=60 ResumeTimeout=600")
    assert left[:-1] == lines(scaled())[:-1]
    assert lines(node_set("gpu")) == []
    assert lines(node_set("gpu", status={"conditions": [{"type": "Ready", "status": "True"}]})) == []
