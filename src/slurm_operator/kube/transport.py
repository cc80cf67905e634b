"""One request at a time to one API server, within a deadline.

A `Call` says what to send; `Transport.send` owns everything that can happen on the way: waiting for one of
the slots that bound concurrency, connecting, the answer, a 401 that better credentials may cure, a 429 that
asks to wait, a server that is restarting. All of that shares one deadline, so a caller knows the latest
moment it gets an answer or an error.

Reads are repeated on any failure that may pass. A write is repeated only when the server provably did not
execute it: no connection was made, credentials were refused, or a 429 said when to return. "No connection was
made" is known exactly, because the connector below reports the moment a request gets its connection. There
the fence is asked, however long connecting took, and once more in the moment the bytes leave the process.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import ssl
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import aiohttp
from aiohttp import ClientTimeout
from multidict import CIMultiDict
from yarl import URL

from slurm_operator.kube.connector import Attempt, Connector, FencedRequest, attempt_in_context
from slurm_operator.kube.errors import (
    ApiError,
    ConnectionFailed,
    DeadlineExceeded,
    ServerError,
    TlsError,
    TooManyRequests,
    Unauthorized,
)
from slurm_operator.kube.proxy import split_credentials
from slurm_operator.kube.wire import status_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from slurm_operator.kube.auth import Auth
    from slurm_operator.kube.calls import Call
    from slurm_operator.kube.config import ClientConfig

_CONNECT_SECONDS = 10.0
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.1, 5.0
# A 500 is often a bug that stays; 502, 503 and 504 are a server or proxy that comes back.
_TRIES_ON_500 = 3
# A pause short against any reconcile, and the size from which on a read is worth its wake-up.
_BATCH_SECONDS, _BATCH_BYTES = 0.05, 2**16
_OK, _REDIRECT, _INTERNAL_ERROR = 200, 300, 500
# A server that goes away during the handshake comes back; one that refuses it will refuse the next one too.
_CUT_HANDSHAKE = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


_SAID: tuple[tuple[type[BaseException], str], ...] = (
    (TimeoutError, "nothing arrived for too long"),
    (aiohttp.ServerDisconnectedError, "the other side closed it"),
    (aiohttp.ClientPayloadError, "the answer broke off or is not valid HTTP"),
    (aiohttp.ClientResponseError, "the answer is not valid HTTP"),
)


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
        self._slots = asyncio.Semaphore(max_in_flight)

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

    async def send(self, call: Call, timeout: float) -> bytes:  # noqa: ASYNC109 - the deadline is the feature
        """Send until it worked, cannot work, or the deadline has passed; return the body."""
        attempt = Attempt(self._fence if call.fenced else None, once=call.write)
        stage = _Stage()
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                return await self._send(call, attempt, stage, deadline)
        except TimeoutError:
            if stage.failure is not None and not attempt.sent:
                # Cut off on the way to one more try: why the last one failed tells more than that.
                raise stage.failure from None
            raise self._too_late(call, attempt, stage, timeout) from None

    async def _send(self, call: Call, attempt: Attempt, stage: _Stage, deadline: float) -> bytes:
        loop = asyncio.get_running_loop()
        tries, refreshed = 0, False
        while True:
            tries += 1
            stage.lacking = _CREDENTIALS
            headers = await self._auth.headers()
            stage.lacking = _SLOT
            try:
                async with self._slots:
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
                if wait is None or loop.time() + wait >= deadline:
                    raise
                stage.failure, delay = failure, wait
            attempt.reset()
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def stream(
        self,
        call: Call,
        *,
        timeout: float,  # noqa: ASYNC109 - the deadline is the feature
        idle: float,
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
            if wait := batching_delay(size, loop.time() - read_at):
                with _undisturbed(response):
                    await asyncio.sleep(wait)
            try:
                data = await response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise self._failure(call, attempt, error) from None
            size, read_at = len(data), loop.time()
            return data

        try:
            yield piece
        finally:
            _finish(attempt, response)

    async def _open(self, call: Call, attempt: Attempt, stage: _Stage, idle: float) -> aiohttp.ClientResponse:
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
        self, call: Call, attempt: Attempt, auth: Mapping[str, str], *, idle: float | None = None
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
            raise self._failure(call, attempt, error) from None
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

    async def _read(self, call: Call, attempt: Attempt, response: aiohttp.ClientResponse) -> bytes:
        try:
            body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._failure(call, attempt, error) from None
        finally:
            _finish(attempt, response)
        if _OK <= response.status < _REDIRECT:
            return body
        raise status_error(
            call.what,
            response.status,
            body,
            content_type=response.content_type,
            retry_after=_retry_after(response.headers.get("Retry-After")),
            secret=call.secret,
        )

    def _too_late(self, call: Call, attempt: Attempt, stage: _Stage, timeout: float) -> DeadlineExceeded:
        """Say what was still missing when the time was over."""
        lacking = "no answer from {}" if attempt.sent else stage.lacking
        return DeadlineExceeded(
            f"{call.what}: {lacking.format(self._host)} within {timeout:g} s", sent=attempt.sent
        )

    def _failure(self, call: Call, attempt: Attempt, error: BaseException) -> ConnectionFailed:
        """Say in one line why no answer came."""
        if attempt.sent:
            return ConnectionFailed(f"{call.what}: the connection to {self._host} broke: {_reason(error)}")
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return ConnectionFailed(
                f"{call.what}: the proxy refused ({error.status} {error.message})", sent=False
            )
        if isinstance(error, aiohttp.ClientSSLError) and not isinstance(_inner(error), _CUT_HANDSHAKE):
            return TlsError(f"{call.what}: TLS with {self._host} failed: {_reason(error)}")
        return ConnectionFailed(f"{call.what}: cannot connect to {self._host}: {_reason(error)}", sent=False)


def batching_delay(size: int, since: float) -> float:
    """Return how long to let a stream gather data, given what its last read gave and how long ago that was.

    Under TLS, waking up for one event costs more than decoding it. A single event after silence is read at
    once; those that follow within milliseconds are read together. A large read needs no such help.
    """
    return max(0.0, _BATCH_SECONDS - since) if 0 < size < _BATCH_BYTES else 0.0


@contextmanager
def _undisturbed(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Keep the socket of an answer from waking the loop until a batch of bytes, or the end, has arrived."""
    transport = response.connection.transport if response.connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if transport is None or sock is None:
        yield
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _BATCH_BYTES)
    try:
        yield
    finally:
        if not transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _finish(attempt: Attempt, response: aiohttp.ClientResponse) -> None:
    """Leave an answer: a complete one has given its connection back already, any other takes it along."""
    if response.connection is not None:
        attempt.abandon()
    response.close()


