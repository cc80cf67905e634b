"""The values that guides show, installed as they are shown, and what the guides say that they do."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from kubebox import Box, BoxSpec
from kubebox.console import Stopwatch
from scripts.demo_cluster import (
    KUBEBOX_VALUES,
    PATIENCE,
    RELEASE,
    ROOT,
    Cluster,
    await_slurm,
    images,
    install_operator,
)
from tests.support.e2e.slurm_cluster import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

PAGES = ("partitions", "isolation", "features", "rest-jobs", "gpu")
# What a test machine has room for, and what is no part of a guide.
SMALL: dict[str, Any] = {
    "asciiArt": False,
    "clusterName": "guides",
    "controller": {"persistence": {"resources": {"requests": {"storage": "64Mi"}}}},
    "loginsets": {"users": {"service": {"spec": {"type": "ClusterIP"}}}},
    "nodesets": {
        "cpu": {"replicas": 1},
        "himem": {"replicas": 1},
        "gpu": {"replicas": 1, "slurmd": {"resources": {"limits": {"nvidia.com/gpu": 2}}}},
    },
}
SRUN = ("timeout", "60", "srun", "--immediate=20", "--mem=16", "--chdir=/tmp")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """Return what a guide shows in a language."""
    text = (ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8")
    return [content for kind, content in _BLOCK.findall(text) if kind == language]


def commands(page: str, start: str) -> list[list[str]]:
    """Return the commands of a guide that begin with some words."""
    lines = "\n".join(blocks(page, "sh")).splitlines()
    return [line.split() for line in lines if line.startswith(start)]


@pytest.fixture(scope="module")
def guided(kube_programs: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Install one cluster with the values of all guides, after the commands that they give for nodes."""
    del kube_programs
    home: Path = tmp_path_factory.mktemp("guides")
    say = Stopwatch(sys.stderr)
    spec = BoxSpec(
        nodes=3, gpus=2, images=images(say), controller_manager=True, scheduler=True, ready_timeout=PATIENCE
    )
    files = [KUBEBOX_VALUES]
    for page in PAGES:
        # Of several, the last one is that for fake devices.
        files.append(home / f"{page}.yaml")
        values = [block for block in blocks(page, "yaml") if block.startswith("# values of the chart slurm")]
        files[-1].write_text(values[-1], encoding="utf-8")
    files.append(home / "small.json")
    files[-1].write_text(json.dumps(SMALL), encoding="utf-8")
    with Box.up(spec, progress=say) as box:
        cluster = Cluster(box.kubeconfig, home, say)
        for page, start in (
            ("isolation", "kubectl label node"),
            ("isolation", "kubectl taint node"),
            ("features", "kubectl annotate node"),
        ):
            for command in commands(page, start):
                cluster.run(*command)
        install_operator(cluster)
        named = [option for file in files for option in ("--values", str(file))]
        cluster.install(RELEASE, "slurm", cluster.namespace, *named)
        await_slurm(cluster, say, 1)
        yield Site(box, cluster, "", accounting=False)


def node_of(site: Site, worker: str) -> str:
    return str(site.cluster.get("pod", f"slurm-worker-{worker}")["spec"]["nodeName"])


def test_partitions_span_nodesets(guided: Site) -> None:
    """Partitions have the nodes of the NodeSets that they name, and a job runs in the one it asks for."""

    def so() -> bool:
        told = guided.cluster.slurm("sinfo", "--noheader", "--Node", "--format=%P %N")
        found = {tuple(line.split()) for line in told.splitlines()}
        both = {"cpu-0", "himem-0"}
        return found == {
            ("cpu", "cpu-0"),
            ("himem", "himem-0"),
            ("gpu", "gpu-0"),
            *(("batch", node) for node in both),
            *(("all*", node) for node in (*both, "gpu-0")),
        }

    guided.until(so, "all partitions have their nodes")
    guided.until(
        lambda: guided.cluster.slurm(*SRUN, "--partition=himem", "hostname").strip() == "himem-0",
        "a job runs in its partition",
    )


