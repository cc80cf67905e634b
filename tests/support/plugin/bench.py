"""The command as a process, in one namespace of a real API server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.processes import ROOT
from tests.support.service_accounts import kubeconfig_with_token, until_allowed

if TYPE_CHECKING:
    from kubebox import Box
    from tests.support.plugin.fake_manager import FakeManager

POD = "manager-0"


@dataclass(frozen=True)
class Ended:
    """How a run of the command ended."""

    code: int
    out: str
    err: str


class Bench:
    """One namespace, which is both that of the operator and that of Slurm."""

    def __init__(self, box: Box, namespace: str, folder: Path) -> None:
        self.box = box
        self.namespace = namespace
        self.folder = folder
        self.kubeconfig = Path(box.kubeconfig)

    async def run(self, *arguments: str, kubeconfig: Path | None = None, home: bool = True) -> Ended:
        """Run the command in the namespace; `home`: also look for the operator there."""
        place = [f"--operator-namespace={self.namespace}"] if home else []
        named = [] if "-A" in arguments or "-n" in arguments else ["-n", self.namespace]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "slurm_operator.plugin.entry", *arguments, *named, *place),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self.environment(), "KUBECONFIG": str(kubeconfig or self.kubeconfig)},
        )
        out, err = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())

    def environment(self) -> dict[str, str]:
        """Return the environment of the command."""
        return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HOME": str(self.folder)}

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create objects in the namespace."""
        body = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.box.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=json.dumps(body))

    def status(self, kind: str, name: str, **status: Any) -> None:
        """Set the status of an object, as its controller would."""
        patch = json.dumps({"status": status})
        self.box.kubectl(
            *("patch", kind, name, "-n", self.namespace, "--subresource=status", "--type=merge", "-p", patch)
        )

    def get(self, kind: str, name: str) -> Any:
        """Return an object."""
        return json.loads(self.box.kubectl("get", kind, name, "-n", self.namespace, "-o", "json"))

    def install(self, manager: FakeManager | None, *, port_name: str = "status", viewer: bool = True) -> None:
        """Create what the chart and a leading operator leave behind; without a manager its port is dead."""
        port = 9 if manager is None else manager.port
        container: dict[str, Any] = {"name": "slurm-operator", "image": "x"}
        container["ports"] = [{"name": port_name, "containerPort": port}]
        self.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "slurm-operator"},
                "spec": {"holderIdentity": f"{POD}_1234", "leaseDurationSeconds": 15},
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": POD},
                "spec": {"containers": [container]},
            },
        )
        if viewer:
            self.apply(
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "slurm-operator-viewer"}}
            )
        address = "192.0.2.254" if manager is None else manager.address
        self.status("pod", POD, phase="Running", podIP=address, podIPs=[{"ip": address}])
        if manager is not None:
            manager.namespace = self.namespace

    def user(self, name: str, *rules: str) -> Path:
        """Return a kubeconfig of a user with some rules, each `VERB RESOURCE`."""
        self.box.kubectl("create", "serviceaccount", name, "-n", self.namespace)
        for number, rule in enumerate(rules):
            verb, resource = rule.split()
            role = f"{name}-{number}"
            self.box.kubectl(
                "create", "role", role, "-n", self.namespace, f"--verb={verb}", f"--resource={resource}"
            )
            who = f"--serviceaccount={self.namespace}:{name}"
            self.box.kubectl("create", "rolebinding", role, "-n", self.namespace, f"--role={role}", who)
            plain, _, part = resource.partition("/")
            right = (verb, plain, *([f"--subresource={part}"] if part else []))
            until_allowed(self.box, self.namespace, name, *right, "-n", self.namespace)
        token = self.box.kubectl("create", "token", name, "-n", self.namespace).strip()
        return kubeconfig_with_token(self.box, self.folder / f"{name}.kubeconfig", token)

    def worker(self, name: str, **annotations: str) -> None:
        """Create a worker pod that runs, with an idle Slurm node."""
        labels = {"app.kubernetes.io/name": "slurmd", "app.kubernetes.io/instance": "workers"}
        metadata: dict[str, Any] = {"name": name, "labels": labels, "annotations": annotations}
        spec = {"containers": [{"name": "slurmd", "image": "x"}], "hostname": name}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        idle = {"type": "SlurmNodeStateIdle", "status": "True"}
        self.status("pod", name, phase="Running", conditions=[idle, {"type": "Ready", "status": "True"}])
