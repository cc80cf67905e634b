"""The HTTP server of the status API.

Every replica listens. Only the one that leads has connections to Slurm and makes plans, so the others answer
503 and name the leader. Each request carries a token (`viewers`); what it does not permit is left out, or
refused if it was asked for by name. Long lists are encoded in slices, and only some requests are worked on at
a time, so that no client holds up the event loop on which the reconcilers run, or takes the memory.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
from aiohttp import hdrs, web

import slurm_operator
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.process.serving import HttpServer
from slurm_operator.slurm.rest.connections import ConnectionKey
from slurm_operator.status_api.job_rows import MOST_ROWS, JobDetailCache, JobFilter
from slurm_operator.status_api.moments import moment
from slurm_operator.status_api.page import page_routes
from slurm_operator.status_api.reply_sender import WRITE_SECONDS, ReplySender
from slurm_operator.status_api.sse import serve_stream
from slurm_operator.status_api.viewers import Viewers
from slurm_operator.status_rows import (
    API_VERSION,
    AUDIENCE,
    NOT_LEADER,
    TOKEN_HEADER,
    ErrorBody,
    ErrorReply,
    OperatorRow,
    ScopeRow,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from slurm_operator.kube.client.client import Client
    from slurm_operator.kube.process.listen_address import ListenAddress
    from slurm_operator.status_api.board import Board
    from slurm_operator.status_api.decision_log import DecisionLog, Subject
    from slurm_operator.status_api.viewers import Scope
    from slurm_operator.status_rows import ClusterJobs, ClusterRow, NodeSetRow, WorkerRow

_log = structlog.get_logger(__name__)

_ROOT: Final = "/api/v1"
_MOST_REQUESTS: Final = 64
_MOST_STREAMS: Final = 32
_MOST_BLOCKED: Final = 100
_MOST_DECISIONS: Final = 50
_MOST_HISTORY: Final = 1000
_DEFAULT_HISTORY: Final = 200
_TRUE: Final = frozenset({"1", "true"})
# The first fields of a reply, and its long lists.
Reply = tuple[dict[str, Any], dict[str, list[Any]]]


class StatusError(Exception):
    """A request that is refused: HTTP status, one word for programs and one sentence for users."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def _too_many() -> StatusError:
    return StatusError(429, "TooManyRequests", "Too many requests are being answered; try again.")


