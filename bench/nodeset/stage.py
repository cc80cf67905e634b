"""The namespace that the operator works in: what a user makes there, and the pods as they come and go.

The stage follows the pods, for two ends. It is the clock of the measurements: when a pod was there, was
ready, was told to go. And it is what slurmd would be: a worker that runs registers with the stand-in, one
that ends takes its node down.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from bench.nodeset.slurmctld import Slurmctld
from bench.nodeset.standin import StandIn, serving
from slurm_operator.api import Cluster, Controller, NodeSet, RestApi, wellknown
from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Namespace, Pod, Secret
from slurm_operator.objects import slurmd_identity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kubebox import Box
    from slurm_operator.kube.models.store import Change

NAMESPACE: Final = "bench"
NAME: Final = "compute"
_KEY: Final = {"name": "keys", "key": "slurm.key"}
_JWT: Final = {"name": "keys", "key": "jwt.key"}
DEADLINE: Final = 900.0
_ROLE: Final = "app.kubernetes.io/name"


class Pods:
    """The workers of a namespace: which are there, which are ready, and when each was told to go."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.informer = Informer(client, Pod, namespaces=[namespace])
        self.informer.add_handler(self._changed)
        self.staying: set[str] = set()
        """By UID: those that nobody has told to go."""
        self.ready: set[str] = set()
        """Those of them that are ready."""
        self.left: dict[str, float] = {}
        """By name: when a pod of that name was last told to go."""
        self.news = asyncio.Event()

    def _changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if not is_worker(change.object):
            return
        if pod is None or pod.deleting:
            self._leaving(change.old or pod)
        else:
            self.staying.add(pod.metadata.uid)
            if pod.ready:
                self.ready.add(pod.metadata.uid)
            else:
                self.ready.discard(pod.metadata.uid)
        self.news.set()

    def _leaving(self, pod: Pod | None) -> None:
        if pod is not None and pod.metadata.uid in self.staying:
            self.left[pod.metadata.name] = time.monotonic()
            self.staying.discard(pod.metadata.uid)
            self.ready.discard(pod.metadata.uid)


