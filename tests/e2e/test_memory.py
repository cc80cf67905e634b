"""A job that takes more memory than it asked for, beside another one, in a worker with a limit of its own."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest

from kubebox.console import Stopwatch
from scripts.demo_cluster import KUBEBOX_VALUES, PATIENCE, RELEASE, Cluster, await_slurm
from tests.support.e2e.slurm_cluster import SBATCH, Site

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

LIMIT = 512
# Nodes of kubebox have control groups of version 1 only, so the file is not the operator's own.
VALUES = {
    "configFiles": {"cgroup.conf": "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n"},
    "controller": {"extraConfMap": {"TaskPlugin": "task/cgroup"}},
    "loginsets": {"users": {"service": {"spec": {"type": "ClusterIP"}}}},
    # Guaranteed: else the kubelet makes slurmstepd the first victim of the kernel, and on nodes of kubebox,
    # unlike elsewhere, Slurm is not permitted to change that.
    "nodesets": {
        "demo": {
            "replicas": 1,
            "slurmd": {"resources": {"limits": {"cpu": "1500m", "memory": f"{LIMIT}Mi"}}},
            "logfile": {"resources": {"limits": {"cpu": "50m", "memory": "64Mi"}}},
        }
    },
    "partitions": {"all": {"enabled": True}},
}


@pytest.fixture(scope="module")
def memory(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Install a new Slurm cluster beside the first, whose jobs have memory limits of their own."""
    say = Stopwatch(sys.stderr)
    home: Path = tmp_path_factory.mktemp("memory")
    values = home / "values.json"
    values.write_text(json.dumps(VALUES), encoding="utf-8")
    cluster = Cluster(site.box.kubeconfig, home, say, namespace="memory")
    cluster.install(
        RELEASE, "slurm", cluster.namespace, "--values", str(KUBEBOX_VALUES), "--values", str(values)
    )
    await_slurm(cluster, say, 1)
    return Site(site.box, cluster, "", accounting=False, figures=site.figures)


def test_a_new_cluster_keeps_memory_for_slurmd(memory: Site) -> None:
    """The chart marks a new cluster, and its workers offer less than the limit of their container."""
    annotations = memory.cluster.get("controller", RELEASE)["metadata"]["annotations"]
    assert annotations["slinky.slurm.net/constrain-memory"] == "true"
    (pod,) = memory.pods().values()
    shown = memory.cluster.slurm("scontrol", "show", "node", pod["spec"]["hostname"])
    assert re.findall(r"RealMemory=(\d+)", shown) == [str(LIMIT - 64)]


def test_a_job_that_exceeds_its_memory_dies_alone(memory: Site) -> None:
    """The offender is OUT_OF_MEMORY; the job beside it COMPLETES, and the container is never restarted."""
    beside = memory.start_job()
    before = memory.uid(beside.pod)
    # `tail` keeps all of a line that does not end: three times what was asked for, and less than the pod has.
    greedy = ("--mem=64", f"--nodelist={beside.node}", "--wrap=head -c 192m /dev/zero | tail | wc -c")
    line = memory.cluster.slurm(*(word for word in SBATCH if not word.startswith("--mem")), *greedy)
    identity = line.strip().partition(";")[0]
    memory.until(lambda: _state(memory, identity) == "OUT_OF_MEMORY", f"job {identity} is out of memory")
    beside.assert_unharmed()
    beside.end()
    assert memory.uid(beside.pod) == before
    statuses = memory.pods()[beside.pod]["status"]["containerStatuses"]
    assert [status["restartCount"] for status in statuses] == [0] * len(statuses)
    # Other tests need the node that its worker has.
    where = ("--namespace", memory.cluster.namespace)
    memory.cluster.run("helm", "uninstall", RELEASE, *where, timeout=PATIENCE)
    memory.until(lambda: not memory.pods(), "the worker is gone")


def _state(memory: Site, identity: str) -> str:
    shown = memory.cluster.slurm("scontrol", "--oneliner", "show", "job", identity)
    return "".join(re.findall(r"JobState=(\S+)", shown))
