"""A manager's status API on an address that the API server's pod proxy may reach, with refusals on demand.

The real manager is in tests/integration/status_api. Here are the replies that it gives only in rare moments:
a standby, an expired token, a version that is too old. What it hands out is `tests.support.plugin.states`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import msgspec
from aiohttp import web

from slurm_operator.status_rows import (
    TOKEN_HEADER,
    ClusterReply,
    HistoryReply,
    JobReply,
    NodeSetReply,
    Overview,
    StatusRow,
    WorkerReply,
)
from tests.support.plugin.sample_rows import EVERYTHING, NOW, OPERATOR
from tests.support.plugin.states import STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.plugin.sample_state import State


def own_address() -> str:
    """Return an address of this machine that is not loopback, which the pod proxy refuses."""
    # Nothing is sent: a datagram socket only looks up the route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


class FakeManager:
    """Serves one state; `refusals` are sent first, one per request."""

    def __init__(self, state: str = "scaling-in-with-jobs") -> None:
        self.state: State = STATES[state]
        self.namespace = "slurm"
        self.refusals: list[tuple[int, dict[str, Any]]] = []
        self.broken: tuple[str, ...] = ()
        """Paths that fail."""
        self.endless = False
        """Whether streams go on until the client leaves."""
        self.requests: list[web.Request] = []
        self.address = own_address()
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/api/v1/stream", self.stream)
        app.router.add_get("/api/v1/{what}", self.api)
        app.router.add_get("/", self._page)
        app.router.add_get("/assets/{name}", self._asset)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.address, 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def refuse(self, status: int, code: str, message: str = "", leader: str = "") -> None:
        """Refuse the next request."""
        self.refusals.append((status, {"error": {"code": code, "message": message, "leader": leader}}))

    def asked(self, what: str) -> list[dict[str, str]]:
        """Return the queries of the requests for one path."""
        return [dict(one.query) for one in self.requests if one.path.endswith(f"/api/v1/{what}")]

    async def api(self, request: web.Request) -> web.Response:
        """Answer a request for a list."""
        if (refused := self._refused(request)) is not None:
            return refused
        if request.match_info["what"] in self.broken:
            return web.json_response({"error": {"code": "Broken", "message": "broken"}}, status=500)
        made = _REPLIES.get(request.match_info["what"])
        if made is None:
            return web.json_response({"error": {"code": "NotFound", "message": "no such path"}}, status=404)
        text = msgspec.json.encode(made(self.state, dict(request.query)))
        # As if the cluster were in the namespace of the test.
        text = text.replace(b'"namespace":"slurm"', f'"namespace":"{self.namespace}"'.encode())
        return web.Response(body=text, content_type="application/json")

    def _refused(self, request: web.Request) -> web.Response | None:
        self.requests.append(request)
        assert "Authorization" not in request.headers, "the API server removes it"
        if self.refusals:
            status, body = self.refusals.pop(0)
            return web.json_response(body, status=status)
        if "slurm-operator" not in audiences(request.headers.get(TOKEN_HEADER, "")):
            return web.json_response(
                {"error": {"code": "Unauthenticated", "message": "no token"}}, status=401
            )
        return None

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for a stream."""
        if (refused := self._refused(request)) is not None:
            return refused
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in count() if self.endless else range(3):
            await response.write(f"event: update\ndata: {number}\n\n".encode())
            await asyncio.sleep(0.02 if self.endless else 0.0)
        return response

    async def _page(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        headers = {"Content-Security-Policy": "default-src 'self'", "Set-Cookie": "evil=1"}
        return web.Response(text="<html>the page</html>", content_type="text/html", headers=headers)

    async def _asset(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        return web.Response(text=f"asset {request.match_info['name']}", content_type="text/javascript")


def audiences(token: str) -> list[str]:
    """Return for whom a token of the API server is."""
    part = [*token.split("."), "", ""][1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        return []
    return list(claims.get("aud", ()))


def _common() -> dict[str, Any]:
    return {"at": NOW, "operator": OPERATOR, "scope": EVERYTHING}


def _workers(state: State, query: dict[str, str]) -> WorkerReply:
    names = {
        "name": "pod",
        "slurmNode": "slurm_node",
        "kubernetesNode": "kubernetes_node",
        "nodeset": "nodeset",
    }
    rows = [one for one in state.workers if "blocked" not in query or one.blocked is not None]
    for key, attribute in names.items():
        if key in query:
            rows = [one for one in rows if getattr(one, attribute) == query[key]]
    return WorkerReply(**_common(), items=tuple(rows))


def _overview(state: State, query: dict[str, str]) -> Overview:
    del query
    blocked = tuple(one for one in state.workers if one.blocked is not None)
    return Overview(
        **_common(),
        clusters=state.clusters,
        nodesets=state.nodesets,
        blocked=blocked,
        blocked_total=len(blocked),
        decisions=state.decisions,
    )


def _jobs(state: State, query: dict[str, str]) -> JobReply:
    # The number of an array is that of all its tasks.
    numbers = {one: (str(one.id), str(one.array_job_id)) for one in state.jobs.jobs}
    rows = tuple(one for one in state.jobs.jobs if query.get("id", str(one.id)) in numbers[one])
    if "cluster" in query and query["cluster"] != state.jobs.cluster:
        return JobReply(**_common())
    return JobReply(**_common(), items=(msgspec.structs.replace(state.jobs, jobs=rows),))


def _history(state: State, query: dict[str, str]) -> HistoryReply:
    wanted = (query.get("kind", ""), query.get("name", ""))
    rows = tuple(one for one in state.decisions if (one.object.kind, one.object.name) == wanted)
    return HistoryReply(**_common(), items=rows)


_REPLIES: dict[str, Callable[[State, dict[str, str]], StatusRow]] = {
    "overview": _overview,
    "clusters": lambda state, _: ClusterReply(**_common(), items=state.clusters),
    "nodesets": lambda state, _: NodeSetReply(**_common(), items=state.nodesets),
    "workers": _workers,
    "jobs": _jobs,
    "history": _history,
}
