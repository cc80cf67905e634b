"""A slurmrestd that forgets: it passes everything on to the real one, but while told to, it knows no node.

A real slurmctld shows an empty list only after it has lost its state, and then the nodes stay away. One that
shows nothing for a minute and then has everything again, as when somebody restores its state, can only be had
this way.
"""

from __future__ import annotations

import asyncio
import json
import time
from http.client import HTTPConnection
from typing import Any, Self
from urllib.parse import urlsplit

from aiohttp import web

_SECONDS = 30.0
_TOKEN = "X-SLURM-USER-TOKEN"  # noqa: S105 - the name of a header


class ForgetfulSlurmrestd:
    """Stands before a real slurmrestd; use it as an async context manager."""

    def __init__(self, target: str) -> None:
        self.forgetting = False
        self.blanks: list[float] = []
        """When it has shown an empty list of nodes."""
        self._target = urlsplit(target).netloc
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _answer(self, request: web.Request) -> web.Response:
        forgets = self.forgetting and request.method == "GET"
        # Who forgets cannot say either what has changed since when.
        target = request.path if forgets else request.path_qs
        headers = {_TOKEN: request.headers.get(_TOKEN, "")}
        status, kind, text = await asyncio.to_thread(
            self._ask, request.method, target, headers, await request.read()
        )
        if forgets and status == web.HTTPOk.status_code:
            text = self._forget(request.path, text)
        return web.Response(status=status, body=text, headers={"Content-Type": kind} if text else None)

    def _ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        # Read with no more than the reply says: slurmrestd sends another one behind a refusal.
        connection = HTTPConnection(self._target, timeout=_SECONDS)
        try:
            typed = {"Content-Type": "application/json"} if body else {}
            connection.request(method, target, body or None, headers | typed)
            reply = connection.getresponse()
            return reply.status, reply.headers.get("Content-Type", ""), reply.read()
        finally:
            connection.close()

    def _forget(self, path: str, text: bytes) -> bytes:
        kind = path.split("/")[3]
        if kind not in ("nodes", "node", "jobs"):
            return text
        reply: dict[str, Any] = json.loads(text)
        reply["jobs" if kind == "jobs" else "nodes"] = []
        if kind == "nodes":
            self.blanks.append(time.time())
        if kind == "node":
            # As 26.05 says it of a node that it does not have.
            reply["errors"] = [
                {"description": "Failure to query node", "error_number": 0, "error": "No error"}
            ]
        return json.dumps(reply).encode()
