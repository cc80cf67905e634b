"""Nodes that run pods in name only, and the slurmd of each worker.

Each node has the identity of a kubelet, so that admission sees what it would see in a real cluster. A pod
that is bound to a node becomes ready; one that is deleted leaves at the end of its grace period, which is
short here. A worker's slurmd registers in the Slurm of its namespace and goes with its pod.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from faultlab.cluster import ApiError, client
from faultlab.volumes import provide_volumes
from kubebox.pki import issue, load_authority, write_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from faultlab.cluster import Json, Kube, Lab
    from faultlab.slurm import Cluster

NODES: Final = 4
_ROOM: Final = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
_HEARTBEAT: Final = 60.0
_WORKER: Final = ("app.kubernetes.io/name", "slurmd")
_POD_STOPS: Final = 0.2
_INVALID: Final = 422


class Kubelets:
    """All nodes of the lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._clients: dict[str, Kube] = {}
        self._slurms: dict[str, Cluster] = {}
        self._phases: dict[str, str] = {}
        """What is done with each pod, by UID."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._registered: dict[str, tuple[str, str]] = {}
        """The namespace and the Slurm node of each worker that runs, by UID."""
        self.failures: list[str] = []

    def serve(self, namespace: str, slurm: Cluster) -> None:
        """Let the workers of a namespace register in a Slurm."""
        self._slurms[namespace] = slurm

    def leave(self, namespace: str) -> None:
        """Forget a namespace."""
        self._slurms.pop(namespace, None)

    async def run(self) -> None:
        """Play kubelets until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(self._follow())
            group.create_task(provide_volumes(self._lab.kube))

    async def _follow(self) -> None:
        while True:
            pods = await self._lab.kube.request("GET", "/api/v1/pods")
            for pod in pods["items"]:
                self._seen(pod)
            version = pods["metadata"]["resourceVersion"]
            async for event in self._lab.kube.stream(f"/api/v1/pods?watch=1&resourceVersion={version}"):
                if event["type"] == "ERROR":
                    break
                if event["type"] == "DELETED":
                    self._gone(event["object"])
                else:
                    self._seen(event["object"])

    def _seen(self, pod: Json) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        wanted = "stop" if pod["metadata"].get("deletionTimestamp") else "run"
        if node not in self._clients or self._phases.get(uid) == wanted:
            return
        self._phases[uid] = wanted
        task = asyncio.create_task(self._stop(pod) if wanted == "stop" else self._start(pod))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(repr(error))

    def _gone(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        self._phases.pop(uid, None)
        self._end_slurmd(uid)

    async def _start(self, pod: Json) -> None:
        if pod.get("status", {}).get("phase") not in ("Running", "Succeeded", "Failed"):
            await self._report(pod, running_status(pod))
        slurm = self._slurms.get(pod["metadata"]["namespace"])
        labels = pod["metadata"].get("labels", {})
        if slurm is not None and labels.get(_WORKER[0]) == _WORKER[1]:
            name = node_name(pod)
            self._registered[pod["metadata"]["uid"]] = (pod["metadata"]["namespace"], name)
            slurm.register(name)

    async def _stop(self, pod: Json) -> None:
        meta = pod["metadata"]
        # slurmd gets its SIGTERM when the deletion begins.
        self._end_slurmd(meta["uid"])
        await asyncio.sleep(_POD_STOPS)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        try:
            await self._clients[pod["spec"]["nodeName"]].delete("Pod", meta["namespace"], meta["name"], body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def _end_slurmd(self, uid: str) -> None:
        namespace, name = self._registered.pop(uid, ("", ""))
        # Another pod may have registered under the name since.
        if namespace in self._slurms and (namespace, name) not in self._registered.values():
            self._slurms[namespace].terminate(name)

    async def _report(self, pod: Json, status: Json) -> None:
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        try:
            await self._clients[pod["spec"]["nodeName"]].request(
                "PATCH",
                f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status",
                body,
                content_type="application/strategic-merge-patch+json",
            )
        except ApiError as error:
            # Another pod may have taken the name meanwhile: then the UID is what must not change.
            replaced = error.status == _INVALID and "metadata.uid" in error.message
            if error.status not in (404, 409) and not replaced:
                raise

    async def join(self, stack: AsyncExitStack, folder: Path) -> None:
        """Make the nodes, each with an identity of its own, and wait until they take pods."""
        pki = self._lab.box.state / "pki"
        authority = load_authority(pki, "ca")
        for number in range(NODES):
            name = f"lab-{number}"
            write_pair(folder, name, *issue(authority, f"system:node:{name}", organization="system:nodes"))
            context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
            context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
            self._clients[name] = await stack.enter_async_context(client(self._lab.box, context))
            await self._lab.kube.discover()
            # A kubelet may not read which resources there are more than it needs.
            self._clients[name].adopt(self._lab.kube)
            await self._lab.kube.ensure(node(name))
        while await self._tainted():  # noqa: ASYNC110 - the API server sets no event
            await asyncio.sleep(0.2)

    async def _tainted(self) -> bool:
        nodes = await self._lab.kube.request("GET", "/api/v1/nodes")
        return any(item["spec"].get("taints") for item in nodes["items"])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT)
            for name, kube in self._clients.items():
                await kube.request(
                    "PATCH",
                    f"/api/v1/nodes/{name}/status",
                    {"status": {"conditions": [_ready_node()]}},
                    content_type="application/strategic-merge-patch+json",
                )


def node(name: str) -> Json:
    """Return a node object."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {"capacity": _ROOM, "allocatable": _ROOM, "conditions": [_ready_node()]},
    }


def _ready_node() -> Json:
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def node_name(pod: Json) -> str:
    """Return the name under which a worker registers in Slurm: that of its host."""
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        return str(spec["nodeName"])
    return str(spec.get("hostname") or pod["metadata"]["name"])


def running_status(pod: Json) -> Json:
    """Return the status of a pod whose containers all run."""
    now = _now()
    started: dict[str, Any] = {"running": {"startedAt": now}}
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": "127.0.0.1",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": name, "status": "True", "lastTransitionTime": now} for name in conditions],
        "containerStatuses": [_container(one, started) for one in pod["spec"]["containers"]],
        "initContainerStatuses": [
            _container(one, started if one.get("restartPolicy") == "Always" else done)
            for one in pod["spec"].get("initContainers", ())
        ],
    }


def _container(container: Json, state: Json) -> Json:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": state,
    }


@asynccontextmanager
async def playing(lab: Lab, folder: Path) -> AsyncIterator[Kubelets]:
    """Give a lab its nodes while the block runs."""
    async with AsyncExitStack() as stack:
        kubelets = Kubelets(lab)
        await kubelets.join(stack, folder)
        task = asyncio.create_task(kubelets.run(), name="kubelets")
        try:
            yield kubelets
        finally:
            task.cancel()
            await asyncio.gather(task, *kubelets._tasks, return_exceptions=True)  # noqa: SLF001 - its own