class StatusServer(HttpServer):
    """Serves the status API and the page; `lead` runs while this replica leads."""

    def __init__(
        self,
        address: ListenAddress | None,
        client: Client,
        board: Board,
        log: DecisionLog,
        jobs: JobDetailCache,
        *,
        identity: str = "",
        leader: Callable[[], str] = lambda: "",
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._viewers = Viewers(client)
        self._board = board
        self._log = log
        self._jobs = jobs
        self._identity = identity
        self._leader = leader
        self._since: datetime | None = None
        self._requests = 0
        self._streams = 0
        # Apart from each other: pages that connect again at the same time must not hold up commands.
        self._replies = ReplySender(write_seconds)
        self._events = ReplySender(write_seconds)
        lists = {
            "overview": self._overview,
            "clusters": self._clusters,
            "nodesets": self._nodesets,
            "workers": self._workers,
            "jobs": self._job_details,
            "history": self._history,
        }
        routes = [(f"{_ROOT}/{name}", self._guarded(build)) for name, build in lists.items()]
        unknown = [(f"{path}{{rest:.*}}", _unknown) for path in ("/api/", "/")]
        super().__init__(
            "status", address, [*routes, (f"{_ROOT}/stream", self._stream), *page_routes(), *unknown]
        )

    async def lead(self) -> None:
        """Note that this replica leads, until cancelled."""
        self._since = datetime.now(UTC)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._since = None

    async def close(self) -> None:
        """Stop listening, and close the clients of Slurm."""
        await super().close()
        await self._jobs.close()

    @property
    def leading(self) -> bool:
        """Return whether this replica leads."""
        return self._since is not None

    # --- around every request

    @property
    def sending(self) -> int:
        """Return how many replies are in memory."""
        return self._replies.sending + self._events.sending

    def _guarded(
        self, build: Callable[[web.Request, Scope], Awaitable[Reply]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            if self._requests >= _MOST_REQUESTS:
                return self._refuse(_too_many())
            self._requests += 1
            try:
                scope = await self.scope(request)
                await self._board.refresh()
                return await self._send(request, await build(request, scope))
            except StatusError as error:
                return self._refuse(error)
            finally:
                self._requests -= 1

        return answer

    async def _send(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        """Send a reply; what does not find its turn is refused."""
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "application/json"})
        try:
            async with self._replies.encoded(*reply) as body:
                response.content_length = len(body)
                await response.prepare(request)
                if request.method != hdrs.METH_HEAD:
                    await self._replies.write(request, response, body)
        except TimeoutError:
            if not response.prepared:
                raise _too_many() from None
        except ConnectionError:
            # The client has left.
            pass
        return response

    async def scope(self, request: web.Request) -> Scope:
        """Return what the client of a request may see; raise StatusError if that is nothing."""
        if not self.leading:
            raise StatusError(503, NOT_LEADER, "This replica does not lead; ask the leader.")
        namespace = request.query.get("namespace", "")
        try:
            user = await self._viewers.identify(request.headers.get(TOKEN_HEADER, ""))
            if user is None:
                raise StatusError(
                    401,
                    "Unauthenticated",
                    f"Send a token with the audience {AUDIENCE} in the header {TOKEN_HEADER}.",
                )
            asked = {namespace} if namespace else self._board.namespaces()
            scope = await self._viewers.scope(user, asked)
        except (KubeError, msgspec.MsgspecError) as error:
            _log.warning("the API server cannot be asked who may read the status", error=error)
            raise StatusError(
                503, "ReviewFailed", "The API server cannot be asked whether you may see this."
            ) from None
        if namespace and namespace not in scope:
            raise StatusError(
                403, "Forbidden", f"{user.username} may not list NodeSets in namespace {namespace}."
            )
        if scope.empty:
            raise StatusError(403, "Forbidden", f"{user.username} may not list NodeSets in any namespace.")
        return scope

    def _refuse(self, error: StatusError) -> web.Response:
        leader = self._leader() if error.code == NOT_LEADER else ""
        return _error(error.status, ErrorBody(code=error.code, message=str(error), leader=leader))

    def head(self, scope: Scope) -> dict[str, Any]:
        """Return what every reply begins with."""
        return {
            "apiVersion": API_VERSION,
            "at": moment(datetime.now(UTC)),
            "operator": OperatorRow(
                version=slurm_operator.__version__, identity=self._identity, since=moment(self._since)
            ),
            "scope": ScopeRow(all=scope.everything, namespaces=tuple(sorted(scope.namespaces))),
        }

    # --- replies

    async def _overview(self, request: web.Request, scope: Scope) -> Reply:
        shown = _in(request, scope)
        blocked = [row for row in self._board.workers.values() if row.blocked is not None and shown(row)]
        blocked.sort(key=lambda row: (_since(row), row.namespace, row.pod))
        namespaces = _namespaces(request, scope)
        return (
            {**self.head(scope), "blockedTotal": len(blocked)},
            {
                "clusters": [row for row in self._board.clusters.values() if shown(row)],
                "nodesets": [row for row in self._board.nodesets.values() if shown(row)],
                "blocked": blocked[:_MOST_BLOCKED],
                "decisions": self._log.newest(_MOST_DECISIONS, namespaces),
            },
        )

    async def _clusters(self, request: web.Request, scope: Scope) -> Reply:
        return await self._list(request, scope, self._board.clusters.values(), {"name": "name"})

    async def _nodesets(self, request: web.Request, scope: Scope) -> Reply:
        fields = {"name": "name", "cluster": "cluster"}
        return await self._list(request, scope, self._board.nodesets.values(), fields)

    async def _workers(self, request: web.Request, scope: Scope) -> Reply:
        fields = {
            "name": "pod",
            "nodeset": "nodeset",
            "cluster": "cluster",
            "slurmNode": "slurm_node",
            "kubernetesNode": "kubernetes_node",
        }
        rows: Iterable[WorkerRow] = self._board.workers.values()
        if request.query.get("blocked", "") in _TRUE:
            rows = (row for row in rows if row.blocked is not None)
        return await self._list(request, scope, rows, fields)

    async def _list(
        self,
        request: web.Request,
        scope: Scope,
        rows: Iterable[ClusterRow | NodeSetRow | WorkerRow],
        fields: Mapping[str, str],
    ) -> Reply:
        shown = _in(request, scope)
        asked = [(field, request.query[name]) for name, field in fields.items() if request.query.get(name)]
        items = [
            row for row in rows if shown(row) and all(getattr(row, field) == text for field, text in asked)
        ]
        return self.head(scope), {"items": items}

    async def _job_details(self, request: web.Request, scope: Scope) -> Reply:
        shown, query = _in(request, scope), request.query
        clusters = [
            row
            for row in self._board.clusters.values()
            if shown(row) and query.get("cluster", row.name) in ("", row.name)
        ]
        pods = self._pods_by_cluster()
        items = await asyncio.gather(*(self._jobs_of(row, query, pods) for row in clusters))
        left, cut = MOST_ROWS, []
        for item in items:
            some = item.jobs[:left]
            left -= len(some)
            cut.append(msgspec.structs.replace(item, jobs=some, shown=len(some)))
        return self.head(scope), {"items": cut}

    async def _jobs_of(
        self, row: ClusterRow, query: Mapping[str, str], pods: Mapping[tuple[str, str], Mapping[str, str]]
    ) -> ClusterJobs:
        wanted = JobFilter(
            id=_number(query, "id", None),
            state=query.get("state", "").upper(),
            user=query.get("user", ""),
            partition=query.get("partition", ""),
            node=query.get("node", ""),
        )
        key = ConnectionKey("Controller", row.namespace, row.name)
        return await self._jobs.rows(key, wanted, pods.get((row.namespace, row.name), {}), MOST_ROWS)

    def _pods_by_cluster(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the pods of workers with jobs, by cluster and Slurm node."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        for one in self._board.workers.values():
            if one.jobs and not one.without_pod:
                found.setdefault((one.namespace, one.cluster), {})[one.slurm_node] = one.pod
        return found

    async def _history(self, request: web.Request, scope: Scope) -> Reply:
        query = request.query
        limit = min(_MOST_HISTORY, _number(query, "limit", _DEFAULT_HISTORY) or _DEFAULT_HISTORY)
        kind, name = query.get("kind", ""), query.get("name", "")

        def wanted(subject: Subject) -> bool:
            return kind in ("", subject.kind) and name in ("", subject.name)

        items = self._log.newest(limit, _namespaces(request, scope), wanted=wanted)
        return self.head(scope), {"items": items}

    # --- the stream

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= _MOST_STREAMS:
            return self._refuse(
                StatusError(429, "TooManyRequests", f"At most {_MOST_STREAMS} streams are served at a time.")
            )
        self._streams += 1
        try:
            scope = await self.scope(request)
            return await serve_stream(request, self, self._board, self._log, scope, self._events)
        except StatusError as error:
            return self._refuse(error)
        finally:
            self._streams -= 1


_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


async def _unknown(request: web.Request) -> web.Response:
    return _error(404, ErrorBody(code="NotFound", message=f"There is no {request.path}."))


def _error(status: int, error: ErrorBody) -> web.Response:
    body = msgspec.json.encode(ErrorReply(error=error))
    return web.Response(status=status, body=body, content_type="application/json", headers=_HEADERS)


def _since(row: WorkerRow) -> float:
    since = None if row.blocked is None else row.blocked.since
    return 0.0 if since is None else since.timestamp()


def _in(request: web.Request, scope: Scope) -> Callable[[Any], bool]:
    """Return whether a row is in the namespace that was asked for, or in one that may be seen."""
    namespace = request.query.get("namespace", "")
    return lambda row: row.namespace == namespace if namespace else row.namespace in scope


def _namespaces(request: web.Request, scope: Scope) -> frozenset[str] | None:
    """Return the namespaces to show; None for all."""
    namespace = request.query.get("namespace", "")
    if namespace:
        return frozenset({namespace})
    return None if scope.everything else scope.namespaces


def _number(query: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= len("4294967295")):
        raise StatusError(400, "BadRequest", f"{name} must be a whole number.")
    return int(text)
