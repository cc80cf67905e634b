"""A slurmrestd on loopback that answers like the real one until it is told not to.

For what the real server cannot be made to do: faults on demand, and clusters of thousands of nodes. Its good
answers have the shape of real ones (26.05); what it says when something is wrong was copied from the real one
too, status, numbers and all.

    async with HostileSlurmrestd() as server:
        server.add_nodes("n[001-100]")                       # or server.nodes["n1"] = node("n1")
        server.nodes.change("n001", state=["MIXED"])         # moves `last_update`: a poll sees it
        server.jobs[7] = job(7, "n001")
        async with RestClient(server.url, lambda: "any-token") as client: ...
        server.fault = Fault.HANG                            # every request, until
        server.fault = None
        server.fail(Fault.RESET, on="nodes", times=1)        # the next request for the list of nodes only
        await server.asked("GET nodes")                      # has arrived
        assert [seen.body for seen in server.seen("POST nodes")] == [...]

`nodes`, `jobs`, `reservations` are dictionaries of what the server sends, by name or id: assign, `change` or
delete entries. `pings`, `partitions`, `versions`, `token`, `release`, `started` and `stumbles` are plain
attributes. Requests are logged in `log` when they have been read, before they are answered. Writes are
carried out as Slurm does, and also when a fault then spoils their answer, unless the fault is one that
refuses or ignores the request. Endpoints are called `ping`, `nodes`, `node`, `new/node`, `jobs`,
`reservations`, `reservation`, `partitions`, `reconfigure`, `diag`. `stop()` ends listening and all
connections, `start()` listens again on the same port, `cut()` breaks the connections that are open,
`whisper()` sends bytes over them that nobody asked for.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ClusterShell.NodeSet import NodeSet  # type: ignore[import-untyped]

from tests.support.slurm.hostile_replies import (
    REFUSALS,
    SPOILS_CONTENT,
    Fault,
    Json,
    Reply,
    good,
    job,
    node,
    number,
    ping,
    refusal,
    reservation,
    spoiled,
)
from tests.support.slurm.hostile_tables import Table, after, expand
from tests.support.slurm.hostile_wire import Seen, read_request, send

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable
    from types import TracebackType

__all__ = ["Fault", "HostileSlurmrestd", "Json", "Seen", "job", "node", "number", "ping", "reservation"]

VERSIONS = ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45")


# With one of these a write has not been carried out.
_IGNORES_REQUEST = frozenset(
    {
        *(Fault.ERRORS, Fault.REDIRECT, Fault.UNAUTHORIZED, Fault.TOKEN_REFUSED, Fault.NOT_FOUND),
        *(Fault.INTERNAL_ERROR, Fault.BAD_GATEWAY, Fault.CONTROLLER_HANGS, Fault.PROXY_PAGE),
        *(Fault.HANG, Fault.CLOSE),
    }
)


class HostileSlurmrestd:
    """The server; use it as an async context manager."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._tick = int(time.time())
        self._server: asyncio.Server | None = None
        self._arrival = asyncio.Event()
        self._port = 0
        self._links: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}
        self._faults: list[tuple[Fault, str | None, int | None]] = []
        self.nodes = Table("nodes", self._clock)
        self.jobs = Table("jobs", self._clock)
        self.reservations = Table("reservations", self._clock)
        self.partitions: list[Json] = [{"name": "all", "nodes": {"configured": ""}}]
        self.pings: list[Json] = [ping("box")]
        self.versions: tuple[str, ...] = VERSIONS
        self.token: str | None = None
        """The only token that is accepted; None accepts all."""
        self.release = "26.05.5"
        self.cluster = ""
        """The ClusterName in every answer; empty, as if this slurmrestd reported none."""
        self.started = self._tick - 86_400
        self.log: list[Seen] = []
        self.connections = 0
        """How many connections were ever made."""
        self.reconfigured = 0
        self.stumbles = False
        """Whether conditional questions for nodes that have changed get a 500, as they do from 24.11."""
        self.raw: dict[str, Callable[[], Iterable[bytes]]] = {}
        """By endpoint: what to send instead of an answer, head and all, piece by piece."""

    # --- running

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections and break those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """Break every connection now."""
        for writer, task in [*self._links.items()]:
            writer.transport.abort()
            if task is not None:
                task.cancel()

    def whisper(self, data: bytes) -> None:
        """Send bytes that nobody asked for over every open connection, at once."""
        for writer in self._links:
            writer.write(data)

    @property
    def url(self) -> str:
        """Return the address of the server."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def open_connections(self) -> int:
        """Return how many connections are open now."""
        return len(self._links)

    # --- what it knows and what it saw

    def add_nodes(self, hostlist: str, *state: str, **fields: Any) -> None:
        """Add the nodes of a hostlist, all alike."""
        self.nodes.data.update((name, node(name, *state, **fields)) for name in expand(hostlist))
        self.nodes.touch()

    def seen(self, what: str) -> list[Seen]:
        """Return the logged requests of a method and an endpoint, such as `POST nodes`."""
        method, _, endpoint = what.partition(" ")
        return [entry for entry in self.log if (entry.method, entry.endpoint) == (method, endpoint)]

    async def asked(self, what: str, times: int = 1, within: float = 30.0) -> None:
        """Return when such a request has arrived so many times."""
        async with asyncio.timeout(within):
            while len(self.seen(what)) < times:
                self._arrival.clear()
                await self._arrival.wait()

    # --- faults

    @property
    def fault(self) -> Fault | None:
        """Return the fault that strikes every request, if one does."""
        return next((fault for fault, on, times in self._faults if on is None and times is None), None)

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        self._faults = [] if fault is None else [(fault, None, None)]

    def fail(self, fault: Fault, *, on: str | None = None, times: int | None = None) -> None:
        """Add a fault for one endpoint, or for all, as often as told, or until `fault` is set."""
        self._faults.append((fault, on, times))

    def _strike(self, endpoint: str) -> Fault | None:
        for index, (fault, on, times) in enumerate(self._faults):
            if on in (None, endpoint):
                if times is not None:
                    self._faults[index : index + 1] = [(fault, on, times - 1)] if times > 1 else []
                return fault
        return None

    # --- work

    def _clock(self) -> int:
        # Slurm's clock has whole seconds; here each change has one of its own, so that no test waits for one.
        self._tick += 2
        return self._tick

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._links[writer] = asyncio.current_task()
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    seen = await read_request(reader)
                    self.log.append(seen)
                    self._arrival.set()
                    fault = self._strike(seen.endpoint)
                    if seen.endpoint in self.raw:
                        for piece in self.raw[seen.endpoint]():
                            writer.write(piece)
                            await writer.drain()
                        break
                    if not await send(writer, self._answer(seen, fault), fault):
                        break
        finally:
            del self._links[writer]
            writer.close()

    def _answer(self, seen: Seen, fault: Fault | None) -> Reply:
        authentic = self.token in (None, seen.headers.get("x-slurm-user-token"))
        if turned_away := self._turned_away(seen, fault, authentic=authentic):
            return turned_away
        if seen.endpoint == "ping":
            # The real one cannot tell a refused token from a slurmctld that is down here.
            pings = self.pings if authentic else [entry | {"responding": False} for entry in self.pings]
            return self._good({"pings": pings})
        if seen.method != "GET":
            return self._good({}) if fault in _IGNORES_REQUEST else self._written(seen)
        if seen.endpoint in ("nodes", "jobs", "reservations"):
            return self._list(getattr(self, seen.endpoint), seen, fault)
        if seen.endpoint == "jobs/state":
            return self._job_states(fault)
        return self._single(seen)

    def _turned_away(self, seen: Seen, fault: Fault | None, *, authentic: bool) -> Reply | None:
        if "x-slurm-user-token" not in seen.headers:
            fault = Fault.UNAUTHORIZED
        elif seen.version not in self.versions:
            fault = Fault.NOT_FOUND
        elif not authentic and seen.endpoint != "ping":
            fault = Fault.TOKEN_REFUSED
        return REFUSALS.get(fault)

    def _single(self, seen: Seen) -> Reply:
        match seen.endpoint:
            case "node" if seen.name in self.nodes:
                return self._good({"nodes": [self.nodes[seen.name]]})
            case "node":
                return good("{}", self.release, f"Failure to query node {seen.name}")
            case "partitions":
                return self._good({"partitions": self.partitions})
            case "reconfigure":
                self.reconfigured += 1
                return self._good({})
            case "diag":
                statistics = {"req_time": number(self._tick), "req_time_start": number(self.started)}
                return self._good({"statistics": statistics})
        return REFUSALS[Fault.NOT_FOUND]

    def _good(self, content: Json) -> Reply:
        return good(json.dumps(content), self.release, cluster=self.cluster)

    def _list(self, table: Table, seen: Seen, fault: Fault | None) -> Reply:
        since = int(seen.query.get("update_time", 0))
        if fault is None and since - 1 >= table.changed:
            if table.what != "jobs":
                return Reply("304 NOT MODIFIED", b"", "")
            # Unchanged jobs are an empty list with a warning, in every release seen.
            content = json.dumps({"jobs": [], "last_update": number(0)})
            warning = f"No job changes since update_time[{since}]"
            return good(content, self.release, warning=warning, cluster=self.cluster)
        if since and self.stumbles and table is self.nodes:
            return refusal("500 INTERNAL ERROR", -1, "Unspecified error")
        text = table.encoded().decode()
        if fault in SPOILS_CONTENT:
            text = spoiled(fault, table.what, [*table.values()])
        moment = "" if fault is Fault.NO_TIME else f', "last_update": {json.dumps(number(table.changed + 1))}'
        # What the real one says about a cluster without jobs, which is not the same as unchanged ones.
        warning = "Zero jobs to dump" if table is self.jobs and not table else ""
        content = f'{{"{table.what}": {text}{moment}}}' if text else "{}"
        return good(content, self.release, warning=warning, cluster=self.cluster)

    def _job_states(self, fault: Fault | None) -> Reply:
        """Say how all jobs are, whichever were asked about."""
        entries = [{"job_id": str(job["job_id"]), "state": job["job_state"]} for job in self.jobs.values()]
        text = spoiled(fault, "job states", entries) if fault in SPOILS_CONTENT else json.dumps(entries)
        return good(f'{{"jobs": {text}}}' if text else "{}", self.release, cluster=self.cluster)

    def _written(self, seen: Seen) -> Reply:
        match seen.method, seen.endpoint:
            case "POST", "nodes":
                return self._update(NodeSet(",".join(seen.body["name"])), seen.body)
            case "POST", "new/node":
                words = dict(word.split("=", 1) for word in seen.body["node_conf"].split())
                self.add_nodes(words["NodeName"], words.get("State", "IDLE"), "DYNAMIC_NORM")
                return self._good({})
            case "POST", "reservation" | "reservations":
                for wanted in seen.body.get("reservations", [seen.body]):
                    name = wanted["name"]
                    self.reservations[name] = self.reservations.get(name, reservation(name, "")) | {
                        **wanted,
                        "node_list": ",".join(wanted.get("node_list", [])),
                        "users": ",".join(wanted.get("users", [])),
                    }
                return self._good({})
            case "DELETE", "node" | "reservation" as what:
                table = self.nodes if what == "node" else self.reservations
                if seen.name not in table:
                    return refusal("422 UNPROCESSABLE CONTENT", 2018 if what == "node" else 2053)
                del table[seen.name]
                return self._good({})
        return REFUSALS[Fault.NOT_FOUND]

    def _update(self, names: Iterable[str], body: Json) -> Reply:
        missing = False
        plain: Json = {key: body[key] for key in ("reason", "comment", "features") if key in body}
        if "topology_str" in body:
            plain["topology"] = body["topology_str"]
        if "features_act" in body:
            plain["active_features"] = body["features_act"]
        for name in names:
            if name not in self.nodes:
                missing = True
                continue
            entry = self.nodes[name]
            state = after(entry["state"], body.get("state", []))
            self.nodes.data[name] = entry | plain | {"state": state}
        self.nodes.touch()
        return refusal("422 UNPROCESSABLE CONTENT", 2018) if missing else self._good({})
