"""The controllers, run as the process runs them, on the shared API server and confined to a namespace."""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubebox.slurm.daemons import CLUSTER
from slurm_operator.api import Cluster, Controller, RestApi
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers import cluster, slurmclient
from slurm_operator.flags import Parser, add_manager_flags, manager_options, parse
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.client.config import load_config
from slurm_operator.kube.models.kinds import Event, Secret
from slurm_operator.kube.runtime.manager import Manager
from slurm_operator.process import wire
from tests.support.charts.chart_accounts import operator_kubeconfig
from tests.support.processes import await_kinds, eventually, install_crds
from tests.support.slurm.hostile_server import HostileSlurmrestd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kubebox import Box
    from slurm_operator.api import Kind
    from slurm_operator.api.shared import Condition
    from slurm_operator.controllers.shared.wiring import Build, Wiring
    from slurm_operator.kube.client.config import ClientConfig
    from slurm_operator.kube.client.transport import RequestInfo

IMAGE = {"image": "registry.invalid/slurm:1"}
_WRITES = frozenset({"create", "apply", "patch", "delete", "update"})


@pytest.fixture(scope="session")
def slinky_box(kube_box: Box) -> Box:
    """Hand out the shared API server with our CRDs in it."""
    install_crds(kube_box)
    await_kinds(kube_box)
    return kube_box


@pytest.fixture
def config(slinky_box: Box) -> ClientConfig:
    """Hand out the operator's way to the API server, with the permissions of the chart."""
    return load_config(str(operator_kubeconfig(slinky_box)))


@pytest.fixture
def admin_config(slinky_box: Box) -> ClientConfig:
    """Hand out the way to the API server, as its administrator."""
    return load_config(str(slinky_box.kubeconfig))


@pytest.fixture
async def client(admin_config: ClientConfig) -> AsyncIterator[Client]:
    """Hand out an open client, for what a user would do."""
    async with Client(admin_config) as opened:
        yield opened


@pytest.fixture
async def hostile() -> AsyncIterator[HostileSlurmrestd]:
    """Hand out a slurmrestd on loopback with two nodes that misbehaves on demand."""
    async with HostileSlurmrestd() as server:
        server.add_nodes("n[0-1]")
        yield server


class Operator:
    """A running operator: what it shares, and what it sent to the API server."""

    def __init__(self, wiring: Wiring, registry: CollectorRegistry, requests: list[RequestInfo]) -> None:
        self.wiring = wiring
        self.requests = requests
        self._registry = registry

    @property
    def connections(self) -> Any:
        """Return the connections."""
        return self.wiring.connections

    def writes(self) -> list[RequestInfo]:
        """Return the writes so far."""
        return [request for request in self.requests if request.verb in _WRITES]

    def metrics(self) -> str:
        """Return what a scrape shows of Slurm."""
        return generate_latest(self._registry).decode()


@asynccontextmanager
async def running(
    config: ClientConfig,
    namespace: str,
    *flags: str,
    builds: tuple[Build, ...] = (cluster.build, slurmclient.build),
) -> AsyncIterator[Operator]:
    """Run controllers, wired as in the process, until the block ends."""
    parser = Parser(prog="manager", usage="", description="")
    add_manager_flags(parser)
    options = manager_options(parse(parser, [f"--namespaces={namespace}", *flags]))
    requests: list[RequestInfo] = []
    registry = CollectorRegistry()
    async with Client(config, observe=requests.append) as client:
        manager = Manager(client, namespaces=options.namespaces)
        wiring = wire(manager, client, options, registry)
        for build in builds:
            manager.add(build(wiring))
        stop = asyncio.Event()
        run = asyncio.create_task(manager.run(stop))
        try:
            yield Operator(wiring, registry, requests)
        finally:
            stop.set()
            await run
            assert manager.unstoppable == ()


