"""Slurm clusters with a key in a Secret, as far as the webhook looks at them."""

from __future__ import annotations

import base64
import itertools
import json
from typing import TYPE_CHECKING, Any

from tests.support.webhook.rule_cases import key, manifest, worker

if TYPE_CHECKING:
    from tests.support.webhook.served_webhook import Answer, Server

KEY, SET = "slurm.key", "slurm.jwks"
_NUMBERS = itertools.count()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def key_set(*kids: str, signs: str = "") -> str:
    """Return a set of keys, each made of its name, of which one signs; the first unless told."""
    entries = [
        {"alg": "HS256", "kty": "oct", "kid": kid, "k": encoded(kid * 32)}
        | ({"use": "default"} if kid == signs else {})
        for kid in kids
    ]
    return json.dumps({"keys": entries})


def secret(name: str, data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    """Return a Secret with some texts."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, **metadata},
        "data": {name: encoded(text) for name, text in data.items()},
    }


class Slurm:
    """A Slurm cluster as far as it matters: a Secret, a Controller that names a key in it, and a worker."""

    def __init__(self, server: Server, data: dict[str, str], ref: str, spec: dict[str, Any]) -> None:
        self.server = server
        self.name = f"keys-{next(_NUMBERS)}"
        self.secret = secret(self.name, data)
        self.controller = manifest("Controller", {"slurmKeyRef": key(self.name, ref)} | spec, self.name)
        self.worker = worker(self.name, f"{self.name}-worker")

    async def make(self, *, workers: bool = True) -> None:
        for body in (self.secret, self.controller, *((self.worker,) if workers else ())):
            answer = await self.server.create(body)
            assert answer.status == 201, answer

    async def remove(self) -> None:
        for body in (self.worker, self.controller, self.secret):
            await self.server.patch(body, {"metadata": {"finalizers": None}})
            await self.server.delete(body)

    async def write(self, data: dict[str, str | None]) -> Answer:
        changes = {name: None if text is None else encoded(text) for name, text in data.items()}
        return await self.server.patch(self.secret, {"data": changes})

    async def content(self) -> Any:
        return (await self.server.stored(self.secret)).body["data"]


class Made:
    """Makes Slurm clusters, and takes them away."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._made: list[Slurm] = []

    async def __call__(
        self,
        data: dict[str, str] | None = None,
        ref: str = KEY,
        spec: dict[str, Any] | None = None,
        *,
        workers: bool = True,
    ) -> Slurm:
        made = Slurm(self._server, data or {KEY: "old", "other": "o"}, ref, spec or {})
        self._made.append(made)
        await made.make(workers=workers)
        return made

    async def clean(self) -> None:
        for made in self._made:
            await made.remove()
