"""What a user of one namespace does and sees, and the operator that works there."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from slurm_operator.api import Accounting, Controller, LoginSet, NodeSet, RestApi
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers import accounting, loginset
from slurm_operator.controllers.controller import ControllerController
from slurm_operator.controllers.restapi import RestApiController
from slurm_operator.controllers.workload.decide.read_models import DeploymentDetails, StatefulSetDetails
from slurm_operator.flags import Parser, add_manager_flags, manager_options, parse
from slurm_operator.kube.client.client import Client, PatchType
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import ConfigMap, Event, Secret, Service
from slurm_operator.kube.models.meta import Object
from slurm_operator.kube.runtime.manager import Manager
from slurm_operator.process import wire
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from slurm_operator.api import Kind
    from slurm_operator.api.shared import Condition
    from slurm_operator.controllers.shared.wiring import Build, Wiring
    from slurm_operator.kube.client.config import ClientConfig
    from slurm_operator.kube.client.transport import RequestInfo
    from slurm_operator.kube.runtime import controller as runtime

T = TypeVar("T", bound=Object)

_READS = {"get", "list", "watch"}


class Impatient(RestApiController):
    """Tells at once of a pod that no node can take."""

    PATIENCE: ClassVar = 0.1


BUILDS: tuple[Build, ...] = (
    lambda wiring: Impatient(wiring).controller,
    accounting.build,
    loginset.build,
    lambda wiring: ControllerController(wiring, discovery_period=0.2).controller,
)
KEY = {"name": "keys", "key": "slurm.key"}
JWT = {"name": "keys", "key": "jwt.key"}
IMAGE = {"image": "registry.invalid/slurm:1"}


class Operator:
    """A running operator: what it shares, and what it sent to the API server."""

    def __init__(
        self, wiring: Wiring, controllers: list[runtime.Controller], requests: list[RequestInfo]
    ) -> None:
        self.wiring = wiring
        self.requests = requests
        self._controllers = controllers

    @property
    def writes(self) -> list[str]:
        """Return what was written so far, Events aside: verb and resource."""
        return [
            f"{request.verb} {request.resource}"
            for request in self.requests
            if request.verb not in _READS and request.resource != "events"
        ]

    async def rests(self) -> bool:
        """Return whether several reconciles of everything send nothing; one may be under way."""
        before = len(self.writes)
        await self.reconcile_again(3)
        return len(self.writes) == before

    async def reconcile_again(self, times: int = 1) -> None:
        """Have every object reconciled, as any event would, and wait until that is done."""
        kinds: dict[str, type[Kind]] = {
            "restapi-controller": RestApi,
            "accounting-controller": Accounting,
            "loginset-controller": LoginSet,
            "controller-controller": Controller,
        }
        queues = {one.queue: kinds[one.name] for one in self._controllers if one.name in kinds}
        # Through the queues: another reconcile would run beside that of the last event, and write the same.
        for _ in range(times):
            for queue, kind in queues.items():
                for live in self.wiring.manager.informer(kind).store.list():
                    queue.add(live.key)
            await eventually(lambda: all(queue.idle for queue in queues), "all are looked at")


@asynccontextmanager
async def running(
    config: ClientConfig,
    namespace: str,
    *flags: str,
    builds: tuple[Build, ...] = BUILDS,
    grace: float = 20.0,
) -> AsyncIterator[Operator]:
    """Run the controllers until the block ends; what they do then has its grace."""
    parser = Parser(prog="manager", usage="", description="")
    add_manager_flags(parser)
    options = manager_options(parse(parser, [f"--namespaces={namespace}", *flags]))
    requests: list[RequestInfo] = []
    async with Client(config, observe=requests.append) as client:
        manager = Manager(client, namespaces=options.namespaces, grace=grace)
        wiring = wire(manager, client, options, CollectorRegistry())
        controllers = [manager.add(build(wiring)) for build in builds]
        stop = asyncio.Event()
        run = asyncio.create_task(manager.run(stop))
        try:
            yield Operator(wiring, controllers, requests)
        finally:
            stop.set()
            await run
            assert manager.unstoppable == ()


class Stage:
    """One namespace."""

    def __init__(self, client: Client, config: ClientConfig, namespace: str, stack: AsyncExitStack) -> None:
        self.client = client
        self.config = config
        self.namespace = namespace
        self._stack = stack

    async def operator(self, *flags: str) -> Operator:
        """Start an operator, which runs until the test ends."""
        return await self._stack.enter_async_context(running(self.config, self.namespace, *flags))

    def for_a_while(self, *flags: str) -> AbstractAsyncContextManager[Operator]:
        """Start an operator that runs until the block ends."""
        return running(self.config, self.namespace, *flags)

    # ------------------------------------------------------------------------------------------------ writing
    async def secret(self, name: str = "keys", **data: str) -> None:
        """Write a Secret; two underscores in a key stand for a dot."""
        encoded = {
            key.replace("__", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()
        }
        await self.client.apply(Secret, {"metadata": self._meta(name), "data": encoded}, field_manager="user")

    async def keys(self, slurm: str = "s", jwt: str = "j") -> None:
        """Write the Secret with the keys of the cluster."""
        await self.secret("keys", slurm__key=slurm, jwt__key=jwt)

    async def password(self, text: str) -> None:
        """Write the Secret with the password of the database."""
        await self.secret("db", password=text)

    async def config_map(self, name: str, **data: str) -> None:
        """Write a ConfigMap; two underscores in a key stand for a dot."""
        files = {key.replace("__", "."): text for key, text in data.items()}
        await self.client.apply(
            ConfigMap, {"metadata": self._meta(name), "data": files}, field_manager="user"
        )

    async def controller(self, name: str = "slurm", **spec: Any) -> None:
        """Write a Controller without a volume."""
        base = {
            "slurmKeyRef": KEY,
            "jwtKeyRef": JWT,
            "slurmctld": IMAGE,
            "logfile": IMAGE,
            "reconfigure": IMAGE,
            "persistence": {"enabled": False},
        }
        await self._apply(Controller, name, base | spec)

    async def accounting(self, name: str = "slurm", **spec: Any) -> None:
        """Write an Accounting whose password is in the Secret `db`."""
        password = {"name": "db", "key": "password"}
        base = {
            "slurmKeyRef": KEY,
            "jwtKeyRef": JWT,
            "slurmdbd": IMAGE,
            "storageConfig": {"host": "mariadb", "username": "slurm", "passwordKeyRef": password},
        }
        await self._apply(Accounting, name, base | spec)

    async def restapi(self, name: str = "slurm", controller: str = "slurm", **spec: Any) -> None:
        """Write a RestApi."""
        await self._apply(RestApi, name, {"controllerRef": {"name": controller}, "slurmrestd": IMAGE} | spec)

    async def loginset(self, name: str = "login", controller: str = "slurm", **spec: Any) -> None:
        """Write a LoginSet whose sssd.conf is in the Secret `sssd`."""
        base = {
            "controllerRef": {"name": controller},
            "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
            "login": IMAGE,
            "initconf": IMAGE,
        }
        await self._apply(LoginSet, name, base | spec)

    async def nodeset(self, name: str, controller: str = "slurm", **spec: Any) -> None:
        """Write a NodeSet, which nobody looks after here."""
        await self._apply(NodeSet, name, {"controllerRef": {"name": controller}, "slurmd": IMAGE} | spec)

    async def _apply(self, kind: type[Kind], name: str, spec: dict[str, Any]) -> None:
        await self.client.apply(kind, {"metadata": self._meta(name), "spec": spec}, field_manager="user")

    def _meta(self, name: str) -> dict[str, str]:
        return {"name": name, "namespace": self.namespace}

    async def patch(self, kind: type[Object], name: str, body: dict[str, Any]) -> None:
        """Merge something into an object."""
        await self.client.patch(
            kind, name, self.namespace, body, type=PatchType.MERGE, field_manager="kubectl-edit"
        )

    async def delete(self, kind: type[Object], name: str) -> None:
        """Delete an object."""
        await self.client.delete(kind, name, self.namespace)

    # ----------------------------------------------------------------------------------------------- seeing
    async def get(self, kind: type[T], name: str) -> T | None:
        """Return an object, or None."""
        try:
            return await self.client.get(kind, name, self.namespace)
        except NotFound:
            return None

    async def there(self, kind: type[T], name: str) -> T:
        """Return an object that must exist."""
        return await self.client.get(kind, name, self.namespace)

    async def raw(self, kind: type[Object], name: str) -> dict[str, Any]:
        """Return an object as it is on the wire."""
        path = kind.RESOURCE.path(self.namespace, name)
        found: dict[str, Any] = msgspec.json.decode(await self.client.raw("GET", path))
        return found

    async def condition(self, kind: type[Any], name: str, type_: str = "Ready") -> Condition | None:
        """Return a condition of an object, None if it is of an older version of the spec."""
        live = await self.client.get(kind, name, self.namespace)
        found = find_condition(live.status.conditions, type_)
        current = found is not None and found.observed_generation == live.metadata.generation
        return found if current else None

    async def says(
        self, kind: type[Any], name: str, reason: str, type_: str = "Ready", deadline: float = 120.0
    ) -> Condition:
        """Wait until a condition has a reason, and return it."""
        last: list[Condition | None] = [None]

        async def said() -> bool:
            last[0] = await self.condition(kind, name, type_)
            return last[0] is not None and last[0].reason == reason

        try:
            await eventually(said, "", deadline)
        except AssertionError:
            found = f"{type_} of {kind.__name__} {name} says {last[0]}"
            raise AssertionError(f"not within {deadline:g} s: {reason}; {found}") from None
        assert last[0] is not None
        return last[0]

    async def tells(self, *event: str) -> None:
        """Wait for an Event: kind of the object, type, reason and action."""

        async def told() -> bool:
            return event in await self.events()

        await eventually(told, f"the Event {event}")

    async def events(self) -> set[tuple[str, str, str, str]]:
        """Return kind of the object, type, reason and action of every Event."""
        page = await self.client.list_all(Event, self.namespace)
        return {(one.regarding.kind, one.type, one.reason, one.action) for one in page.items}

    async def children(self) -> dict[str, dict[str, Any]]:
        """Return every object with a label of ours, without what the API server counts and times."""
        found: dict[str, dict[str, Any]] = {}
        kinds: tuple[type[Object], ...] = (ConfigMap, Secret, Service, StatefulSetDetails, DeploymentDetails)
        for kind in kinds:
            path = kind.RESOURCE.path(self.namespace)
            query = {"labelSelector": "app.kubernetes.io/component"}
            page = msgspec.json.decode(await self.client.raw("GET", path, query=query))
            for item in page["items"]:
                for volatile in ("resourceVersion", "generation", "managedFields"):
                    item["metadata"].pop(volatile, None)
                item["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
                item.pop("status", None)
                found[f"{kind.RESOURCE.kind} {item['metadata']['name']}"] = item
        return found