def test_tainted_nodes_run_workers_and_nothing_else(guided: Site) -> None:
    """The worker is on the tainted node; a pod without the toleration is not placed there."""
    assert node_of(guided, "gpu-0") == "node-2"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "intruder"},
        "spec": {
            "nodeSelector": {"example.com/slurm": "yes"},
            "containers": [{"name": "one", "image": "kubebox.local/tools:26.05"}],
        },
    }
    guided.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(pod))

    def refused() -> bool:
        conditions = guided.cluster.get("pod", "intruder").get("status", {}).get("conditions", [])
        return any("untolerated taint" in entry.get("message", "") for entry in conditions)

    guided.until(refused, "the scheduler places no other pod there")
    placed = guided.cluster.get("pods", "--all-namespaces", "--field-selector=spec.nodeName=node-2")["items"]
    # Those of the cluster itself were there before the taint.
    names = [item["metadata"]["name"] for item in placed if item["metadata"]["namespace"] != "kube-system"]
    assert names == ["slurm-worker-gpu-0"]
    guided.cluster.kubectl("delete", "pod", "intruder", "--now")


def test_jobs_choose_nodes_by_features(guided: Site) -> None:
    """A feature of a NodeSet and one of a Kubernetes node lead a job to the worker that has it."""
    (at_a,) = (worker for worker in ("cpu-0", "himem-0") if node_of(guided, worker) == "node-0")
    for constraint, worker in (("avx512", "cpu-0"), ("k8s/zone-a", at_a)):
        command = (*SRUN, f"--constraint={constraint}", "hostname")
        guided.until(
            lambda command=command, worker=worker: guided.cluster.slurm(*command).strip() == worker,  # type: ignore[misc]
            f"a job with {constraint} runs on {worker}",
        )


def test_nodes_have_their_place_in_the_topology(guided: Site) -> None:
    """A worker is where the annotation of its node says, also after that has changed, in the same pod."""
    before, node = guided.uid("slurm-worker-cpu-0"), node_of(guided, "cpu-0")

    def is_in(rack: str) -> bool:
        return f"Topology=racks:{rack}" in guided.cluster.slurm("scontrol", "show", "node", "cpu-0")

    first, second = ("rack-1", "rack-2") if node == "node-0" else ("rack-2", "rack-1")
    guided.until(lambda: is_in(first), f"cpu-0 is in {first}")
    change = ("annotate", "node", node, "--overwrite", f"topology.slinky.slurm.net/spec=racks:{second}")
    guided.cluster.kubectl(*change)
    guided.until(lambda: is_in(second), f"cpu-0 is in {second}")
    assert guided.uid("slurm-worker-cpu-0") == before


def test_jobs_get_devices_that_gres_declares(guided: Site) -> None:
    """A job that asks for fake GPUs runs where they are, and is told which ones it has."""
    show = "echo $(hostname) $CUDA_VISIBLE_DEVICES"
    command = (*SRUN, "--partition=gpu", "--gres=gpu:fake:2", "sh", "-c", show)
    guided.until(lambda: guided.cluster.slurm(*command).split() == ["gpu-0", "0,1"], "a job gets two GPUs")


def ask(port: int, token: str, path: str, body: str | None = None) -> Any:
    """Send a request to slurmrestd as the guide does, and return the reply."""
    headers = {"X-SLURM-USER-TOKEN": token, "Content-Type": "application/json"}
    data = None if body is None else body.encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/slurm/v0.0.45/{path}", data, headers)
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
        return json.load(reply)


def test_a_job_is_submitted_by_rest_as_the_user_of_a_token(guided: Site) -> None:
    """The job of the guide runs as the user of its token, and a token that Slurm did not sign is refused."""
    (job,) = blocks("rest-jobs", "json")
    get = ("get", "secret", "slurm-token-alice-jwt-alice", "--template={{.data.SLURM_JWT | base64decode}}")
    guided.until(lambda: guided.cluster.kubectl(*get), "the token is issued")
    token = guided.cluster.kubectl(*get).strip()
    with guided.cluster.forwarded("service/slurm-restapi", 6820) as port:
        identity = ask(port, token, "job/submit", job)["job_id"]
        told: dict[str, Any] = {}

        def ended() -> bool:
            told.update(ask(port, token, f"job/{identity}")["jobs"][0])
            return bool(told["job_state"] == ["COMPLETED"])

        guided.until(ended, f"job {identity} has ended well")
        assert told["user_name"] == "alice"
        with contextlib.closing(refused(port, token)) as reply:
            assert reply.code == 511


def refused(port: int, token: str) -> urllib.error.HTTPError:
    """Return the reply to a token with another signature."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(port, token[:-8] + "AAAAAAAA", "jobs/")
    return caught.value
