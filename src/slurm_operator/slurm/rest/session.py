"""What surrounds every request to a slurmrestd: deadline, slot, circuit breaker, version and token.

Each call has one deadline that covers everything: waiting for one of the slots that bound concurrency,
agreeing on the version, connecting, the answer to its last byte, decoding it. So a server that hangs, drips
or never ends cannot block a caller. After several failures in a row the breaker makes calls fail at once
for a while.

The version is agreed on with the first request: `ping` in the newest version we know, then in the next older,
until one is no 404. It is remembered, and agreed on anew when the server says it is another release, or when
the remembered version has become a 404. Nothing of a request that got such a 404 was carried out, so even a
write is then sent again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from slurm_operator.slurm.decode.refusals import INTERNAL_ERROR, NOT_FOUND, NOT_MODIFIED, Question, Reply
from slurm_operator.slurm.decode.replies import SHORT_ANSWER, Envelope, Pings, read, reading
from slurm_operator.slurm.errors import (
    CircuitOpen,
    NoCommonVersion,
    RestUnreachable,
    SlurmError,
    TokenRefused,
    Unavailable,
    Unsupported,
)
from slurm_operator.slurm.model import reply_limits, versions
from slurm_operator.slurm.rest.exchange import ExchangeProgress, HttpRequest, SlurmTransport
from slurm_operator.slurm.rest.reply_memory import SHARED
from slurm_operator.slurm.rest.thread_turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.slurm.decide.circuit_breaker import Breaker, Permit
    from slurm_operator.slurm.rest.reply_memory import MemoryShare, ReplyMemory

TokenSource = Callable[[], str]
"""Called for every request; must not block; may raise a `SlurmError`."""

E = TypeVar("E", bound=Envelope)

_PRINTABLE: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class RestTiming:
    """Deadlines, in seconds. slurmrestd itself needs 10 s to notice that slurmctld is down."""

    connect: float = 5.0
    request: float = 30.0
    write: float = 30.0
    keep_idle: float = 45.0
    """Longer than the pause between two polls at rest, shorter than what load balancers allow."""


@dataclass(frozen=True, slots=True)
class CallInfo:
    """One call, for metrics; the outcome is `ok`, `unchanged`, or the kind of the error."""

    operation: str
    method: str
    seconds: float
    outcome: str
    size: int


@dataclass(frozen=True, slots=True)
class SlurmCall:
    """One operation: what to send, how to read the answer, and how to speak about it."""

    operation: str
    path: str
    what: str
    method: str = "GET"
    body: object = None
    limit: int = reply_limits.SHORT.size
    write: bool = False
    plain: str | None = None
    """The path without its condition, for a server that stumbles over it."""
    feature: versions.Feature | None = None
    absent: frozenset[int] = frozenset()
    wanted: Callable[[], bool] | None = None
    """Asked in the moment before it is sent; if not, `WithdrawnError`."""


class _Progress:
    """What has come of a call so far."""

    __slots__ = ("attempt", "lease", "secret", "size")

    def __init__(self, lease: MemoryShare) -> None:
        self.lease = lease
        self.attempt = ExchangeProgress()
        self.secret = ""
        self.size = 0


class Session:
    """Sends calls to one slurmrestd; to be used from one event loop."""

    def __init__(
        self,
        url: str,
        token: TokenSource,
        transport: SlurmTransport,
        *,
        timing: RestTiming,
        concurrency: int,
        breaker: Breaker,
        observe: Callable[[CallInfo], None] | None,
        namespace: str = "",
        room: ReplyMemory = SHARED,
    ) -> None:
        self.version: str | None = None
        self.release = ""
        self._url = url
        self._token = token
        self._transport = transport
        self._timing = timing
        self._slots = asyncio.Semaphore(concurrency)
        self._breaker = breaker
        self._observe = observe
        self._namespace = namespace
        self._room = room
        self._agreeing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._trouble = ""

    def words(self, what: str) -> str:
        """Say what was wanted, and of which server."""
        return f"{what} of {self._url}"

    async def ask(self, call: SlurmCall, shape: type[E]) -> E | None:
        """Send a call and return its answer; None says that nothing has changed."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        progress, outcome = _Progress(self._room.lease(self._namespace)), "Cancelled"
        try:
            with progress.lease:
                content = await self._ask(call, shape, progress, started)
            outcome = "unchanged" if content is None else "ok"
        except SlurmError as error:
            outcome = error.kind
            raise
        finally:
            if self._observe is not None:
                seconds = loop.time() - started
                self._observe(CallInfo(call.operation, call.method, seconds, outcome, progress.size))
        return content

    async def _ask(self, call: SlurmCall, shape: type[E], progress: _Progress, started: float) -> E | None:
        deadline = started + (self._timing.write if call.write else self._timing.request)
        wait = self._breaker.wait(started)
        if wait is not None:
            raise self._open_circuit(call, wait)
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise self._too_late(call, progress.attempt, deadline - started) from None
        try:
            # The circuit may have opened while this call waited for its slot.
            now = asyncio.get_running_loop().time()
            permit = self._breaker.admit(now)
            if permit is None:
                raise self._open_circuit(call, self._breaker.wait(now) or 0.0)
            return await self._permitted(call, shape, progress, permit, started, deadline)
        finally:
            self._slots.release()

    async def _permitted(
        self,
        call: SlurmCall,
        shape: type[E],
        progress: _Progress,
        permit: Permit,
        started: float,
        deadline: float,
    ) -> E | None:
        """Send a call that the breaker lets through, and tell the breaker what came of it."""
        failure: SlurmError
        try:
            async with asyncio.timeout_at(deadline):
                content = await self._exchange(call, shape, progress)
        except TimeoutError:
            failure = self._too_late(call, progress.attempt, deadline - started)
        except SlurmError as error:
            failure = error
        except BaseException:
            self._breaker.dropped(permit)
            raise
        else:
            if isinstance(content, Pings) and not any(ping.responding for ping in content.pings):
                # slurmrestd lives, slurmctld does not, or refuses the token: neither a success nor news.
                self._breaker.dropped(permit)
            else:
                self._breaker.succeeded(permit)
            return content
        if isinstance(failure, Unavailable):
            self._trouble = str(failure)
            self._breaker.failed(permit, asyncio.get_running_loop().time())
        else:
            self._breaker.succeeded(permit)
        # Without its traceback, which would keep the whole answer, and the token, alive as long as the error.
        raise failure.with_traceback(None)

    async def _exchange(self, call: SlurmCall, shape: type[E], progress: _Progress) -> E | None:
        headers = self._headers(call, progress)
        version = self.version or await self._agree(None, headers, progress)
        reply = await self._send(call, version, headers, progress)
        if _no_such_endpoint(reply):
            stale, version = version, await self._agree(version, headers, progress)
            if version == stale:
                raise Unsupported(f"{self.words(call.what)}: Slurm {self.release} cannot do this")
            reply = await self._send(call, version, headers, progress)
        if reply.status == INTERNAL_ERROR and call.plain is not None:
            reply = await self._send(replace(call, path=call.plain), version, headers, progress)
        elif reply.status == NOT_MODIFIED:
            return None
        progress.size = len(reply.body)
        progress.attempt.stage = ExchangeProgress.READING
        content = await self._read(
            reply, shape, Question(self.words(call.what), call.absent, progress.secret)
        )
        self._note(content.meta.slurm.release)
        return content

    async def _read(self, reply: Reply, shape: type[E], question: Question) -> E:
        """Decode an answer, a long one beside the event loop."""
        if len(reply.body) <= SHORT_ANSWER:
            return read(reply, shape, question)
        # One at a time: however many answers a server sends, it has one place in the line of its namespace.
        async with self._reading:
            return await in_slices(reading(reply, shape, question), in_thread=True, namespace=self._namespace)

    async def _send(
        self, call: SlurmCall, version: str, headers: Mapping[str, str], progress: _Progress
    ) -> Reply:
        if call.feature is not None and not versions.offers(version, call.feature):
            raise Unsupported(f"{self.words(call.what)}: {versions.lack(version, call.feature)}")
        request = HttpRequest(
            call.method,
            f"/slurm/{version}/{call.path}",
            self.words(call.what),
            call.limit,
            call.write,
            None if call.body is None else msgspec.json.encode(call.body),
            call.wanted,
            progress.lease,
        )
        return await self._transport.send(request, headers, progress.attempt)

    def _headers(self, call: SlurmCall, progress: _Progress) -> Mapping[str, str]:
        # Files and Secrets often end with an unintended line break.
        token = progress.secret = self._token().strip()
        if not _PRINTABLE.fullmatch(token):
            problem = "has characters that no token has" if token else "is empty"
            refusal = TokenRefused(f"{self.words(call.what)}: not sent, the token {problem}")
            refusal.sent = False
            raise refusal
        headers = {"X-SLURM-USER-TOKEN": token}
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    async def _agree(self, stale: str | None, headers: Mapping[str, str], progress: _Progress) -> str:
        """Return the newest version that both sides know, asking only once for all who wait."""
        progress.attempt.stage = ExchangeProgress.AGREEING
        async with self._agreeing:
            if self.version is not None and self.version != stale:
                return self.version
            self.version = None
            what = self.words("agree on a version with ping")
            try:
                for version in versions.KNOWN:
                    request = HttpRequest("GET", f"/slurm/{version}/ping/", what, reply_limits.SHORT.size)
                    reply = await self._transport.send(request, headers, ExchangeProgress())
                    if not _no_such_endpoint(reply):
                        content = read(reply, Pings, Question(what, secret=progress.secret))
                        self.release, self.version = content.meta.slurm.release, version
                        return version
            except SlurmError as error:
                # The ping may have arrived; what it was to prepare has not been sent.
                error.sent = False
                raise
        known = ", ".join(reversed(versions.KNOWN))
        raise NoCommonVersion(
            f"{what}: it serves none of {known}; is it a slurmrestd of Slurm 24.11 or later?"
        )

    def _note(self, release: str) -> None:
        """Agree anew with the next request if the server has become another one."""
        if release and release != self.release:
            self.release, self.version = release, None

    def _open_circuit(self, call: SlurmCall, wait: float) -> CircuitOpen:
        when = f"the next attempt is due in {wait:.1f} s" if wait else "one attempt is under way"
        return CircuitOpen(
            f"{self.words(call.what)}: not sent, {when}; the last one: {self._trouble}", retry_after=wait
        )

    def _too_late(self, call: SlurmCall, attempt: ExchangeProgress, seconds: float) -> RestUnreachable:
        return RestUnreachable(
            f"{self.words(call.what)}: no answer within {seconds:g} s, still {attempt.stage}",
            sent=attempt.sent,
        )


def _no_such_endpoint(reply: Reply) -> bool:
    return reply.status == NOT_FOUND and not reply.json
