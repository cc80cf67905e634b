"""A client of the status API: accounts with rights, tokens with an audience, and requests."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from slurm_operator.status_rows import AUDIENCE, TOKEN_HEADER
from tests.support.service_accounts import until_allowed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubebox import Box
    from tests.support.processes import Process


def viewer(box: Box, namespace: str, name: str, *sees: str) -> str:
    """Create an account that may list NodeSets in some namespaces; return a token of it."""
    box.kubectl("create", "serviceaccount", name, "-n", namespace)
    for one in sees:
        role = f"{namespace}-{name}"
        rule = ("--verb=list", "--resource=nodesets.slinky.slurm.net")
        box.kubectl("create", "role", role, "-n", one, *rule)
        who = f"--serviceaccount={namespace}:{name}"
        box.kubectl("create", "rolebinding", role, "-n", one, f"--role={role}", who)
        until_allowed(box, namespace, name, "list", "nodesets.slinky.slurm.net", f"--namespace={one}")
    return token(box, namespace, name)


def token(box: Box, namespace: str, name: str, audience: str = AUDIENCE) -> str:
    """Return a token of an account."""
    words = ("--audience", audience) if audience else ()
    return box.kubectl("create", "token", name, "-n", namespace, *words).strip()


class StatusClient:
    """Asks one process with one token."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url

    async def ask(self, path: str) -> tuple[int, Any]:
        """Return the HTTP status and the content of a reply."""
        async with self._session.get(f"{self.url}/api/v1/{path}") as reply:
            return reply.status, json.loads(await reply.read())

    async def items(self, path: str) -> list[Any]:
        """Return the items of a list."""
        status, content = await self.ask(path)
        assert status == 200, content
        found: list[Any] = content["items"]
        return found

    async def events(self, path: str = "stream") -> AsyncIterator[tuple[str, Any]]:
        """Yield the events of a stream."""
        name = ""
        async with self._session.get(f"{self.url}/api/v1/{path}", timeout=_ENDLESS) as reply:
            assert reply.headers["Content-Type"] == "text/event-stream", await reply.text()
            async for line in _lines(reply):
                if line.startswith(b"event: "):
                    name = line[7:].decode()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line[6:])


_ENDLESS = aiohttp.ClientTimeout(total=None, sock_read=60)


async def _lines(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for part in reply.content.iter_any():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line


@asynccontextmanager
async def status_client(process: Process, bearer: str) -> AsyncIterator[StatusClient]:
    """Hand out a client of a process."""
    headers = {TOKEN_HEADER: bearer} if bearer else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield StatusClient(session, f"http://127.0.0.1:{await process.port('status')}")
