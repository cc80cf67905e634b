"""What kubelets would do with worker pods: run a real slurmd for each, and end it with the pod.

kwok plays the life of the pods in the API server. `SlurmdPods` follows it there: for every pod that runs, a
slurmd joins the Slurm box under the pod's name in Slurm, with what the pod's arguments say about the node. A
pod that is deleted stays in the API server until its own preStop command was run where slurmd runs and slurmd
has ended, as with a kubelet; a finalizer sees to that. Whatever job is on the node at that moment dies with
it. Nothing is asked and nothing is forgiven: whether that was right is for the tests to find out.

`sightings` is what the watch has shown, in order: which pods there were, and whether they served.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import msgspec

from kubebox.slurm.daemons import SLURMD
from slurm_operator.api import wellknown
from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import Conflict, NotFound
from slurm_operator.kube.models.kinds import Pod
from slurm_operator.kube.models.meta import Key
from slurm_operator.objects import slurmd_args
from slurm_operator.objects.slurmd_conf import ENV_TOPOLOGY
from slurm_operator.objects.slurmd_identity import node_of

if TYPE_CHECKING:
    from kubebox.slurm import SlurmBox
    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.store import Change

HELD = "kubelet.test/slurmd"
WORKERS = {wellknown.LABEL_APP_NAME: wellknown.APP_SLURMD}


@dataclass(frozen=True)
class Sighting:
    """One pod as one event of the watch showed it."""

    at: float
    nodeset: str
    name: str
    uid: str
    revision: str
    why: str
    """Why it takes no new jobs as far as the operator is concerned; empty if it serves."""
    leaving: bool
    gone: bool


@dataclass
class _Life:
    """A pod that runs here."""

    name: str
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    slurmd: bool = False


class SlurmdPods:
    """Runs the workers of one namespace in one Slurm box; use it as an async context manager."""

    def __init__(self, client: Client, namespace: str, box: SlurmBox) -> None:
        self.sightings: list[Sighting] = []
        self.failures: list[BaseException] = []
        self._client = client
        self._namespace = namespace
        self._box = box
        self._lives: dict[str, _Life] = {}
        self._informer = Informer(client, Pod, namespaces=(namespace,), labels=WORKERS)
        self._informer.add_handler(self._seen)
        self._run: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._run = asyncio.create_task(self._informer.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [life.task for life in self._lives.values() if life.task is not None]
        for task in (self._run, *tasks):
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, (self._run, *tasks)), return_exceptions=True)

    def live(self, nodeset: str) -> dict[str, Pod]:
        """Return the pods of a NodeSet that exist, as the watch has them."""
        return {
            pod.metadata.name: pod
            for pod in self._informer.store.list(self._namespace)
            if pod.metadata.labels.get(wellknown.LABEL_APP_INSTANCE) == nodeset
        }

    def pod(self, name: str) -> Pod:
        """Return a pod that exists."""
        found = self._informer.store.get(Key(self._namespace, name))
        assert found is not None, f"there is no pod {name}"
        return found

    def running(self, name: str) -> bool:
        """Return whether a slurmd runs for a pod."""
        return any(life.name == name and life.slurmd for life in self._lives.values())

    # --- following the pods

    def _seen(self, change: Change[Pod]) -> None:
        pod, meta = change.object, change.object.metadata
        ready = pod.condition("Ready")
        reasons = {
            "gone": change.deleted,
            "leaving": pod.deleting,
            "cordoned": meta.annotations.get(wellknown.ANNOTATION_POD_CORDON) == wellknown.TRUE,
            "not ready": ready is None or ready.status != "True",
        }
        self.sightings.append(
            Sighting(
                at=time.time(),
                nodeset=meta.labels.get(wellknown.LABEL_APP_INSTANCE, ""),
                name=meta.name,
                uid=meta.uid,
                revision=meta.labels.get(wellknown.LABEL_REVISION_HASH, ""),
                why=next((reason for reason, applies in reasons.items() if applies), ""),
                leaving=pod.deleting or change.deleted,
                gone=change.deleted,
            )
        )
        life = self._lives.get(meta.uid)
        if life is not None and (pod.deleting or change.deleted):
            life.leaving.set()
        elif life is None and pod.status.phase == "Running" and not (pod.deleting or change.deleted):
            life = self._lives[meta.uid] = _Life(meta.name)
            life.task = asyncio.create_task(self._live(pod, life), name=f"kubelet of {meta.name}")
            life.task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    async def _live(self, pod: Pod, life: _Life) -> None:
        if not await self._hold(pod):
            return
        node = node_of(pod)
        args, pre_stop = await self._program(pod)
        topology = pod.metadata.annotations.get(wellknown.ANNOTATION_TOPOLOGY, "")
        conf = f"{self._box.spec.node_conf} {node_conf(args, topology)}".strip()
        await asyncio.to_thread(self._box.add_node, node, conf)
        life.slurmd = True
        await life.leaving.wait()
        await asyncio.to_thread(self._end, node, pre_stop)
        life.slurmd = False
        await self._release(pod)

    async def _hold(self, pod: Pod) -> bool:
        """Keep the pod in the API server until slurmd has ended; return whether it was still there."""
        body = {"metadata": {"uid": pod.metadata.uid, "finalizers": [HELD]}}
        try:
            kept = await self._client.patch(
                Pod,
                pod.metadata.name,
                self._namespace,
                body,
                type=PatchType.STRATEGIC,
                field_manager="kubelet",
            )
        except (Conflict, NotFound):
            return False
        return not kept.deleting

    async def _release(self, pod: Pod) -> None:
        body = {"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [HELD]}}
        try:
            await self._client.patch(
                Pod,
                pod.metadata.name,
                self._namespace,
                body,
                type=PatchType.STRATEGIC,
                field_manager="kubelet",
            )
        except (Conflict, NotFound):
            # Somebody has forced it out of the API server.
            return

    async def _program(self, pod: Pod) -> tuple[list[str], list[str]]:
        """Return the arguments and the preStop command of slurmd, which our models leave out."""
        path = Pod.RESOURCE.path(self._namespace, pod.metadata.name)
        body = msgspec.json.decode(await self._client.raw("GET", path))
        (slurmd,) = (one for one in body["spec"]["containers"] if one["name"] == wellknown.APP_SLURMD)
        return slurmd.get("args", []), _pre_stop(slurmd)

    def _end(self, node: str, pre_stop: list[str]) -> None:
        if pre_stop:
            # It may fail, as when slurmctld is away; a kubelet goes on all the same.
            named = ("env", f"{slurmd_args.ENV_NODE_NAME}={node}")
            self._box.run(*named, *pre_stop, node=node, timeout=40, check=False)
        self._box.stop(SLURMD + node)
        self._box.remove_node(node)


def _pre_stop(container: dict[str, Any]) -> list[str]:
    command: list[str] = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    return command


def node_conf(args: list[str], topology: str) -> str:
    """Return what `--conf` says, read by a shell as the images' entrypoint has it read."""
    if "--conf" not in args:
        return ""
    quoted = args[args.index("--conf") + 1]
    told = subprocess.run(
        ["sh", "-c", f"printf %s {quoted}"],
        env={ENV_TOPOLOGY: topology},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout
