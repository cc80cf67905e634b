"""One request at a time to one API server, within a deadline.

A `ApiCall` says what to send; `Transport.send` owns everything that can happen on the way: waiting for one of
the slots that bound concurrency, connecting, the answer, a 401 that better credentials may cure, a 429 that
asks to wait, a server that is restarting. All of that shares one deadline, so a caller knows the latest
moment it gets an answer or an error.

What is worth another try is decided in retries.py. For a write that depends on whether the request can have
reached the server, which is known exactly: the connector below reports the moment a request gets its
connection. There the fence is asked, however long connecting took, and once more in the moment the bytes
leave the process. So is the call, if it must not be sent after a moment (`ApiCall.not_after`).
"""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import aiohttp
from aiohttp import ClientTimeout
from multidict import CIMultiDict
from yarl import URL

from slurm_operator.kube.client.connection_errors import connection_failure
from slurm_operator.kube.client.connector import Attempt, Connector, FencedRequest, SendBy, attempt_in_context
from slurm_operator.kube.client.proxy import split_credentials
from slurm_operator.kube.client.slots import Slots
from slurm_operator.kube.client.watch_stream import BATCHING, gathering
from slurm_operator.kube.decide.retries import parse_retry_after, retry_delay
from slurm_operator.kube.errors import ApiError, ConnectionFailed, DeadlineExceeded, Unauthorized
from slurm_operator.kube.manifests.wire import status_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from slurm_operator.kube.client.auth import Auth
    from slurm_operator.kube.client.calls import ApiCall
    from slurm_operator.kube.client.config import ClientConfig
    from slurm_operator.kube.client.watch_stream import Batching

_CONNECT_SECONDS = 10.0
_OK, _REDIRECT = 200, 300


class RequestInfo(NamedTuple):
    """One attempt, for metrics; `code` is `<error>` when no answer arrived."""

    method: str
    verb: str
    resource: str
    host: str
    code: str
    seconds: float


_CREDENTIALS, _SLOT, _CONNECTION = "no credentials", "no free slot for the request", "no connection to {}"


class _Stage:
    """What a call that has not been sent is still waiting for."""

    __slots__ = ("failure", "lacking")

    def __init__(self) -> None:
        self.lacking = _CREDENTIALS
        self.failure: ConnectionFailed | ApiError | None = None