class World:
    """What a user does in one namespace, and what the user sees there.

    `stack` ends the operators that are started in this process.
    """

    def __init__(
        self, client: Client, config: ClientConfig, namespace: str, stack: AsyncExitStack | None = None
    ) -> None:
        self.client = client
        self.namespace = namespace
        self._config = config
        self._stack = stack or AsyncExitStack()

    async def operator(self, *flags: str, config: ClientConfig | None = None, **options: Any) -> Operator:
        """Start an operator, which runs until the test ends."""
        started = running(config or self._config, self.namespace, *flags, **options)
        return await self._stack.enter_async_context(started)

    # --- writing

    async def secret(self, name: str, **data: bytes) -> None:
        """Create a Secret, or give the one that exists other content."""
        encoded = {key.replace("__", "."): base64.b64encode(value).decode() for key, value in data.items()}
        metadata = {"name": name, "namespace": self.namespace}
        await self.client.apply(Secret, {"metadata": metadata, "data": encoded}, field_manager="user")

    async def controller(self, name: str = "main", *, cluster_ref: str = "", **spec: Any) -> None:
        """Create a Controller whose JWT key is `jwt.key` in the Secret `keys`."""
        key = {"name": "keys", "key": "jwt.key"}
        metadata: dict[str, Any] = {"name": name, "namespace": self.namespace}
        if cluster_ref:
            metadata["annotations"] = {"slinky.slurm.net/cluster-ref": cluster_ref}
        pods = {"slurmctld": IMAGE, "logfile": IMAGE, "persistence": {"enabled": False}}
        # The name that a real Slurm of the tests has.
        keys = {"clusterName": CLUSTER, "slurmKeyRef": key, "jwtKeyRef": key}
        body = {"metadata": metadata, "spec": {**keys, **pods, **spec}}
        await self.client.create(Controller, body)

    async def restapi(self, name: str, controller: str = "main", **spec: Any) -> None:
        """Create a RestApi."""
        body = {
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"controllerRef": {"name": controller}, "slurmrestd": IMAGE, **spec},
        }
        await self.client.create(RestApi, body)

    async def cluster(self, name: str, server: str, secret: str = "token") -> None:  # noqa: S107 - a name
        """Create a Cluster."""
        body = {
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"server": server, "token": {"secretRef": secret}},
        }
        await self.client.create(Cluster, body)

    async def patch(self, kind: type[Kind], name: str, body: dict[str, Any]) -> None:
        """Merge something into an object."""
        await self.client.patch(kind, name, self.namespace, body, type=PatchType.MERGE, field_manager="user")

    async def delete(self, kind: Any, name: str) -> None:
        """Delete an object."""
        await self.client.delete(kind, name, self.namespace)

    # --- seeing

    async def api_ready(self, name: str = "main") -> Condition | None:
        """Return the condition SlurmApiReady of a Controller."""
        live = await self.client.get(Controller, name, self.namespace)
        return find_condition(live.status.conditions, "SlurmApiReady")

    async def ready(self, name: str) -> Condition | None:
        """Return the condition Ready of a Cluster."""
        live = await self.client.get(Cluster, name, self.namespace)
        return find_condition(live.status.conditions, "Ready")

    async def says(self, question: Callable[[], Any], reason: str, deadline: float = 90.0) -> Condition:
        """Wait until a condition has a reason, and return it."""
        last: list[Any] = [None]

        async def said() -> Any:
            last[0] = await question()
            return last[0] is not None and last[0].reason == reason

        try:
            await eventually(said, "", deadline)
        except AssertionError:
            raise AssertionError(f"not within {deadline:g} s: {reason}; it says {last[0]}") from None
        found: Condition = last[0]
        return found

    async def events(self) -> list[tuple[str, str, str]]:
        """Return kind and name of the object and the reason of every Event, oldest first."""
        found = (await self.client.list_all(Event, self.namespace)).items
        return [(one.regarding.kind, one.regarding.name, one.reason) for one in found]


@pytest.fixture
async def world(client: Client, config: ClientConfig, kube_namespace: str) -> AsyncIterator[World]:
    """Hand out a fresh namespace, and operators in it that end with the test."""
    async with AsyncExitStack() as stack:
        yield World(client, config, kube_namespace, stack)
