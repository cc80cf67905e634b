"""The tenants of `bench.fairness`: namespaces with a Slurm cluster and NodeSets, and what is done to them.

Each NodeSet is scaled out to one worker and back to none, again and again. The time is taken from sending the
change until a watch shows what the operator did about it: the pod is there, or is told to go. The second one
needs Slurm: the node is drained, and a list that was asked for afterwards shows it idle.

    created   change of `replicas` until the pod exists
    observed  change of `replicas` until the status has the generation of the change
    removed   change of `replicas` until the pod, which runs and is registered in Slurm, is told to go
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from bench.nodeset.stage import create_cluster, create_nodeset, slurm_name
from slurm_operator.api import NodeSet
from slurm_operator.kube.cache.informer import Informer
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import ApiError
from slurm_operator.kube.models.kinds import Namespace, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.models.store import Change

DEADLINE: Final = 240.0
Times = defaultdict[str, list[float]]


class Crowd:
    """The process with the Slurm clusters (`bench.crowd`)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.addresses: dict[str, Any] = {}

    async def started(self) -> Self:
        """Wait until its servers listen."""
        self.addresses = await self._answer()
        return self

    async def hostile(self, *, hostile: bool) -> None:
        """Make those of its servers that can be hostile so, or not."""
        self.order("hostile", hostile)
        await self._answer()

    async def counts(self) -> dict[str, list[int]]:
        """Return how many `requests` and `writes` each cluster behind a shared address has had."""
        self.order("counts", value=True)
        found: dict[str, list[int]] = await self._answer()
        return found

    def order(self, what: str, value: object) -> None:
        """Tell it what slurmds do."""
        if self._process.stdin is None:
            raise RuntimeError("the servers were started without a pipe")
        self._process.stdin.write(json.dumps({what: value}).encode() + b"\n")

    async def _answer(self) -> Any:
        if self._process.stdout is None:
            raise RuntimeError("the servers were started without a pipe")
        return json.loads(await asyncio.wait_for(self._process.stdout.readline(), DEADLINE))


@asynccontextmanager
async def crowd(count: int, *arguments: str) -> AsyncIterator[Crowd]:
    """Run so many Slurm clusters in a process of their own."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "bench.crowd", str(count), *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        yield await Crowd(process).started()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Tenant:
    """One NodeSet in its namespace, and the number of its Slurm cluster in a crowd."""

    def __init__(self, client: Client, namespace: str, name: str, slurm: Crowd, number: int) -> None:
        self.key = (namespace, name)
        self._client = client
        self._slurm = slurm
        self._number = number
        self._news = asyncio.Event()
        self._seen: NodeSet | None = None
        self._pod: Pod | None = None
        self._registered = ""

    # --- what a watch shows

    def nodeset_changed(self, nodeset: NodeSet | None) -> None:
        """Take in the NodeSet."""
        self._seen = nodeset
        self._news.set()

    def pod_changed(self, pod: Pod | None) -> None:
        """Take in the worker, and do what its slurmd would do."""
        runs = pod is not None and pod.status.phase == "Running" and not pod.deleting
        uid = pod.metadata.uid if pod is not None and runs else ""
        if pod is not None and runs and uid != self._registered:
            self._slurm.order("register", (self._number, slurm_name(pod)))
        elif self._pod is not None and self._registered and not runs:
            self._slurm.order("terminate", (self._number, slurm_name(self._pod)))
        self._registered, self._pod = uid, pod
        self._news.set()

    # --- what is done to it

    async def cycle(self, start: float, pause: float, times: Times) -> None:
        """Scale out and in once, each `pause` seconds after the one before, and note how long each took."""
        await _until(start)
        await self._timed(1, times, "created", lambda: self._pod is not None and not self._pod.deleting)
        # What kubelets and slurmds do next is not measured, but a removal is only of a worker that works.
        await self._wait(lambda: bool(self._registered))
        await _until(start + pause)
        await self._timed(0, times, "removed", lambda: self._pod is None or self._pod.deleting)
        await self._wait(lambda: self._pod is None)
        await _until(start + 2 * pause)

    async def churn(self, pause: float) -> None:
        """Scale out and in until cancelled, whatever becomes of it."""
        for turn in range(sys.maxsize):
            with suppress(ApiError):
                await self._scale((turn + 1) % 2)
            await asyncio.sleep(pause)

    async def _timed(self, replicas: int, times: Times, what: str, done: Callable[[], bool]) -> None:
        started = time.monotonic()
        generation = await self._scale(replicas)
        await self._wait(done)
        times[what].append(time.monotonic() - started)
        await self._wait(lambda: self._seen is not None and self._observed() >= generation)
        if what == "created":
            times["observed"].append(time.monotonic() - started)

    def _observed(self) -> int:
        return 0 if self._seen is None else self._seen.status.observed_generation

    async def _scale(self, replicas: int) -> int:
        namespace, name = self.key
        body = {"spec": {"replicas": replicas}}
        found = await self._client.patch(NodeSet, name, namespace, body, type=PatchType.MERGE)
        return found.metadata.generation

    async def _wait(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pod = self._pod and (self._pod.status.phase, self._pod.status.conditions)
            raise RuntimeError(
                f"{self.key}: not within {DEADLINE:g} s; {self._seen and self._seen.status}, pod {pod}"
            ) from None


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


class Tenants:
    """All of them, and the watches that show what the operator does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tenants: dict[tuple[str, str], Tenant] = {}
        self.pods = Informer(client, Pod)
        self.pods.add_handler(self._pod_changed)
        self.nodesets = Informer(client, NodeSet)
        self.nodesets.add_handler(self._nodeset_changed)

    async def add(self, namespace: str, slurm: Crowd, number: int, nodesets: int = 1) -> list[Tenant]:
        """Create a namespace with a Slurm cluster and NodeSets without workers."""
        await self._client.create(Namespace, {"metadata": {"name": namespace}})
        await create_cluster(self._client, namespace, slurm.addresses["urls"][number])
        made = []
        for index in range(nodesets):
            tenant = Tenant(self._client, namespace, f"set-{index}", slurm, number)
            self._tenants[tenant.key] = tenant
            made.append(tenant)
            await create_nodeset(self._client, *tenant.key, 0)
        return made

    def _pod_changed(self, change: Change[Pod]) -> None:
        namespace, name = change.object.key
        tenant = self._tenants.get((namespace, name.rpartition("-")[0]))
        if tenant is not None:
            tenant.pod_changed(change.new)

    def _nodeset_changed(self, change: Change[NodeSet]) -> None:
        namespace, name = change.object.key
        if (tenant := self._tenants.get((namespace, name))) is not None:
            tenant.nodeset_changed(change.new)
