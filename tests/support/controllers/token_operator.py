"""What the tests of the Token controller share: a controller that runs, counts its writes and has a clock."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from slurm_operator.api import Token, wellknown
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.token.controller import TokenController
from slurm_operator.flags import Parser, add_manager_flags, manager_options, parse
from slurm_operator.kube.cache.referenced_objects import ReferencedObjects
from slurm_operator.kube.client.client import Client
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.models.kinds import Event, Secret
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.manager import Manager
from slurm_operator.process import wire
from slurm_operator.slurm.web_token import TokenClaims, read
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slurm_operator.kube.client.client import RequestInfo
    from slurm_operator.kube.client.config import ClientConfig

KEY_NAME = "auth-jwt"
KEY = b"k" * 64
READS = {"get", "list", "watch"}


class Clock:
    """The wall clock of the controller: that of the machine, set forward or back."""

    def __init__(self) -> None:
        self.offset = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.offset


class Operator:
    """One run of the operator, wired as the process wires it, with the Token controller alone.

    A `blind` one may not read the Secrets that Tokens name.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        requests: list[RequestInfo],
        clock: Clock,
        *,
        blind: bool = False,
    ) -> None:
        self.requests = requests
        parser = Parser(prog="manager", usage="", description="")
        add_manager_flags(parser)
        options = manager_options(parse(parser, [f"--namespaces={namespace}", "--token-workers=4"]))
        self.manager = Manager(client, namespaces=options.namespaces)
        wiring = wire(self.manager, client, options, CollectorRegistry())
        if blind:
            wiring = replace(wiring, secrets=ReferencedObjects(client, Secret, namespaces=["nowhere"]))
        self.references = wiring.secrets
        self.tokens = TokenController(wiring, clock)
        self.controller = self.manager.add(self.tokens.controller)

    @property
    def writes(self) -> list[str]:
        """Return what was written so far, Events aside: verb and resource."""
        return [
            f"{request.verb} {request.resource}"
            for request in self.requests
            if request.verb not in READS and request.resource != "events"
        ]

    async def references_wanted(self) -> bool:
        """Return whether a Token has been looked at."""
        return bool(self.references.watched)

    async def reconcile_again(self, *names: str, namespace: str) -> None:
        """Have Tokens reconciled, as any event would, and wait until that is done."""
        # Through the queue: another reconcile would run beside that of the last event, and write the same.
        for name in names:
            self.controller.queue.add(Key(namespace, name))
        await eventually(lambda: self.controller.queue.idle, "all are looked at")

    async def rests(self, name: str, *, namespace: str) -> bool:
        """Return whether several reconciles of a Token send nothing; one may be under way."""
        before = len(self.writes)
        for _ in range(3):
            await self.reconcile_again(name, namespace=namespace)
        return len(self.writes) == before


@asynccontextmanager
async def operating(
    config: ClientConfig,
    namespace: str,
    clock: Clock | None = None,
    fence: Callable[[], None] | None = None,
    *,
    blind: bool = False,
) -> AsyncIterator[Operator]:
    """Run the operator; it stops in order at the end. The fence is called before each write."""
    requests: list[RequestInfo] = []
    async with Client(config, observe=requests.append, fence=fence) as client:
        operator = Operator(client, namespace, requests, clock or Clock(), blind=blind)
        stop = asyncio.Event()
        run = asyncio.create_task(operator.manager.run(stop))
        try:
            yield operator
        finally:
            stop.set()
            await run


class User:
    """What a user of one namespace does and sees."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def put_key(self, value: bytes = KEY, name: str = KEY_NAME) -> Secret:
        """Write the Secret with the signing key."""
        body = {"metadata": self.meta(name), "data": {"jwt.key": base64.b64encode(value).decode()}}
        return await self.client.apply(Secret, body, field_manager="user")

    async def put_token(self, name: str = "alice", meta: dict[str, Any] | None = None, **spec: Any) -> Token:
        """Write a Token; what an earlier call of the same name set and this does not goes."""
        body = {
            "metadata": {**self.meta(name), **(meta or {})},
            "spec": {"jwtKeyRef": {"name": KEY_NAME, "key": "jwt.key"}, "username": name, **spec},
        }
        return await self.client.apply(Token, body, field_manager="user")

    def meta(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self.namespace}

    async def secret(self, name: str = "alice-jwt-alice") -> Secret | None:
        """Return a Secret, or None."""
        try:
            return await self.client.get(Secret, name, self.namespace)
        except NotFound:
            return None

    async def value(self, name: str = "alice-jwt-alice", key: str = "SLURM_JWT") -> str:
        """Return the token in a Secret, empty if there is none."""
        found = await self.secret(name)
        return "" if found is None else (found.data or {}).get(key, b"").decode()

    async def claims(self, name: str = "alice-jwt-alice", key: str = "SLURM_JWT") -> TokenClaims:
        return read(await self.value(name, key))

    async def reason(self, name: str = "alice") -> str:
        """Return the reason of the Ready condition, empty if there is none or it is of an older spec."""
        token = await self.client.get(Token, name, self.namespace)
        ready = find_condition(token.status.conditions, wellknown.CONDITION_READY)
        if ready is None or ready.observed_generation != token.metadata.generation:
            return ""
        assert ready.status == {"Issued": "True", "KeyUnreadable": "Unknown"}.get(ready.reason, "False")
        assert token.status.observed_generation == token.metadata.generation
        return ready.reason

    async def message(self, name: str = "alice") -> str:
        token = await self.client.get(Token, name, self.namespace)
        ready = find_condition(token.status.conditions, wellknown.CONDITION_READY)
        return "" if ready is None else ready.message

    async def events(self) -> set[tuple[str, str, str]]:
        """Return type, reason and action of every Event of the namespace."""
        page = await self.client.list(Event, self.namespace)
        return {(event.type, event.reason, event.action) for event in page.items}

    async def until(self, reason: str, name: str = "alice") -> None:
        """Wait until a Token is Ready, or not, for this reason."""

        async def reached() -> bool:
            return await self.reason(name) == reason

        await eventually(reached, f"Token {name} has the reason {reason}")
