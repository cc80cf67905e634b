"""The raw side of the measurements: plain aiohttp against the API server, nothing of the operator between.

It is the ruler, so it does as little as a correct client can: the answer is read and thrown away.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import time
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kubebox import Box

CONNECTIONS = 32


def worker_pod(name: str) -> dict[str, Any]:
    """Return a pod of the size and shape of a slurmd worker (about 6 kB once the server has filled it in)."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": "slurmd",
                "app.kubernetes.io/instance": "bench",
                "app.kubernetes.io/component": "worker",
                "slinky.slurm.net/cluster": "slurm",
                "nodeset.slinky.slurm.net/pod-name": name,
                "nodeset.slinky.slurm.net/pod-hostname": name,
                "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet",
                "controller.kubernetes.io/hash": "5587658988",
            },
            "annotations": {"kubectl.kubernetes.io/default-container": "slurmd"},
        },
        "spec": {
            "hostname": name,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "initContainers": [
                {
                    "name": "logfile",
                    "image": "example.org/alpine:26.05",
                    "restartPolicy": "Always",
                    "command": ["sh", "-c", "tail -F /var/log/slurm/slurmd.log"],
                    "volumeMounts": [{"name": "slurm-logfile", "mountPath": "/var/log/slurm"}],
                }
            ],
            "containers": [
                {
                    "name": "slurmd",
                    "image": "example.org/slurmd:26.05",
                    "args": ["-Z", "--conf-server", "slurm-controller.bench:6817"],
                    "ports": [{"name": "slurmd", "containerPort": 6818}],
                    "env": [
                        {"name": "POD_CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                        {
                            "name": "POD_MEMORY",
                            "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}},
                        },
                    ],
                    "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
                    "livenessProbe": {"httpGet": {"path": "/livez", "port": 6818}},
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 6818}},
                    "lifecycle": {
                        "preStop": {"exec": {"command": ["sh", "-c", "scontrol update state=down"]}}
                    },
                    "securityContext": {"privileged": True},
                    "volumeMounts": [
                        {"name": "slurm-etc", "mountPath": "/etc/slurm"},
                        {"name": "run", "mountPath": "/run"},
                        {"name": "slurm-logfile", "mountPath": "/var/log/slurm"},
                    ],
                }
            ],
            "tolerations": [
                {"key": "nodeset.slinky.slurm.net/worker", "operator": "Equal", "effect": "NoExecute"}
            ],
            "volumes": [
                {"name": "slurm-etc", "secret": {"secretName": "slurm-auth", "defaultMode": 384}},
                {"name": "run", "emptyDir": {"medium": "Memory"}},
                {"name": "slurm-logfile", "emptyDir": {"medium": "Memory"}},
            ],
        },
    }


def running_status(stamp: str) -> dict[str, Any]:
    """Return the status a kubelet would report for a worker that runs."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": stamp}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    container = {
        "name": "slurmd",
        "image": "example.org/slurmd:26.05",
        "imageID": "example.org/slurmd@sha256:" + "0" * 64,
        "containerID": "containerd://" + "0" * 64,
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": stamp}},
    }
    return {
        "phase": "Running",
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "startTime": stamp,
        "conditions": conditions,
        "containerStatuses": [container],
    }


class RawClient:
    """The least that a correct client does: one session, one request, the body read."""

    def __init__(self, box: Box) -> None:
        context = ssl.create_default_context(cafile=str(box.ca_file))
        context.load_cert_chain(str(box.cert_file), str(box.key_file))
        self._base = box.server
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context),
            headers={"Accept": "application/json"},
        )

    async def send(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> None:
        """Send one request and read its answer."""
        headers = {"Content-Type": content_type}
        async with self._session.request(method, self._base + path, data=body, headers=headers) as answer:
            data = await answer.read()
            if not answer.ok:
                raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def make_namespace(self, name: str) -> None:
        """Make a namespace with the service account that pods need; no controller-manager does it here."""
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": name}}),
            (f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}}),
        ):
            await self.send("POST", path, json.dumps(body).encode())

    async def create_pods(self, namespace: str, names: list[str]) -> None:
        """Create worker pods on all connections."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        await in_parallel(names, lambda name: self.send("POST", path, json.dumps(worker_pod(name)).encode()))

    async def run_pods(self, namespace: str, names: list[str]) -> None:
        """Report worker pods as running, as their kubelets would."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = json.dumps({"status": running_status(stamp)}).encode()
        kind = "application/strategic-merge-patch+json"
        base = f"/api/v1/namespaces/{namespace}/pods/"
        await in_parallel(names, lambda name: self.send("PATCH", f"{base}{name}/status", body, kind))


async def in_parallel(names: list[str], act: Callable[[str], Awaitable[object]]) -> None:
    """Run `act` for every name with as many at a time as there are connections."""
    left = iter(names)

    async def worker() -> None:
        for name in left:
            await act(name)

    async with asyncio.TaskGroup() as group:
        for _ in itertools.repeat(None, CONNECTIONS):
            group.create_task(worker())
