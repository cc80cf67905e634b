"""A Kubernetes cluster as a person uses it, with kubectl and helm, and our three charts installed on it.

Nothing in here asks whose cluster it is: `make demo KUBECONFIG=…` and the end-to-end tests do the same things
to it. What is special about nodes of kubebox, and images for them, is in `real_box` and in
examples/kubebox-values.yaml.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubebox import Box, BoxSpec
from kubebox.binaries import provide
from kubebox.errors import BoxError
from kubebox.images.slurm import provide_slurm_images
from scripts.images import OPERATOR_IMAGE, provide_operator_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Progress = Callable[[str], None]

ROOT = Path(__file__).resolve().parent.parent
CHARTS = ROOT / "charts"
VALUES = ROOT / "examples" / "demo-values.yaml"
KUBEBOX_VALUES = ROOT / "examples" / "kubebox-values.yaml"
OPERATOR_NAMESPACE, NAMESPACE = "slinky", "slurm"
# Of the chart `slurm` with VALUES, for a release of this name.
RELEASE, NODESET, LOGIN, TOKEN = "slurm", "slurm-worker-demo", "slurm-login-users", "slurm-token-admin"
WORKERS = 3
_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
# Machines on which this runs may have other things to do.
PATIENCE = 600.0
CALL_SECONDS = 120.0


class Cluster:
    """kubectl and helm on one cluster."""

    def __init__(
        self,
        kubeconfig: Path,
        home: Path,
        progress: Progress,
        *,
        login: str = LOGIN,
        namespace: str = NAMESPACE,
    ) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self._login = login
        self._tools = provide(["kubectl", "helm"], progress)
        folder = home / "plugin"
        self.plugin = install_plugin(folder)
        homes = {f"HELM_{kind}_HOME": str(home / "helm" / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        # kubectl keeps what it discovers by server address, and ports are used again by other boxes.
        self._environment = {
            **os.environ,
            **homes,
            "KUBECONFIG": str(kubeconfig),
            "KUBECACHEDIR": str(home / "kubectl"),
            "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def run(self, tool: str, *arguments: str, stdin: str | None = None, timeout: float = CALL_SECONDS) -> str:
        """Run a program on the cluster and return what it prints; BoxError carries its complaint."""
        command = f"{tool} {' '.join(arguments)}"
        try:
            result = subprocess.run(
                [self._tools[tool], *arguments],
                input="" if stdin is None else stdin,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                env=self._environment,
            )
        except subprocess.TimeoutExpired:
            raise BoxError(f"{command}: no answer within {timeout:g} s") from None
        if result.returncode != 0:
            raise BoxError(f"{command}: {(result.stderr or result.stdout).strip()}")
        return result.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = CALL_SECONDS) -> str:
        """Run kubectl, in the namespace of Slurm unless the arguments name another."""
        return self.run("kubectl", "--namespace", self.namespace, *arguments, stdin=stdin, timeout=timeout)

    def get(self, *what: str) -> Any:
        """Return an object, or a list of objects."""
        return json.loads(self.kubectl("get", *what, "--output=json"))

    def patch(self, kind: str, name: str, content: dict[str, Any]) -> None:
        """Merge something into an object."""
        self.kubectl("patch", kind, name, "--type=merge", f"--patch={json.dumps(content)}")

    def install(self, release: str, chart: str, namespace: str, *arguments: str) -> str:
        """Install a chart, or upgrade its release, and return what helm says."""
        limit = f"--timeout={PATIENCE:g}s"
        where = ("--namespace", namespace, "--create-namespace")
        command = ("upgrade", "--install", release, str(CHARTS / chart), *where, limit, *arguments)
        return self.run("helm", *command, timeout=PATIENCE + CALL_SECONDS)

    def slurm(self, *command: str, timeout: float = CALL_SECONDS) -> str:
        """Run one of Slurm's commands where users do, and return what it prints."""
        return self.kubectl("exec", f"deployment/{self._login}", "--", *command, timeout=timeout)

    @contextlib.contextmanager
    def started(self, tool: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run a program beside us, in the namespace of Slurm; it ends with the `with`."""
        with subprocess.Popen(
            [self._tools[tool], "--namespace", self.namespace, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    @contextlib.contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[int]:
        """Yield a port of loopback that leads to a port in the cluster."""
        with self.started("kubectl", "port-forward", target, f":{port}") as process:
            line = process.stdout.readline() if process.stdout is not None else ""
            if (found := _FORWARDED.match(line)) is None:
                raise BoxError(f"kubectl port-forward {target}: {line.strip()}")
            yield int(found[1])


def install_plugin(folder: Path) -> dict[str, Path]:
    """Put the programs of `kubectl slurm` into a folder, as pip does, and return them by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, module in (("kubectl-slurm", "entry"), ("kubectl_complete-slurm", "completion")):
        program = found[name] = folder / name
        command = (
            f'PYTHONPATH="{ROOT / "src"}" exec "{sys.executable}" -m slurm_operator.plugin.{module} "$@"'
        )
        program.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        program.chmod(0o755)
    return found


def images(progress: Progress) -> tuple[str, ...]:
    """Return the files with the images of Slurm and of this tree's operator, made when they are not there."""
    return str(provide_slurm_images(progress)), str(provide_operator_image(progress))


def real_box(
    name: str | None,
    bundles: Sequence[str],
    progress: Progress,
    *,
    nodes: int = WORKERS,
    audit: bool = False,
    detach: bool = False,
    apiserver_args: Sequence[str] = (),
) -> Box:
    """Start a Kubernetes with real nodes that hold our images."""
    spec = BoxSpec(
        name=name,
        nodes=nodes,
        controller_manager=True,
        scheduler=True,
        images=tuple(bundles),
        audit=audit,
        apiserver_args=tuple(apiserver_args),
        ready_timeout=PATIENCE,
    )
    return Box.up(spec, detach=detach, progress=progress)


def install_operator(cluster: Cluster, image: str = OPERATOR_IMAGE) -> None:
    """Install the definitions, and the operator with its webhook; return when both serve."""
    cluster.install("slurm-operator-crds", "slurm-operator-crds", OPERATOR_NAMESPACE)
    cluster.install(
        "slurm-operator",
        "slurm-operator",
        OPERATOR_NAMESPACE,
        "--set",
        f"certManager.enabled=false,image={image}",
        "--wait",
    )


def install_slurm(cluster: Cluster, *arguments: str) -> None:
    """Install a Slurm cluster; return when Kubernetes knows what is wanted."""
    cluster.install(RELEASE, "slurm", cluster.namespace, "--values", str(VALUES), *arguments)


def await_slurm(cluster: Cluster, progress: Progress, workers: int = WORKERS) -> None:
    """Wait until all parts of the Slurm cluster are ready, and tell of each pod when it is."""
    started = time.monotonic()
    told: set[str] = set()
    while True:
        waiting = _waited_for(cluster, workers)
        pods = cluster.get("pods")["items"]
        for name in sorted({pod["metadata"]["name"] for pod in pods if is_ready(pod)} - told):
            told.add(name)
            progress(f"{time.monotonic() - started:5.1f} s  {name} is ready")
        if not waiting:
            return
        if time.monotonic() - started > PATIENCE:
            raise BoxError(f"not ready after {PATIENCE:g} s: {', '.join(waiting)}\n{troubles(cluster)}")
        time.sleep(1)


def _waited_for(cluster: Cluster, workers: int) -> list[str]:
    found = cluster.get("accountings,controllers,loginsets,restapis,nodesets")["items"]
    return [
        f"{item['kind']} {item['metadata']['name']}"
        for item in found
        if not (has_workers(item, workers) if item["kind"] == "NodeSet" else is_ready(item))
    ]


def has_workers(nodeset: dict[str, Any], workers: int) -> bool:
    """Return whether a NodeSet has that many workers, all of them ready, and no others."""
    status = nodeset.get("status", {})
    return bool(status.get("readyReplicas", 0) == status.get("replicas", 0) == workers)


def is_ready(item: dict[str, Any]) -> bool:
    """Return whether an object says of itself that it is ready."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def troubles(cluster: Cluster) -> str:
    """Return what a person would look at first when something does not come up."""
    words = []
    for arguments in (
        ("get", "slurm", "--output=wide"),
        ("get", "pods", "--all-namespaces", "--output=wide"),
        ("get", "events", "--all-namespaces", "--field-selector=type=Warning"),
        ("--namespace", OPERATOR_NAMESPACE, "logs", "deployment/slurm-operator", "--tail=40"),
    ):
        with contextlib.suppress(BoxError):
            words.append(cluster.kubectl(*arguments))
    return "\n".join(words)
