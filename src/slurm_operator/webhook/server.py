"""The HTTPS server that the API server asks.

HTTP/1.1 with connections that stay open, TLS from 1.2 on. A question has a deadline, which is a little less
than what the API server grants it (`?timeout=`), so that it gets an answer and not a cut connection. How many
are read and validated at once, and how large one may be, is bounded. Questions about Bindings and removals of
pods have places of their own: however slow their lookups are, no write of a custom resource waits for them.

To stop, the server goes on answering for a while, but ends each connection with its answer, so that clients
look for another replica; then it stops to listen, and what is in flight gets its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from slurm_operator.api.duration import parse_duration
from slurm_operator.kube.process.serving import HttpServer
from slurm_operator.webhook.metrics import IN_FLIGHT, LATENCY, REQUESTS
from slurm_operator.webhook.rules import review
from slurm_operator.webhook.rules.registration import BINDING_PATH, REMOVAL_PATH, WEBHOOKS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from slurm_operator.kube.models.meta import Object
    from slurm_operator.kube.process.listen_address import ListenAddress
    from slurm_operator.webhook.binding import Binder
    from slurm_operator.webhook.certificates import Certificates
    from slurm_operator.webhook.removals import Recorder
    from slurm_operator.webhook.validate import Validator

    Respond = Callable[[review.Review, float], Awaitable[bytes]]

_log = structlog.get_logger(__name__)

# An object is at most 1.5 MiB in etcd, and a question about an update has two of them, and who asks.
_LARGEST: Final = 7 * 1024 * 1024
_AT_ONCE: Final = 64
# Nearly every question is smaller. A large one takes up to ten times its size while it is answered.
_SMALL: Final = 256 * 1024
_LARGE_AT_ONCE: Final = 4
# What the API server grants by default, and at most.
_DEFAULT_SECONDS: Final = 10.0
_MOST_SECONDS: Final = 30.0
_MARGIN: Final = 0.8
# A binding holds up a scheduler, which has better things to do.
_BINDING_SECONDS: Final = 3.0
# A deletion or an eviction waits no longer than this to be recorded; the chart grants it 2 s.
_REMOVAL_SECONDS: Final = 1.6
_DRAIN_SECONDS: Final = 10.0
_ANY_HOST: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not listened on


class WebhookServer(HttpServer):
    """Serves every webhook of the registration."""

    def __init__(
        self,
        address: ListenAddress,
        certificates: Certificates,
        validator: Validator,
        binder: Binder,
        recorder: Recorder,
    ) -> None:
        super().__init__("webhook", address, [], tls=certificates.context, shutdown_seconds=_DRAIN_SECONDS)
        self._host = _ANY_HOST.get(address.host, address.host)
        self._certificates = certificates
        self._validator = validator
        self._binder = binder
        self._recorder = recorder
        self._writes = asyncio.Semaphore(_AT_ONCE)
        self._bindings = asyncio.Semaphore(_AT_ONCE)
        self._removals = asyncio.Semaphore(_AT_ONCE)
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.draining = False

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=_LARGEST)
        for webhook in WEBHOOKS:
            app.router.add_post(webhook.path, self._validating(webhook.path, webhook.kind))
        app.router.add_post(BINDING_PATH, self._binding)
        app.router.add_post(REMOVAL_PATH, self._removal)
        return app

    def _validating(
        self, path: str, kind: type[Object]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def respond(question: review.Review, seconds: float) -> bytes:
            verdict = await self._validator.validate(kind, question.request, seconds)
            return review.answer(question, verdict)

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._counted(path, request, self._writes, respond, budget(request.query))

        return handle

    async def _binding(self, request: web.Request) -> web.StreamResponse:
        async def respond(question: review.Review, seconds: float) -> bytes:
            return review.patched(question, await self._binder.patch(question.request, seconds))

        seconds = min(budget(request.query), _BINDING_SECONDS)
        return await self._counted(BINDING_PATH, request, self._bindings, respond, seconds)

    async def _removal(self, request: web.Request) -> web.StreamResponse:
        async def respond(question: review.Review, seconds: float) -> bytes:
            await self._recorder.record(question.request, seconds)
            return review.patched(question, ())

        seconds = min(budget(request.query), _REMOVAL_SECONDS)
        return await self._counted(REMOVAL_PATH, request, self._removals, respond, seconds)

    async def _counted(
        self,
        path: str,
        request: web.Request,
        slots: asyncio.Semaphore,
        respond: Respond,
        seconds: float,
    ) -> web.StreamResponse:
        with IN_FLIGHT.labels(path).track_inprogress(), LATENCY.labels(path).time():
            response = await _answered(request, self._place(request, slots), respond, seconds)
        REQUESTS.labels(path, str(response.status)).inc()
        if self.draining:
            response.force_close()
        return response

    @contextlib.asynccontextmanager
    async def _place(self, request: web.Request, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        """Wait for a place among those who are read and answered; a large question needs one of a few."""
        size = request.content_length
        large = self._large if size is None or size > _SMALL else contextlib.nullcontext()
        async with large, slots:
            yield

    async def serving(self) -> str | None:
        """Make sure, by a handshake with itself, that the newest certificate is served; else say why not.

        From TLS 1.3 on, the server's part of it is over before the client would show a certificate.
        """
        if self._certificates.problem:
            return self._certificates.problem
        if self.port is None:
            return "not listening yet"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it is compared with our own instead
        try:
            _, writer = await asyncio.open_connection(self._host, self.port, ssl=context)
        except OSError as error:
            return f"no TLS handshake on port {self.port}: {error}"
        served = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return None if served == self._certificates.leaf else "the served certificate is not the newest one"


async def _answered(
    request: web.Request, place: AbstractAsyncContextManager[None], respond: Respond, seconds: float
) -> web.Response:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        async with asyncio.timeout_at(end), place:
            question = review.parse(await request.read())
            # Lookups end a little earlier, so that there is time to say that they failed.
            text = await respond(question, max(0.0, (end - loop.time()) * _MARGIN))
    except review.ReviewError as error:
        return web.Response(status=400, text=f"{error}\n")
    except web.HTTPRequestEntityTooLarge:
        return web.Response(status=413, text=f"the request is larger than {_LARGEST} bytes\n")
    except TimeoutError:
        _log.warning("admission request timed out", path=request.path, seconds=seconds)
        return web.Response(status=503, text="too many or too slow requests; try again\n")
    return web.Response(body=text, content_type="application/json")


def budget(query: Mapping[str, str]) -> float:
    """Return the seconds in which to answer: less than the API server waits, as its query says."""
    text = query.get("timeout", "")
    try:
        granted = parse_duration(text).total_seconds() if text else _DEFAULT_SECONDS
    except ValueError:
        granted = _DEFAULT_SECONDS
    return _MARGIN * min(max(granted, 0.1), _MOST_SECONDS)
