"""The demo on real nodes: our charts installed by helm, Slurm in pods, and jobs on it.

What is shown is what a user would do next: look at the custom resources, run a job on all workers, ask
accounting for its record, and ask slurmrestd with a Token.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from kubebox import BoxError
from kubebox.binaries import provide
from scripts.demo_cluster import (
    KUBEBOX_VALUES,
    LOGIN,
    NAMESPACE,
    NODESET,
    OPERATOR_NAMESPACE,
    RELEASE,
    ROOT,
    TOKEN,
    WORKERS,
    Cluster,
    await_slurm,
    images,
    install_operator,
    install_slurm,
    real_box,
)
from scripts.demo_steps import detail, say, shown, step

if TYPE_CHECKING:
    from kubebox import Box

_SECONDS = 120.0
_REST_PORT = 6820
_JOB = ["srun", f"--nodes={WORKERS}", "--label", "--chdir=/tmp", "sh", "-c", "echo $SLURMD_NODENAME works"]
_RECORD = ["sacct", "--allocations", "--format=JobID,JobName,NodeList,State,ExitCode,Elapsed"]


def start(name: str, *, keep: bool) -> Box:
    """Start a Kubernetes with real nodes that hold our images."""
    with step("the programs of Kubernetes, CoreDNS and helm (built once: about 10 minutes on 2 cores)"):
        tools = provide(["kubelet", "coredns", "pause", "helm"], detail)
    with step("container images of Slurm 26.05 and of this operator (made once)"):
        bundles = images(detail)
    with step(f"a real Kubernetes with {WORKERS} nodes: kubelets, containerd, DNS, storage"):
        box = real_box(name, bundles, detail, detach=keep)
        # For a user who continues by hand with `kubebox env`.
        box.link({"helm": tools["helm"]})
        return box


def present(box: Box, *, keep: bool) -> None:
    """Install the charts on a box and show what comes of them."""
    del keep  # all of it lives in the box
    cluster = Cluster(box.kubeconfig, box.state, detail)
    box.link(cluster.plugin)
    present_on(cluster, None, str(KUBEBOX_VALUES))


def present_on(cluster: Cluster, operator_image: str | None, *values: str) -> None:
    """Install the charts on a cluster and show what comes of them."""
    with step("helm install slurm-operator-crds, slurm-operator"):
        if operator_image is None:
            install_operator(cluster)
        else:
            install_operator(cluster, operator_image)
    with step(f"helm install {RELEASE}: controller, database, accounting, REST, login, {WORKERS} workers"):
        install_slurm(cluster, *(word for name in values for word in ("--values", name)))
        await_slurm(cluster, detail)
    _look(cluster)
    _run_job(cluster)
    _ask_rest(cluster)
    _show_status(cluster)


def _show_status(cluster: Cluster) -> None:
    """Show all of it on one screen, and say how to open the page."""
    shown(f"kubectl slurm status -n {NAMESPACE}", cluster.run("kubectl", "slurm", "status", "-n", NAMESPACE))
    say("\nThe same in a browser: kubectl slurm dashboard")


def _look(cluster: Cluster) -> None:
    shown("kubectl get nodes", cluster.run("kubectl", "get", "nodes"))
    for what in (("pods", "--output=wide"), ("slurm",)):
        shown(f"kubectl -n {NAMESPACE} get {' '.join(what)}", cluster.kubectl("get", *what))


def _run_job(cluster: Cluster) -> None:
    """Run a job on all workers, and wait until accounting has its record."""
    inside = f"kubectl -n {NAMESPACE} exec deployment/{LOGIN} --"
    shown(f"{inside} sinfo", cluster.slurm("sinfo"))
    command = " ".join([*_JOB[:-1], f"'{_JOB[-1]}'"])
    shown(f"{inside} {command}", cluster.slurm(*_JOB))
    deadline = time.monotonic() + _SECONDS
    while "COMPLETED" not in (record := cluster.slurm(*_RECORD)):
        if time.monotonic() > deadline:
            raise BoxError(f"accounting has no record of the job after {_SECONDS:g} s:\n{record}")
        time.sleep(0.5)
    shown(f"{inside} {' '.join(_RECORD)}", record)


def _ask_rest(cluster: Cluster) -> None:
    """Ask slurmrestd what nodes there are, with the token that the operator made."""
    reference = cluster.get("token", TOKEN)
    secret = reference.get("status", {}).get("secretRef") or {}
    name, key = secret.get("name", f"{TOKEN}-jwt-slurm"), secret.get("key", "SLURM_JWT")
    token = base64.b64decode(cluster.get("secret", name)["data"][key]).decode()
    path = "/slurm/v0.0.44/nodes/"
    with cluster.forwarded(f"service/{RELEASE}-restapi", _REST_PORT) as port:
        answer = _fetch(f"http://127.0.0.1:{port}{path}", token)
    lines = [f"{node['name']}: {' '.join(node['state'])}, {node['cpus']} CPUs" for node in answer["nodes"]]
    say(f"\n$ kubectl -n {NAMESPACE} port-forward service/{RELEASE}-restapi {_REST_PORT} &")
    shown(f'curl -H "X-SLURM-USER-TOKEN: $SLURM_JWT" http://127.0.0.1:{_REST_PORT}{path}', "\n".join(lines))


def _fetch(address: str, token: str) -> dict[str, Any]:
    # Straight to loopback, whatever proxy the environment names.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(address, headers={"X-SLURM-USER-TOKEN": token})  # noqa: S310 - loopback
    with direct.open(request, timeout=_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def take_down(cluster: Cluster) -> None:
    """Remove what the demo installed from an existing cluster; the CRDs stay, as helm has it."""
    for release, namespace in ((RELEASE, NAMESPACE), ("slurm-operator", OPERATOR_NAMESPACE)):
        cluster.run("helm", "uninstall", release, "--namespace", namespace, "--ignore-not-found", "--wait")
    cluster.run("kubectl", "delete", "namespace", NAMESPACE, OPERATOR_NAMESPACE, "--ignore-not-found")


def hints(box: Box) -> list[str]:
    """Return what to try with a demo that was kept."""
    return [f'eval "$(PYTHONPATH={ROOT} {sys.executable} -m kubebox env {box.name})"', *ideas()]


def ideas() -> list[str]:
    """Return what to try on a cluster with the demo on it."""
    slurm = f"kubectl -n {NAMESPACE}"
    inside = f"{slurm} exec deployment/{LOGIN} --"
    return [
        f"{inside} sbatch --nodes=1 --chdir=/tmp --wrap='sleep 60'    # a job to be careful with",
        f"{slurm} scale nodeset {NODESET} --replicas=1    # the worker with the job stays until it ends",
        f"kubectl slurm status -n {NAMESPACE} --watch",
        "kubectl slurm dashboard    # the same in a browser",
        "kubectl drain node-0 --ignore-daemonsets --delete-emptydir-data    # waits for the job as well",
        f"{slurm} delete pod {RELEASE}-controller-0    # running jobs do not notice",
    ]