def retry_delay(
    failure: ConnectionFailed | ApiError, *, tries: int, write: bool, jitter: float
) -> float | None:
    """Return how long to wait before another try, or None if another is wrong; `jitter` lies in [0, 1)."""
    if isinstance(failure, ConnectionFailed):
        again = not isinstance(failure, TlsError) and not (write and failure.sent)
    elif isinstance(failure, TooManyRequests):
        again = not refused_by_budget(failure) and not (write and failure.retry_after is None)
    elif isinstance(failure, ServerError):
        again = not write and (failure.status != _INTERNAL_ERROR or tries < _TRIES_ON_500)
    else:
        again = False
    if not again:
        return None
    backoff: float = min(_FIRST_BACKOFF * 2 ** min(tries - 1, 10), _LONGEST_BACKOFF) * (0.5 + jitter / 2)
    # Everybody was told the same number of seconds; the backoff spreads them out.
    return backoff + (failure.retry_after or 0.0 if isinstance(failure, ApiError) else 0.0)


def refused_by_budget(error: ApiError) -> bool:
    """Tell whether a 429 is a disruption budget's answer to an eviction: a decision, not an overload."""
    return any(cause.get("reason") == "DisruptionBudget" for cause in error.details.get("causes", ()))


def _retry_after(value: str | None) -> float | None:
    """Read the header in its form of seconds; the API server never sends the form of a date."""
    return float(value) if value and value.isascii() and value.isdigit() else None


def _reason(error: BaseException) -> str:
    """Say what happened in words of our own or of the operating system.

    The texts of aiohttp are not repeated: they quote the bytes that it could not make sense of, which may be
    those of a secret.
    """
    inner = _inner(error)
    if isinstance(inner, ssl.SSLCertVerificationError):
        return inner.verify_message
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    said = next((said for kind, said in _SAID if isinstance(inner, kind)), "it failed")
    return f"{said} ({type(inner).__name__})"


def _inner(error: BaseException) -> BaseException:
    """Return what aiohttp wrapped."""
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None)
    return inner if isinstance(inner, BaseException) else error
