"""One exchange with one slurmrestd, within a deadline that the caller enforces.

Reads use kept connections, and one that breaks is asked once more on a fresh one. Writes always get a fresh
connection: a server that closed a kept one a moment ago can then never leave a write in doubt, for the price
of one handshake. Nothing else is ever repeated, and it is known exactly whether a request can have left. Who
wants it may have given up while it was on its way to a connection; then it does not leave (`WithdrawnError`).

Nothing of the environment redirects this traffic. `HTTP_PROXY` is set in clusters for the way out, while a
slurmrestd is inside, and requests to it carry a token. Redirects are not followed for the same reason.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import select
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from slurm_operator.slurm.decode import http1
from slurm_operator.slurm.decode.refusals import Reply
from slurm_operator.slurm.errors import BadReply, ReplyTooLarge, RestUnreachable, SlurmError
from slurm_operator.slurm.rest.reply_memory import NoRoomError
from slurm_operator.slurm.rest.thread_turns import ThreadTurns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_operator.slurm.rest.reply_memory import MemoryShare

# A connection is dropped when the server does not acknowledge bytes for this long.
_UNACKNOWLEDGED_MS: Final = 10_000
# An answer beyond its first part is read no faster than this: a server that floods the operator would else
# keep the event loop busy. The longest list takes four seconds like that.
_AT_FULL_SPEED: Final = 2**20
_BYTES_PER_SECOND: Final = 64 * 2**20
_READ_AT_ONCE: Final = 2**18
_MOST_IDLE: Final = 4
_MOST_ADDRESSES: Final = 8
# Not the default threads of asyncio: a few names whose DNS server does not respond would block all other
# lookups, those for the connection to Kubernetes included. Each Slurm cluster uses one thread at most, and
# all clusters of a namespace four.
_LOOKUPS: Final = ThreadPoolExecutor(16, thread_name_prefix="slurm-lookup")
_TURNS: Final = ThreadTurns(16, 4)
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What to send, and the most that may come back."""

    method: str
    path: str
    what: str
    limit: int
    write: bool = False
    body: bytes | None = None
    wanted: Callable[[], bool] | None = None
    """Asked in the moment before it leaves."""
    lease: MemoryShare | None = None
    """The room for the answer."""


class WithdrawnError(Exception):
    """Not sent: in the last moment it was not wanted any more, at least not like that."""


class ExchangeProgress:
    """How far a request has come."""

    __slots__ = ("stage",)

    WAITING: Final = "waiting for a free slot"
    AGREEING: Final = "agreeing on a version"
    CONNECTING: Final = "connecting"
    SENT: Final = "waiting for the answer"
    READING: Final = "decoding the answer"

    def __init__(self) -> None:
        self.stage = ExchangeProgress.WAITING

    @property
    def sent(self) -> bool:
        """Return whether the request can have left."""
        return self.stage in (ExchangeProgress.SENT, ExchangeProgress.READING)


class _BrokenError(Exception):
    """The connection ended before the answer did."""


