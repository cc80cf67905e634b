"""One namespace with its own Slurm and its own operator process, and what a person does there."""

from __future__ import annotations

import base64
import contextlib
import itertools
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from kubebox.nodes import fake_node
from slurm_operator.api import Controller, NodeSet, RestApi, wellknown
from slurm_operator.kube.client.client import PatchType
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import Node, Pod, Secret
from tests.support.charts.chart_accounts import operator_kubeconfig
from tests.support.jobs.observed_state import SECONDS, ObservedState
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, Process, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from kubebox import Box
    from kubebox.slurm import SlurmBox
    from slurm_operator.kube.client.client import Client

IMAGE = {"image": "registry.invalid/slurm:1"}
POOL = "test/pool"


class Site(ObservedState):
    """A namespace, a Slurm, the slurmd of its workers, and the operator."""

    def __init__(
        self, kube: Box, client: Client, namespace: str, slurm: SlurmBox, logs: Path, url: str = ""
    ) -> None:
        super().__init__(client, namespace, slurm)
        self.kube = kube
        self._logs = logs
        self._url = url or slurm.url
        self._lent: dict[str, list[str]] = {}
        self._processes = itertools.count()
        self._operator: Process | None = None

    # ------------------------------------------------------------------------------------------- the operator

    @property
    def operator(self) -> Process:
        """Return the operator's process."""
        assert self._operator is not None, "the operator was never started"
        return self._operator

    def start_operator(self, *more: str) -> None:
        """Start an operator for this namespace, with the rights that the chart gives it."""
        log = self._logs / f"operator-{next(self._processes)}.log"
        flags = (f"--namespaces={self.namespace}", f"--slurm-api-override={self._url}", *more)
        account = operator_kubeconfig(self.kube)
        self._operator = Process(None, log, [*MANAGER, *LOOPBACK_FLAGS, *flags], KUBECONFIG=str(account))

    async def kill_operator(self) -> None:
        """End the operator as a failing machine would."""
        self.operator.signal(signal.SIGKILL)
        await self.operator.ended()

    def end_operator(self) -> None:
        """End the operator if it runs."""
        if self._operator is not None:
            self._operator.__exit__()

    def broken(self) -> str:
        """Say that the operator has ended by itself, or what is wrong with the harness."""
        if self.operator._process.poll() is not None:
            return f"the operator has ended: {self.operator.text()[-2000:]}"
        return super().broken()

    # ------------------------------------------------------------------------------------------------ writing

    async def connect(self) -> None:
        """Create the keys, a Controller for this Slurm, and the RestApi through which it is reached."""
        await self.keys(self.slurm.jwt_key)
        spec = {
            "slurmKeyRef": {"name": "keys", "key": "slurm.key"},
            "jwtKeyRef": {"name": "keys", "key": "jwt.key"},
            "external": True,
            "externalConfig": {"host": "127.0.0.1", "port": self.slurm.record().ports["slurmctld"]},
        }
        await self.client.create(Controller, {"metadata": self.meta("slurm"), "spec": spec})
        await self.restapi()

    async def keys(self, jwt: bytes) -> None:
        """Write the keys of the cluster."""
        data = {"slurm.key": self.slurm.slurm_key, "jwt.key": jwt}
        encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
        body = {"metadata": self.meta("keys"), "data": encoded}
        await self.client.apply(Secret, body, field_manager="user")

    async def restapi(self) -> None:
        """Create the RestApi."""
        spec = {"controllerRef": {"name": "slurm"}, "slurmrestd": IMAGE}
        await self.client.create(RestApi, {"metadata": self.meta("slurm"), "spec": spec})

    async def nodes(self, pool: str, names: Iterable[str]) -> None:
        """Add Kubernetes nodes to a pool, until they are given back."""
        made = [*names]
        self._lent.setdefault(pool, []).extend(made)
        for name in made:
            body = fake_node(name)
            body["metadata"]["labels"][POOL] = pool
            await self.client.create(Node, body)
        await eventually(lambda: self._usable(made), f"nodes {', '.join(made)} take pods", SECONDS)

    def keep(self) -> None:
        """Keep the nodes that were added so far to the end."""
        self._lent = {}

    async def give_back(self) -> None:
        """Remove the nodes that a test has added, and the NodeSets that were made for them."""
        lent, self._lent = self._lent, {}
        for live in (await self.client.list_all(NodeSet, self.namespace)).items if lent else ():
            if live.spec.template.spec.get("nodeSelector", {}).get(POOL) in lent:
                body = {"metadata": {"annotations": {wellknown.ANNOTATION_SKIP_DRAIN: wellknown.TRUE}}}
                await self.client.patch(
                    NodeSet, live.metadata.name, self.namespace, body, type=PatchType.MERGE
                )
                await self.client.delete(NodeSet, live.metadata.name, self.namespace)
        for name in itertools.chain.from_iterable(lent.values()):
            with contextlib.suppress(NotFound):
                await self.client.delete(Node, name)

    async def _usable(self, names: list[str]) -> bool:
        found = [await self.client.get(Node, name) for name in names]
        ready = [node.condition("Ready") for node in found]
        return all(one is not None and one.status == "True" for one in ready) and not any(
            node.spec.taints for node in found
        )

    async def nodeset(self, name: str, replicas: int = 1, *, pool: str = "", **spec: Any) -> None:
        """Create a NodeSet whose workers run on the nodes of a pool, several on each if need be."""
        base = {
            "controllerRef": {"name": "slurm"},
            "replicas": replicas,
            "slurmd": IMAGE,
            "logfile": IMAGE,
            "oversubscribeNode": True,
            "template": {"spec": {"nodeSelector": {POOL: pool or self.namespace}}},
        }
        await self.client.create(NodeSet, {"metadata": self.meta(name), "spec": base | spec})

    async def patch(self, name: str, spec: dict[str, Any]) -> None:
        """Merge something into the spec of a NodeSet."""
        body = {"spec": spec}
        await self.client.patch(
            NodeSet, name, self.namespace, body, type=PatchType.MERGE, field_manager="user"
        )

    async def update(self, name: str, version: str) -> None:
        """Ask for another image."""
        await self.patch(name, {"slurmd": {"image": f"registry.invalid/slurm:{version}"}})

    async def scale(self, name: str, replicas: int) -> None:
        """Ask for another number of workers, as `kubectl scale` does."""
        await self.client.set_scale(NodeSet, name, self.namespace, replicas)

    async def annotate(self, pod: str, annotations: dict[str, str | None]) -> None:
        """Change annotations of a pod; None removes."""
        body = {"metadata": {"annotations": annotations}}
        await self.client.patch(Pod, pod, self.namespace, body, type=PatchType.MERGE, field_manager="user")

    def meta(self, name: str) -> dict[str, str]:
        """Return the metadata of an object of this namespace."""
        return {"name": name, "namespace": self.namespace}


@asynccontextmanager
async def opened(
    kube: Box, client: Client, slurm: SlurmBox, logs: Path, url: str = "", machines: int = 2
) -> AsyncIterator[Site]:
    """Make a namespace with machines of its own, connected to a Slurm, and run an operator for it."""
    async with AsyncExitStack() as stack:
        namespace = stack.enter_context(kube.namespace())
        site = Site(kube, client, namespace, slurm, logs, url)
        stack.push_async_callback(_remove_nodes, client, namespace)
        await stack.enter_async_context(site.workers)
        stack.callback(site.end_operator)
        await site.connect()
        site.start_operator()
        await site.nodes(namespace, [f"{namespace}-m{number}" for number in range(machines)])
        site.keep()
        yield site
        assert site.workers.failures == [], "the harness itself works"


async def _remove_nodes(client: Client, prefix: str) -> None:
    for node in (await client.list_all(Node)).items:
        if node.metadata.name.startswith(prefix):
            await client.delete(Node, node.metadata.name)
