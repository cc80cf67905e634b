"""One Controller with all it needs, for the tests of the connections that the operator makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.controllers.cluster import ClusterController
from slurm_operator.controllers.slurmclient import SlurmClient
from slurm_operator.slurm.rest.connections import ConnectionKey

if TYPE_CHECKING:
    from kubebox.slurm import SlurmBox
    from slurm_operator.controllers.shared.wiring import Build, Wiring
    from slurm_operator.kube.runtime import controller as runtime
    from tests.integration.controllers.conftest import Operator, World
    from tests.support.slurm.hostile_server import HostileSlurmrestd

KEY = b"k" * 32


def override(server: HostileSlurmrestd | SlurmBox) -> str:
    return f"--slurm-api-override={server.url}"


def connection(operator: Operator, world: World, name: str = "main") -> Any:
    return operator.connections.get(ConnectionKey("Controller", world.namespace, name))


def impatient(wiring: Wiring) -> runtime.Controller:
    """Build the controller with a short grace, for tests that would only wait for it."""
    return SlurmClient(wiring, grace=0.3).controller


def impatient_cluster(wiring: Wiring) -> runtime.Controller:
    """Build the controller of Clusters in the same way."""
    return ClusterController(wiring, grace=0.3).controller


async def connected(
    world: World, server: HostileSlurmrestd | SlurmBox, key: bytes = KEY, build: Build = impatient
) -> Operator:
    """Run an operator with one Controller that has all it needs."""
    operator = await world.operator(override(server), builds=(impatient_cluster, build))
    await world.secret("keys", jwt__key=key)
    await world.controller()
    await world.restapi("api")
    await world.says(world.api_ready, "Connected")
    return operator


async def has_event(world: World, reason: str, kind: str = "Controller", name: str = "main") -> bool:
    """Return whether an Event with a reason was written about an object."""
    return (kind, name, reason) in await world.events()


async def has_message(world: World, text: str) -> bool:
    """Return whether the condition of the Controller mentions something."""
    ready = await world.api_ready()
    return ready is not None and text in ready.message
