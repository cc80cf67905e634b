"""The proxies between the operator and its two servers: they forward, record, and produce the faults.

A request is sent on with the headers it came with, so that the server sees the operator's own bearer token
and admission sees its user; a client certificate could not be passed on. Watches are streamed line by line,
so that single events can be held back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp import web

from faultlab import faults
from faultlab.director import Call
from faultlab.writes import KUBERNETES, kubernetes_target, slurm_target

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

    from faultlab.director import Director
    from faultlab.faults import Fault
    from faultlab.writes import Write

_OK, _INTERNAL_ERROR = 200, 500
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "host"}
)
_LARGEST_BODY: Final = 16 * 2**20
_DELAY: Final = 1.0
_DRIP_BYTES, _DRIP_PAUSE = 512, 0.05
_NEVER: Final = 3600.0
_CREDENTIALS: Final = ("Authorization", "User-Agent")

Answer = tuple[int, dict[str, str], bytes]


class Proxy:
    """One proxy in front of one server."""

    def __init__(
        self, director: Director, server: str, upstream: str, session: aiohttp.ClientSession
    ) -> None:
        self._director = director
        self._server = server
        self._upstream = upstream.rstrip("/")
        self._session = session
        self._exchanges: set[asyncio.Task[Answer | None]] = set()

    def application(self) -> web.Application:
        """Return the server side."""
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def finish(self) -> None:
        """Wait for the answers to what was sent on; those who asked are gone."""
        await asyncio.gather(*self._exchanges, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ConnectionError:
            # The operator is gone: it was killed.
            return _cut(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        life = self._director.life
        body = await request.read()
        target = (
            kubernetes_target(request.path)
            if self._server == KUBERNETES
            else slurm_target(request.method, request.path, body)
        )
        call = Call(
            self._server,
            request.method,
            target,
            request.path_qs,
            dict(request.query),
            request.headers.copy(),
            body,
            life,
        )
        write = self._director.record(call)
        if not await self._director.before(write, call):
            return _cut(request)
        if write is not None and self._director.refuses(write):
            write.status = _INTERNAL_ERROR
            return web.json_response(status_body(write.status), status=write.status)
        fault = self._director.current(call)
        if fault is not None and self._director.spend(fault):
            answer = await self._spoil(request, call, fault)
            if answer is not None:
                if write is not None:
                    write.status = answer.status
                return answer
        return await self._forward(request, call, write, slow=fault is not None and fault.do == faults.DRIP)

    async def _spoil(self, request: web.Request, call: Call, fault: Fault) -> web.StreamResponse | None:
        """Do to a request what the fault asks for; None if it is to be sent on all the same."""
        if fault.do == faults.DELAY:
            await asyncio.sleep(_DELAY)
        elif fault.do == faults.RESET:
            return _cut(request)
        elif fault.do == faults.FREEZE:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._director.fault_over(), _NEVER)
            return _cut(request)
        elif fault.do == faults.ANSWER:
            return web.json_response(status_body(fault.status), status=fault.status)
        elif fault.do == faults.FROZEN_SLURM and call.method == "GET":
            return await self._frozen(call)
        return None

    async def _frozen(self, call: Call) -> web.Response:
        """Return what Slurm answered when the fault began."""
        path = call.path.partition("?")[0]
        if path not in self._director.frozen:
            async with self._session.request(
                "GET", self._upstream + path, headers=_onward(call.headers)
            ) as answer:
                self._director.frozen[path] = (answer.status, await answer.read(), answer.content_type)
        status, body, kind = self._director.frozen[path]
        return web.Response(status=status, body=body, content_type=kind)

    async def _forward(
        self, request: web.Request, call: Call, write: Write | None, *, slow: bool
    ) -> web.StreamResponse:
        if call.is_watch:
            return await self._watch(request, call)
        # What was sent on is carried through, also when the operator is killed meanwhile.
        exchange = asyncio.create_task(self._exchange(call, write))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        answer = await asyncio.shield(exchange)
        if answer is None or not self._director.between(write):
            return _cut(request)
        status, headers, content = answer
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = len(content)
        await response.prepare(request)
        await _send(response, content, slow=slow)
        await response.write_eof()
        self._director.after(write)
        return response

    async def _exchange(self, call: Call, write: Write | None) -> Answer | None:
        """Send a request on, and return the whole answer; None if there is none."""
        path = call.path
        if version := self._director.stale_version(call):
            path = stale_path(path, version)
        before = await self._version(call) if write is not None else ""
        try:
            async with self._session.request(
                call.method,
                self._upstream + path,
                headers=_onward(call.headers),
                data=call.body or None,
                allow_redirects=False,
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, ConnectionError):
            return None
        # What happened so long ago that it is not kept any more is refused: then nothing old was shown.
        if version and answer.status == _OK:
            self._director.happened()
        if write is not None:
            write.status = answer.status
            write.changed = write.accepted and (not before or before != _version(content))
        return answer.status, _back(answer.headers), content

    async def _version(self, call: Call) -> str:
        """Return the resourceVersion of the object of a patch, to see whether it changes anything."""
        if call.server != KUBERNETES or call.method not in ("PATCH", "PUT"):
            return ""
        path = call.path.partition("?")[0].removesuffix("/status")
        keep = {key: value for key, value in _onward(call.headers).items() if key in _CREDENTIALS}
        try:
            async with self._session.get(self._upstream + path, headers=keep) as answer:
                return _version(await answer.read())
        except (aiohttp.ClientError, ConnectionError):
            return ""

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        try:
            async with self._session.get(self._upstream + call.path, headers=_onward(call.headers)) as answer:
                return await self._stream(request, call, answer)
        except (aiohttp.ClientError, ConnectionError):
            return _cut(request)

    async def _stream(
        self, request: web.Request, call: Call, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """Send the events of a watch on, one line after the other, and hold back those that are withheld."""
        response = web.StreamResponse(status=answer.status, headers=_back(answer.headers))
        response.enable_chunked_encoding()
        await response.prepare(request)
        held: list[bytes] = []
        lock = asyncio.Lock()

        async def release_held() -> None:
            for line in held:
                await response.write(line)
            held.clear()

        async def release() -> None:
            await self._director.fault_over()
            async with lock:
                await release_held()

        releasing = asyncio.create_task(release())
        try:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    async with lock:
                        if self._director.holds(call.target, line):
                            held.append(line + b"\n")
                        else:
                            if not self._director.fault_lasts:
                                # The fault ended just now: what it held back comes first.
                                await release_held()
                            await response.write(line + b"\n")
                if call.life != self._director.life:
                    break
            await response.write_eof()
        finally:
            releasing.cancel()
            await asyncio.gather(releasing, return_exceptions=True)
        return response


async def _send(response: web.StreamResponse, content: bytes, *, slow: bool) -> None:
    if not slow:
        await response.write(content)
        return
    for start in range(0, len(content), _DRIP_BYTES):
        await response.write(content[start : start + _DRIP_BYTES])
        await asyncio.sleep(_DRIP_PAUSE)


def _cut(request: web.Request) -> web.StreamResponse:
    """Break the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)


