"""One stream of server-sent events: a snapshot of all that a client may see, then what changes.

At most one event a second is sent, and none while nothing changes, only a comment now and then, by which both
sides notice a broken connection. The permissions of the client are asked for again every half minute; a
stream whose token is not valid any more ends, and the page connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiohttp import hdrs, web

from slurm_operator.status_api.moments import moment
from slurm_operator.status_api.reply_sender import left

if TYPE_CHECKING:
    from slurm_operator.status_api.board import Board, Table
    from slurm_operator.status_api.decision_log import DecisionLog
    from slurm_operator.status_api.reply_sender import ReplySender
    from slurm_operator.status_api.viewers import Scope

_REVIEW_SECONDS: Final = 30.0
_ALIVE_SECONDS: Final = 15.0
# Ages of views are shown as well, and nothing tells of those.
_AGES_SECONDS: Final = 10.0
_MOST_DECISIONS: Final = 100


class StreamHost(Protocol):
    """The server around a stream."""

    @property
    def leading(self) -> bool:
        """Return whether this replica leads."""

    async def scope(self, request: web.Request) -> Scope:
        """Return what the client may see; raise if that is nothing."""

    def head(self, scope: Scope) -> dict[str, Any]:
        """Return what every reply begins with."""


async def serve_stream(
    request: web.Request,
    host: StreamHost,
    board: Board,
    log: DecisionLog,
    scope: Scope,
    sender: ReplySender,
) -> web.StreamResponse:
    """Send events until the client leaves, or may not see them any more."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Accel-Buffering": "no",
        }
    )
    await response.prepare(request)
    if request.method == hdrs.METH_HEAD:
        return response
    stream = _Stream(request, response, board, log, sender)
    with contextlib.suppress(ConnectionError, TimeoutError):
        await _follow(request, host, board, stream, scope)
    return response


async def _follow(
    request: web.Request, host: StreamHost, board: Board, stream: _Stream, scope: Scope
) -> None:
    loop = asyncio.get_running_loop()
    await board.refresh()
    await stream.snapshot(host.head(scope), scope)
    reviewed = loop.time()
    while host.leading:
        await asyncio.sleep(board.interval)
        if left(request):
            return
        if loop.time() - reviewed > _REVIEW_SECONDS:
            try:
                allowed = await host.scope(request)
            except Exception:  # noqa: BLE001 - whatever it is, nothing more may be shown
                return
            reviewed = loop.time()
            if allowed != scope:
                scope = allowed
                await board.refresh()
                await stream.snapshot(host.head(scope), scope)
                continue
        await board.refresh()
        if not await stream.update(scope):
            await stream.snapshot(host.head(scope), scope)


class _Stream:
    """What one client has been sent."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        board: Board,
        log: DecisionLog,
        sender: ReplySender,
    ) -> None:
        self._request = request
        self._response = response
        self._board = board
        self._log = log
        self._sender = sender
        self._namespace = request.query.get("namespace", "")
        self._version = 0
        self._decided = 0
        self._sent = 0.0
        self._ages = 0.0

    async def snapshot(self, head: dict[str, Any], scope: Scope) -> None:
        """Send everything."""
        self._note_versions()
        decisions = self._log.newest(_MOST_DECISIONS, self._namespaces(scope))
        tables = {
            table.name: self._visible(table, scope, -1)
            for table in (self._board.clusters, self._board.nodesets, self._board.workers)
        }
        await self._send("snapshot", head, tables, decisions)

    async def update(self, scope: Scope) -> bool:
        """Send what has changed; return False if that is not known any more."""
        gone = self._board.removed(self._version)
        if gone is None:
            return False
        now = asyncio.get_running_loop().time()
        ages = now - self._ages > _AGES_SECONDS
        tables = {
            "clusters": self._visible(self._board.clusters, scope, -1 if ages else self._version),
            "nodesets": self._visible(self._board.nodesets, scope, self._version),
            "workers": self._visible(self._board.workers, scope, self._version),
        }
        removed: dict[str, list[str]] = {name: [] for name in tables}
        for one in gone:
            if self._shows(one.key.namespace, scope):
                removed[one.table].append(str(one.key))
        decisions = self._log.newest(_MOST_DECISIONS, self._namespaces(scope), self._decided)
        self._note_versions()
        if ages:
            self._ages = now
        if any(tables.values()) or any(removed.values()) or decisions:
            head = {"at": moment(datetime.now(UTC)), "removed": removed}
            await self._send("update", head, tables, decisions)
        elif now - self._sent > _ALIVE_SECONDS:
            await self._write(b": alive\n\n")
        return True

    def _note_versions(self) -> None:
        self._version, self._decided = self._board.version, self._log.version

    def _visible(self, table: Table[Any], scope: Scope, after: int) -> list[Any]:
        return [row for row in table.newer(after) if self._shows(row.namespace, scope)]

    def _shows(self, namespace: str, scope: Scope) -> bool:
        return namespace == self._namespace if self._namespace else namespace in scope

    def _namespaces(self, scope: Scope) -> frozenset[str] | None:
        if self._namespace:
            return frozenset({self._namespace})
        return None if scope.everything else scope.namespaces

    async def _send(
        self, event: str, head: dict[str, Any], tables: dict[str, list[Any]], decisions: list[Any]
    ) -> None:
        async with self._sender.encoded(head, {**tables, "decisions": decisions}) as data:
            # JSON has no line break of its own, so one line of data is enough.
            await self._write(b"event: %s\ndata: %s\n\n" % (event.encode(), data))

    async def _write(self, data: bytes) -> None:
        await self._sender.write(self._request, self._response, data)
        self._sent = asyncio.get_running_loop().time()