class Stage:
    """What a user of the operator does and sees."""

    def __init__(self, client: Client, standin: StandIn) -> None:
        self.client = client
        self.slurmctld = standin.slurmctld
        self.standin = standin
        self.pods = Pods(client, NAMESPACE)
        self.pods.informer.add_handler(self._play_slurmd)
        self.nodesets = Informer(client, NodeSet, namespaces=[NAMESPACE])
        self.nodesets.add_handler(lambda _change: self.pods.news.set())

    def _play_slurmd(self, change: Change[Pod]) -> None:
        ended, started = slurmds(change)
        if ended:
            self.slurmctld.terminate(ended)
        if started:
            self.slurmctld.register(started)

    @property
    def nodeset(self) -> NodeSet:
        """Return the NodeSet as it was last seen."""
        (found,) = self.nodesets.store.list(NAMESPACE)
        return found

    async def prepare(self, url: str, workers: int) -> None:
        """Make a cluster whose Slurm is the stand-in, and a NodeSet."""
        await create_cluster(self.client, NAMESPACE, url)
        await create_nodeset(self.client, NAMESPACE, NAME, workers)

    async def change(self, **spec: Any) -> float:
        """Change the NodeSet and return the moment at which that was sent."""
        moment = time.monotonic()
        await self.client.patch(NodeSet, NAME, NAMESPACE, {"spec": spec}, type=PatchType.MERGE)
        return moment

    async def until(self, condition: Callable[[], bool], what: str, pods: Pods | None = None) -> float:
        """Wait until something is so, and return the moment at which it was seen."""
        news = (pods or self.pods).news
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    news.clear()
                    await news.wait()
        except TimeoutError:
            seen = f"{len(self.pods.staying)} pods, {len(self.pods.ready)} ready, {self.nodeset.status}"
            raise RuntimeError(f"not within {DEADLINE:g} s: {what}; {seen}") from None
        return time.monotonic()

    async def surroundings(self, namespace: str) -> list[tuple[str, dict[str, Any]]]:
        """Return what stands beside the workers, for another namespace: where to create it, and what."""
        found: list[tuple[str, dict[str, Any]]] = []
        for root, kind in (("/api/v1", "services"), ("/apis/policy/v1", "poddisruptionbudgets")):
            listed = json.loads(await self.client.raw("GET", f"{root}/namespaces/{NAMESPACE}/{kind}"))
            path = f"{root}/namespaces/{namespace}/{kind}"
            found += [(path, _copy(one, namespace)) for one in listed["items"]]
        return found

    async def manifest(self) -> dict[str, Any]:
        """Return a worker as a user would have to write it to get the same pod without an operator."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}-0"
        worker: dict[str, Any] = json.loads(await self.client.raw("GET", path))
        for given in ("nodeName", "serviceAccountName", "serviceAccount"):
            worker["spec"].pop(given, None)
        kept = {
            key: worker["metadata"][key] for key in ("labels", "annotations") if key in worker["metadata"]
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": worker["spec"]}


async def create_operated_cluster(client: Client, namespace: str, jwt_key: bytes) -> None:
    """Create a Controller whose slurmctld the operator runs, and the RestApi that leads to it."""
    where = {"name": "slurm", "namespace": namespace}
    data = {"slurm.key": base64.b64encode(b"k" * 32).decode(), "jwt.key": base64.b64encode(jwt_key).decode()}
    await client.create(Secret, {"metadata": {"name": "keys", "namespace": namespace}, "data": data})
    controller: dict[str, Any] = {
        # The one of the recorded answers: those of another cluster are not trusted.
        "clusterName": "kubebox",
        "slurmKeyRef": _KEY,
        "jwtKeyRef": _JWT,
        "slurmctld": {"image": "example.org/slurmctld:1"},
        "logfile": {"image": "example.org/alpine:1"},
        "persistence": {"enabled": False},
    }
    await client.create(Controller, {"metadata": where, "spec": controller})
    rest = {"controllerRef": {"name": "slurm"}, "slurmrestd": {"image": "example.org/slurmrestd:1"}}
    await client.create(RestApi, {"metadata": where, "spec": rest})


async def create_cluster(client: Client, namespace: str, url: str) -> None:
    """Create a Controller outside of Kubernetes that is reached through the slurmrestd at this address."""
    where = {"namespace": namespace}
    data = {"slurm.key": b"k" * 32, "jwt.key": b"j" * 32, wellknown.CLUSTER_AUTH_DATA_KEY: b"none"}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    await client.create(Secret, {"metadata": {"name": "keys", **where}, "data": encoded})
    server = {"server": url, "token": {"secretRef": "keys"}}
    await client.create(Cluster, {"metadata": {"name": "slurm", **where}, "spec": server})
    external = {"external": True, "externalConfig": {"host": "slurmctld.example.org", "port": 6817}}
    spec: dict[str, Any] = {"slurmKeyRef": _KEY, "jwtKeyRef": _JWT, **external}
    await client.create(Controller, {"metadata": {"name": "slurm", **where}, "spec": spec})


async def create_nodeset(client: Client, namespace: str, name: str, workers: int) -> None:
    """Create a NodeSet of that cluster."""
    spec = {
        "controllerRef": {"name": "slurm"},
        "replicas": workers,
        "slurmd": {"image": "example.org/slurmd:1"},
        "logfile": {"image": "example.org/alpine:1"},
        # Else each worker would need a node of its own, and the scheduler would be what is measured.
        "oversubscribeNode": True,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
    }
    await client.create(NodeSet, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def _copy(found: dict[str, Any], namespace: str) -> dict[str, Any]:
    spec = {key: value for key, value in found["spec"].items() if key != "clusterIPs"}
    return {"metadata": {"name": found["metadata"]["name"], "namespace": namespace}, "spec": spec}


def is_worker(pod: Pod) -> bool:
    """Return whether a pod is a worker."""
    return pod.metadata.labels.get(_ROLE) == wellknown.APP_SLURMD


def slurmds(change: Change[Pod]) -> tuple[str, str]:
    """Return the node whose slurmd ends with a change of a worker, and the one whose slurmd starts."""
    old, new = change.old, change.new
    if not is_worker(change.object):
        return "", ""
    runs = new is not None and new.status.phase == "Running" and not new.deleting
    ran = old is not None and old.status.phase == "Running" and not old.deleting
    same = old is None or new is None or old.metadata.uid == new.metadata.uid
    ended = slurm_name(old) if ran and old is not None and not (runs and same) else ""
    started = slurm_name(new) if runs and new is not None and not (ran and same) else ""
    return ended, started


def slurm_name(pod: Pod) -> str:
    """Return the name under which a worker registers in Slurm."""
    return slurmd_identity.node_of(pod) or pod.metadata.name


@asynccontextmanager
async def following(informer: Informer[Any]) -> AsyncIterator[None]:
    """Keep an informer in sync while the block runs."""
    running = asyncio.create_task(informer.run())
    try:
        await informer.wait_synced()
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


@asynccontextmanager
async def staged(box: Box, workers: int) -> AsyncIterator[Stage]:
    """Set up the namespace with a NodeSet of so many workers, and a Slurm for it."""
    standin = StandIn(Slurmctld())
    async with Client(load_config(str(box.kubeconfig))) as client, serving(standin) as url:
        await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        stage = Stage(client, standin)
        await stage.prepare(url, workers)
        async with following(stage.pods.informer), following(stage.nodesets):
            yield stage