def _onward(headers: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in headers.items() if key.lower() not in _HOP_BY_HOP}
    # Events are read line by line.
    return {**kept, "Accept-Encoding": "identity"}


def _back(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in headers.items()
        if key.lower() not in _HOP_BY_HOP and key.lower() != "content-length"
    }


def stale_path(path: str, version: str) -> str:
    """Return the path of a list as it was at an earlier resourceVersion."""
    base, _, query = path.partition("?")
    words = [word for word in query.split("&") if word and not word.startswith("resourceVersion")]
    if any(word.startswith("continue=") for word in words):
        return path
    return f"{base}?{'&'.join([*words, f'resourceVersion={version}', 'resourceVersionMatch=Exact'])}"


def status_body(status: int) -> dict[str, Any]:
    """Return the Status object that kube-apiserver would send."""
    reason = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 504: "Timeout"}[status]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"faultlab: {reason}",
        "reason": reason,
        "details": {"retryAfterSeconds": 1} if status in (429, 504) else {},
        "code": status,
    }


def _version(content: bytes) -> str:
    try:
        return str(json.loads(content)["metadata"]["resourceVersion"])
    except (ValueError, KeyError, TypeError):
        return ""


@asynccontextmanager
async def serving(
    director: Director,
    server: str,
    upstream: str,
    *,
    trust: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """Serve a proxy on loopback while the block runs, and hand out its address."""
    connector = aiohttp.TCPConnector(limit=0, ssl=trust if trust is not None else True)
    timeout = aiohttp.ClientTimeout(total=None, connect=30)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        proxy = Proxy(director, server, upstream, session)
        runner = web.AppRunner(
            proxy.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        try:
            scheme = "http" if tls is None else "https"
            yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
            await proxy.finish()
