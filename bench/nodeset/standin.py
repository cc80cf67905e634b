"""A slurmrestd on loopback that knows thousands of nodes: the part of its API that the operator uses.

It speaks one version, the newest, and answers with every field that a real one has. It also takes the time
that a real one takes for a list, without using the processor for it: how often a client asks depends on that.
`counts` says what was asked how often; a list that was asked for conditionally and had nothing new is counted
as `… unchanged`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from bench.nodeset.slurmctld import RECORDED, Slurmctld, number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from aiohttp.typedefs import Middleware

    from bench.nodeset.slurmctld import Table

    Answer = Callable[[web.Request], Awaitable[web.Response]]

VERSION: Final = "v0.0.45"
# Measured on a real slurmrestd 26.05.5: 1,002 nodes are 2.6 MB and took 285 ms, 502 took 129 ms.
PACE: Final = 0.285 / 2.6e6
"""Seconds for each byte of a list."""
WRITES: Final = ("update_nodes", "create_nodes", "delete_node", "write_reservation", "delete_reservation")
"""What requests that change something are counted as."""
# Measured on the same: 4,000 took 27 ms.
_STATE_PACE: Final = 0.027 / 4000
"""Seconds for each job in a list of their states."""
_OK, _NOT_MODIFIED, _REFUSED = 200, 304, 422
_NO_SUCH_NODE, _BUSY, _NO_SUCH_RESERVATION = 2018, 2016, 2053
_WORDS: Final = {
    _NO_SUCH_NODE: "Invalid node name specified",
    _BUSY: "Requested nodes are busy",
    _NO_SUCH_RESERVATION: "Requested reservation is invalid",
}


class StandIn:
    """The HTTP side of a `Slurmctld`."""

    def __init__(self, slurmctld: Slurmctld, *, pace: float = PACE) -> None:
        self.slurmctld = slurmctld
        self.counts: Counter[str] = Counter()
        self.before_drains: list[Counter[str]] = []
        """What had been asked before each request that drained nodes."""
        self._pace = pace
        self.answers: dict[str, Answer] = {
            "GET ping/": self._ping,
            "GET diag/": self._diag,
            "GET partitions/": self._partitions,
            "GET nodes/": self._nodes,
            "GET jobs/": self._jobs,
            "GET jobs/state/": self._job_states,
            "GET reservations/": self._reservations,
            "GET node/{name}": self._node,
            "POST nodes/": self._update_nodes,
            "POST new/node/": self._create_nodes,
            "DELETE node/{name}": self._delete_node,
            "POST reservation": self._reserve,
            "DELETE reservation/{name}": self._delete_reservation,
        }
        """What answers each question."""

    # --- asking

    async def _ping(self, _request: web.Request) -> web.Response:
        self.counts["ping"] += 1
        return _good(pings=[RECORDED["ping"]])

    async def _diag(self, _request: web.Request) -> web.Response:
        self.counts["diag"] += 1
        times = {"req_time": number(int(time.time())), "req_time_start": number(self.slurmctld.started)}
        return _good(statistics={**RECORDED["statistics"], **times})

    async def _partitions(self, _request: web.Request) -> web.Response:
        self.counts["partitions"] += 1
        return _good(partitions=[RECORDED["partition"]], last_update=number(int(time.time())))

    async def _nodes(self, request: web.Request) -> web.Response:
        if self._nothing_new(self.slurmctld.nodes, "nodes", request):
            return web.Response(status=_NOT_MODIFIED)
        return await self._list("nodes", self.slurmctld.nodes.encoded())

    async def _reservations(self, request: web.Request) -> web.Response:
        if self._nothing_new(self.slurmctld.reservations, "reservations", request):
            return web.Response(status=_NOT_MODIFIED)
        return await self._list("reservations", self.slurmctld.reservations.encoded())

    async def _jobs(self, request: web.Request) -> web.Response:
        if self._nothing_new(self.slurmctld.jobs, "jobs", request):
            # Unchanged jobs are an empty list with the time 0 and a warning, in every release seen.
            warning = f"No job changes since update_time[{request.query['update_time']}]"
            said = [{"description": warning, "source": "op_handler_jobs"}]
            return _good(jobs=[], last_backfill=number(0), last_update=number(0), warnings=said)
        entries = self.slurmctld.jobs.encoded(detailed="flags" not in request.query)
        return await self._list("jobs", entries, last_backfill=number(0))

    async def _job_states(self, request: web.Request) -> web.Response:
        self.counts["job_states"] += 1
        jobs = self.slurmctld.jobs
        asked = request.query.getall("job_id", [*jobs])
        states = [{"job_id": name, "state": jobs[name]["job_state"]} for name in asked if name in jobs]
        await asyncio.sleep(_STATE_PACE * len(states))
        return _good(jobs=states)

    def _nothing_new(self, table: Table, what: str, request: web.Request) -> bool:
        since = request.query.get("update_time")
        nothing = since is not None and table.unchanged(int(since))
        self.counts[f"{what} unchanged" if nothing else what] += 1
        return nothing

    async def _list(self, what: str, entries: bytes, **fields: object) -> web.Response:
        moment = int(time.time())
        await asyncio.sleep(self._pace * len(entries))
        return _good(**{what: msgspec.Raw(entries)}, **fields, last_update=number(moment))

    async def _node(self, request: web.Request) -> web.Response:
        self.counts["node"] += 1
        name = request.match_info["name"]
        if name not in self.slurmctld.nodes:
            return _refused(f"Failure to query node {name}", 0, "_dump_nodes", status=_OK)
        return _good(nodes=[self.slurmctld.nodes[name]], last_update=number(int(time.time())))

    # --- changing

    async def _update_nodes(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "DRAIN" in body.get("state", ()):
            self.before_drains.append(self.counts.copy())
        self.counts["update_nodes"] += 1
        missing = self.slurmctld.update(body["name"], body)
        if missing:
            return _refused(f"Failure to update node {missing[0]}", _NO_SUCH_NODE, "_update_nodes")
        return _good()

    async def _create_nodes(self, request: web.Request) -> web.Response:
        self.counts["create_nodes"] += 1
        self.slurmctld.create((await request.json())["node_conf"])
        return _good()

    async def _delete_node(self, request: web.Request) -> web.Response:
        self.counts["delete_node"] += 1
        name, nodes = request.match_info["name"], self.slurmctld.nodes
        if name not in nodes or self.slurmctld.busy(name):
            reason = _BUSY if name in nodes else _NO_SUCH_NODE
            return _refused(f"Failure to delete node {name}", reason, "op_handler_node")
        nodes.drop(name)
        return _good()

    async def _reserve(self, request: web.Request) -> web.Response:
        self.counts["write_reservation"] += 1
        self.slurmctld.reserve(await request.json())
        return _good()

    async def _delete_reservation(self, request: web.Request) -> web.Response:
        self.counts["delete_reservation"] += 1
        name = request.match_info["name"]
        if name not in self.slurmctld.reservations:
            return _refused(f"Failure to delete reservation {name}", _NO_SUCH_RESERVATION, "delete")
        self.slurmctld.reservations.drop(name)
        return _good()


def application(
    standins: Sequence[StandIn], find: Callable[[web.Request], int], *middlewares: Middleware
) -> web.Application:
    """Return the routes to stand-ins; `find` returns the number of the one that a request is for."""

    def route(question: str) -> web.RouteDef:
        async def answer(request: web.Request) -> web.Response:
            return await standins[find(request)].answers[question](request)

        method, path = question.split()
        return web.route(method, f"/slurm/{VERSION}/{path}", answer)

    app = web.Application(middlewares=middlewares)
    app.add_routes([route(question) for question in standins[0].answers])
    return app


@asynccontextmanager
async def serving(standin: StandIn, *middlewares: Middleware) -> AsyncIterator[str]:
    """Serve on loopback while the block runs, and hand out the address."""
    async with serving_application(application([standin], lambda _request: 0, *middlewares)) as url:
        yield url


@asynccontextmanager
async def serving_application(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on loopback while the block runs, and hand out the address."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _good(**content: Any) -> web.Response:
    return _answer(_OK, {"meta": RECORDED["meta"], "errors": [], "warnings": [], **content})


def _refused(what: str, reason: int, source: str, status: int = _REFUSED) -> web.Response:
    error = _WORDS.get(reason, "No error")
    faults = [{"description": what, "error_number": reason, "error": error, "source": source}]
    return _answer(status, {"errors": faults, "warnings": [], "meta": RECORDED["meta"]})


def _answer(status: int, content: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(content), content_type="application/json")