class _Link(asyncio.Protocol):
    """One connection; it carries one exchange at a time, and is in `links` while it exists."""

    def __init__(self, links: set[_Link]) -> None:
        self._links = links
        self._transport: asyncio.Transport | None = None
        self._answer: http1.Answer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._unhurried = -_AT_FULL_SPEED
        self.idle_since = 0.0

    @property
    def open(self) -> bool:
        """Return whether the connection is there."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """Return whether nothing waits to be read: what came before a request is not the answer to it."""
        if self._transport is None or not self.open:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    async def exchange(self, data: bytes, answer: http1.Answer) -> None:
        """Send a request and return when its answer is complete; a connection that cannot go on is ended."""
        if self._transport is None or not self.open:
            raise _BrokenError("the other side closed it")
        self._answer, self._waiter = answer, asyncio.get_running_loop().create_future()
        self._unhurried = -_AT_FULL_SPEED
        try:
            self._transport.write(data)
            await self._waiter
        finally:
            self._answer = self._waiter = None
            if not answer.reusable:
                self.abort()

    def abort(self) -> None:
        """End the connection without a goodbye."""
        if self._transport is not None:
            self._transport.abort()

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over."""
        # By what it can do, not by its class: other event loops have transports of their own.
        self._transport = cast("asyncio.Transport", transport)
        self._links.add(self)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)

    def data_received(self, data: bytes) -> None:
        """Take bytes in; those that answer no request end the connection."""
        if self._answer is None or self._answer.complete:
            self.abort()
            return
        try:
            if self._answer.feed(data):
                self._end(None)
            else:
                self._slow_down(len(data))
        except (http1.MalformedError, NoRoomError) as error:
            self._end(error)

    def _slow_down(self, size: int) -> None:
        """Read no more for a moment if the answer comes faster than it may."""
        self._unhurried += size
        if self._unhurried >= _READ_AT_ONCE and self._transport is not None:
            self._transport.pause_reading()
            pause = self._unhurried / _BYTES_PER_SECOND
            asyncio.get_running_loop().call_later(pause, self._transport.resume_reading)
            self._unhurried = 0

    def eof_received(self) -> None:
        """Take in that the other side has finished."""
        if self._answer is not None:
            self._end(None if self._answer.finish() else _BrokenError("the other side closed it"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Take in that the connection is gone."""
        self._links.discard(self)
        self._end(_BrokenError("the other side closed it" if exc is None else reason(exc)))

    def _end(self, error: Exception | None) -> None:
        if self._waiter is None or self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(None)
        else:
            self._waiter.set_exception(error)


class SlurmTransport:
    """Sends requests to one slurmrestd."""

    def __init__(
        self, url: str, *, ca: bytes | None, connect: float, keep_idle: float, namespace: str = ""
    ) -> None:
        parts = urlsplit(url)
        self._namespace = namespace
        self._host = parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme]
        self._tls = tls_context(ca) if parts.scheme == "https" else None
        self._connect = connect
        self._keep_idle = keep_idle
        self._headers = {
            "Host": parts.netloc,
            "User-Agent": "slurm-operator",
            "Accept": "application/json",
            # Inside a cluster the network is cheaper than compressing on one side and expanding on the other.
            "Accept-Encoding": "identity",
        }
        self._links: set[_Link] = set()
        self._idle: list[_Link] = []
        self._closed = False
        self._lookup: asyncio.Task[Sequence[str]] | None = None

    def close(self) -> None:
        """End every connection; what is under way fails."""
        self._closed = True
        self._idle.clear()
        for link in [*self._links]:
            link.abort()

    async def send(
        self, request: HttpRequest, headers: Mapping[str, str], attempt: ExchangeProgress
    ) -> Reply:
        """Send once, or a read whose connection broke once more, and return the answer."""
        failure: SlurmError = RestUnreachable(f"{request.what}: not sent", sent=False)
        for fresh in (True,) if request.write else (False, True):
            try:
                return await self._try(request, headers, attempt, fresh=fresh)
            except _BrokenError as error:
                failure = RestUnreachable(f"{request.what}: the connection broke: {error}")
            except (http1.TooLargeError, NoRoomError) as error:
                failure = ReplyTooLarge(request.what, str(error))
                break
            except http1.MalformedError as error:
                failure = BadReply(f"{request.what}: the answer is malformed: {error}")
                break
            except OSError as error:
                problem = "TLS failed" if isinstance(error, ssl.SSLError) else "cannot connect"
                failure = RestUnreachable(f"{request.what}: {problem}: {reason(error)}", sent=False)
                break
        # Raised here, outside of any handler, so that no foreign exception hangs on to it.
        raise failure

    async def _try(
        self, request: HttpRequest, headers: Mapping[str, str], attempt: ExchangeProgress, *, fresh: bool
    ) -> Reply:
        attempt.stage = ExchangeProgress.CONNECTING
        link = None if fresh else self._kept()
        if link is None:
            link = await self._opened()
        if request.wanted is not None and not request.wanted():
            self._keep(link)
            raise WithdrawnError
        data = http1.encode(request.method, request.path, {**self._headers, **headers}, request.body)
        if request.lease is not None:
            # What a connection that broke has brought is gone.
            request.lease.reset()
        answer = http1.Answer(request.limit, None if request.lease is None else request.lease.grow)
        attempt.stage = ExchangeProgress.SENT
        try:
            await link.exchange(data, answer)
        finally:
            self._keep(link)
        return Reply(answer.status, answer.headers.get("content-type", ""), answer.body)

    def _keep(self, link: _Link) -> None:
        """Keep a connection for the next read, if it is good and there are not enough of them."""
        self._close_unused()
        if link.open and not self._closed and len(self._idle) < _MOST_IDLE:
            link.idle_since = asyncio.get_running_loop().time()
            self._idle.append(link)
        else:
            link.abort()

    def _kept(self) -> _Link | None:
        """Return a connection that was used a moment ago, the last one first."""
        self._close_unused()
        while self._idle:
            link = self._idle.pop()
            if link.quiet:
                return link
            link.abort()
        return None

    def _close_unused(self) -> None:
        """End the connections that were not used for a while: while one suffices, none takes the others."""
        oldest = asyncio.get_running_loop().time() - self._keep_idle
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.pop(0).abort()

    async def _opened(self) -> _Link:
        """Return a new connection."""
        self._refuse_if_closed()
        async with asyncio.timeout(self._connect):
            link = await self._connected(await self._addresses())
        try:
            # It may have been closed meanwhile, and did not know of this connection.
            self._refuse_if_closed()
        except OSError:
            link.abort()
            raise
        return link

    async def _connected(self, addresses: Sequence[str]) -> _Link:
        """Return a connection to the first address that takes one."""
        failure = OSError("the name has no address")
        # One after the other: asyncio's race of addresses leaves a socket open when it is cancelled.
        for address in addresses:
            try:
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: _Link(self._links),
                    address,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host.rstrip(".") if self._tls else None,
                )
            except OSError as error:
                failure = error
            else:
                return link
        raise failure

    async def _addresses(self) -> Sequence[str]:
        """Return the addresses of the server, looked up by one thread at most, however long that takes."""
        if _is_address(self._host):
            return (self._host,)
        if self._lookup is None:
            self._lookup = asyncio.create_task(self._look_up(), name=f"look up {self._host}")
            self._lookup.add_done_callback(self._looked_up)
        # A thread cannot be ended: who gives up leaves it to those who ask after him.
        return await asyncio.shield(self._lookup)

    async def _look_up(self) -> Sequence[str]:
        async with _TURNS.turn(self._namespace):
            self._refuse_if_closed()
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_LOOKUPS, _look_up, self._host, self._port)

    def _looked_up(self, lookup: asyncio.Task[Sequence[str]]) -> None:
        self._lookup = None
        if not lookup.cancelled():
            # Or it would be reported as lost when all who waited for it have given up.
            lookup.exception()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise OSError("this client is closed")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _look_up(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(address[0]) for *_, address in found)][:_MOST_ADDRESSES]


def tls_context(ca: bytes | None) -> ssl.SSLContext:
    """Return a context that trusts the given authority, or the system's; ValueError if it is none."""
    if ca is None:
        return ssl.create_default_context()
    if not ca.strip():
        # Without certificates Python trusts the system's CAs: any publicly trusted certificate would do.
        raise ValueError("ca: empty; give the CA certificate of slurmrestd in PEM form")
    try:
        context = ssl.create_default_context(cadata=ca.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise ValueError(
            "ca: not a PEM certificate; give the CA certificate of slurmrestd in PEM form"
        ) from None
    # Python 3.13 and later insist on key identifiers that many private authorities lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def reason(error: Exception) -> str:
    """Say in a few words why a connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message or "the certificate is not trusted"
    if isinstance(error, ssl.SSLError):
        return (error.reason or "the handshake failed").lower().replace("_", " ")
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return error.strerror or "the name cannot be resolved"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