class Transport:
    """Sends calls to one API server over kept connections."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        user_agent: str,
        max_in_flight: int,
        fence: Callable[[], float | None] | None,
        observe: Callable[[RequestInfo], None] | None,
    ) -> None:
        self._config = config
        self._auth: Auth = config.auth
        self._headers = {
            "User-Agent": user_agent,
            # Inside a cluster the network is cheaper than compressing lists on one side and expanding them on
            # the other.
            "Accept-Encoding": "identity",
        }
        self._fence = fence
        self._observe = observe
        self._host = URL(config.server).authority
        self._proxy: URL | None = None
        self._proxy_headers: dict[str, str] | None = None
        if config.proxy:
            self._proxy, self._proxy_headers = split_credentials(config.proxy)
        self._timeout = ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        self._session: aiohttp.ClientSession | None = None
        self._slots = Slots(max_in_flight)

    async def open(self) -> None:
        """Create the connection pool in the running loop."""
        if self._session is not None:
            raise RuntimeError("the client is open already; one Client serves one `async with`")
        self._session = aiohttp.ClientSession(
            connector=Connector(),
            request_class=FencedRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            auto_decompress=True,
            trust_env=False,
            read_bufsize=2**18,
            # Warnings of admission plugins travel in headers and may be long.
            max_line_size=2**16,
            max_field_size=2**16,
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, call: ApiCall, timeout: float) -> bytes:  # noqa: ASYNC109 - the deadline is the feature
        """Send until it worked, cannot work, or the deadline has passed; return the body."""
        stage = _Stage()
        deadline = last = asyncio.get_running_loop().time() + timeout
        fence = self._fence if call.fenced else None
        if call.not_after is not None:
            last = min(deadline, call.not_after)
            fence = SendBy(call.what, last, deadline, fence)
        attempt = Attempt(fence, once=call.write)
        try:
            async with asyncio.timeout_at(deadline):
                return await self._send(call, attempt, stage, last)
        except TimeoutError:
            if stage.failure is not None and not attempt.sent:
                # Cut off on the way to one more try: why the last one failed tells more than that.
                raise stage.failure from None
            raise self._too_late(call, attempt, stage, timeout) from None

    async def _send(self, call: ApiCall, attempt: Attempt, stage: _Stage, last: float) -> bytes:
        loop = asyncio.get_running_loop()
        tries, refreshed = 0, False
        while True:
            tries += 1
            stage.lacking = _CREDENTIALS
            headers = await self._auth.headers()
            stage.lacking = _SLOT
            try:
                async with self._slots.taken(group_of(call)):
                    stage.lacking = _CONNECTION
                    return await self._read(call, attempt, await self._request(call, attempt, headers))
            except Unauthorized:
                # Nothing of a refused request has been executed.
                attempt.reset()
                stage.lacking = _CREDENTIALS
                if refreshed or not await self._auth.refresh(headers):
                    raise
                refreshed = True
                delay = 0.0
            except (ConnectionFailed, ApiError) as failure:
                wait = retry_delay(failure, tries=tries, write=call.write, jitter=random.random())  # noqa: S311 - jitter
                if wait is None or loop.time() + wait >= last:
                    raise
                stage.failure, delay = failure, wait
            attempt.reset()
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def stream(
        self,
        call: ApiCall,
        *,
        timeout: float,  # noqa: ASYNC109 - the deadline is the feature
        idle: float,
        batching: Batching = BATCHING,
    ) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """Open a long answer within `timeout`; yield a function for its next piece, empty at the end."""
        attempt, stage = Attempt(), _Stage()
        try:
            async with asyncio.timeout(timeout):
                response = await self._open(call, attempt, stage, idle)
        except TimeoutError:
            raise self._too_late(call, attempt, stage, timeout) from None

        loop = asyncio.get_running_loop()
        size, read_at = 0, -math.inf

        async def piece() -> bytes:
            nonlocal size, read_at
            try:
                delay = batching.delay(size, loop.time() - read_at)
                with gathering(response, delay, batching.size):
                    data = await response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise connection_failure(call.what, self._host, error, sent=attempt.sent) from None
            size, read_at = len(data), loop.time()
            return data

        try:
            yield piece
        finally:
            _finish(attempt, response)

    async def _open(
        self, call: ApiCall, attempt: Attempt, stage: _Stage, idle: float
    ) -> aiohttp.ClientResponse:
        refreshed = False
        while True:
            stage.lacking = _CREDENTIALS
            headers = await self._auth.headers()
            stage.lacking = _CONNECTION
            response = await self._request(call, attempt, headers, idle=idle)
            if response.status == _OK:
                return response
            try:
                await self._read(call, attempt, response)
            except Unauthorized:
                attempt.reset()
                stage.lacking = _CREDENTIALS
                if refreshed or not await self._auth.refresh(headers):
                    raise
                refreshed = True

    async def _request(
        self, call: ApiCall, attempt: Attempt, auth: Mapping[str, str], *, idle: float | None = None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open; use `async with Client(...)`")
        headers = CIMultiDict(self._headers)
        headers["Accept"] = call.accept
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        headers.extend(auth)
        url = self._config.server + call.path
        if call.query:
            url = f"{url}?{urlencode(call.query)}"
        attempt.reset()
        attempt_in_context.set(attempt)
        loop = asyncio.get_running_loop()
        started = loop.time()
        code = "<error>"
        try:
            response = await self._session.request(
                call.method,
                URL(url, encoded=True),
                data=call.body,
                headers=headers,
                allow_redirects=False,
                ssl=await self._auth.tls(self._config.ssl) or True,
                server_hostname=self._config.server_hostname,
                proxy=self._proxy,
                proxy_headers=self._proxy_headers,
                timeout=self._timeout
                if idle is None
                else ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=idle),
            )
            code = str(response.status)
        except (aiohttp.ClientError, OSError) as error:
            attempt.abandon()
            raise connection_failure(call.what, self._host, error, sent=attempt.sent) from None
        except BaseException:
            attempt.abandon()
            raise
        finally:
            if self._observe is not None:
                self._observe(
                    RequestInfo(
                        call.method, call.verb, call.resource, self._host, code, loop.time() - started
                    )
                )
        return response

    async def _read(self, call: ApiCall, attempt: Attempt, response: aiohttp.ClientResponse) -> bytes:
        try:
            body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise connection_failure(call.what, self._host, error, sent=attempt.sent) from None
        finally:
            _finish(attempt, response)
        if _OK <= response.status < _REDIRECT:
            return body
        raise status_error(
            call.what,
            response.status,
            body,
            content_type=response.content_type,
            retry_after=parse_retry_after(response.headers.get("Retry-After")),
            secret=call.secret,
        )

    def _too_late(self, call: ApiCall, attempt: Attempt, stage: _Stage, timeout: float) -> DeadlineExceeded:
        """Say what was still missing when the time was over."""
        lacking = "no answer from {}" if attempt.sent else stage.lacking
        return DeadlineExceeded(
            f"{call.what}: {lacking.format(self._host)} within {timeout:g} s", sent=attempt.sent
        )


def group_of(call: ApiCall) -> str:
    """Return the namespace that a call concerns, empty if none or all."""
    return call.path.partition("/namespaces/")[2].partition("/")[0]


def _finish(attempt: Attempt, response: aiohttp.ClientResponse) -> None:
    """Leave an answer: a complete one has given its connection back already, any other takes it along."""
    if response.connection is not None:
        attempt.abandon()
    response.close()
