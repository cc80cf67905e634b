"""A process that plays many slurmrestds, and what disturbs the operator, for `bench.fairness` and others.

    python -m bench.crowd COUNT [--nodes NUMBER] [--disturbing | --shared [--slow SECONDS]]

It prints one JSON line with the addresses, and obeys one JSON object on standard input at a time:

    {"register": [NUMBER, NODE]}    a slurmd registers with the cluster of that number
    {"terminate": [NUMBER, NODE]}   it ends
    {"hostile": true}               answered with a line: from now on, if `--disturbing`, lists of the first
                                    cluster drip, those of the second have 250 MB, those of the third are cut
                                    off by a reset, and the webhook takes three seconds for every object
    {"counts": true}                with `--shared`, answered with a line: how many requests, and how many of
                                    them writes, each cluster has had

With `--shared` all clusters have one address, for an operator with `--slurm-api-override`: a request is for
the cluster whose key (`jwt_key`) signed its token. If hostile, every reply of the first cluster takes
seconds, and lists of the second have 250 MB and are cut off by a reset in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import ssl
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.nodeset.slurmctld import Slurmctld
from bench.nodeset.standin import PACE, WRITES, StandIn, application, serving, serving_application
from kubebox.pki import issue, make_authority
from slurm_operator.slurm.web_token import signed_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp.typedefs import Handler, Middleware

# Beside the workers: nodes that the operator did not make. 100 of them are a list of 260 kB.
NODES = 100
_PIECE = b'{"name":"n1"},' * 20_000
_HUGE = 250_000_000
_DRIP_SECONDS = 0.02
# Much longer than a reconcile or a list, and much shorter than the ten seconds that the API server waits for
# a webhook.
_SLOW_SECONDS = 3.0
_LISTS = ("/nodes/", "/jobs/")


class Mood:
    """Whether the servers that can be hostile are."""

    def __init__(self) -> None:
        self.hostile = False


def hostile(mood: Mood, attack: Callable[[web.StreamResponse], Awaitable[None]]) -> Middleware:
    """Return a middleware that answers lists with an attack while the mood is hostile."""

    @web.middleware
    async def respond(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not (mood.hostile and request.method == "GET" and request.path.endswith(_LISTS)):
            return await handler(request)
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        with suppress(OSError):
            await stream.prepare(request)
            await stream.write(b'{"nodes":[')
            await attack(stream)
        if request.transport is not None:
            request.transport.abort()
        return stream

    return respond


async def drip(stream: web.StreamResponse) -> None:
    """Send a byte at a time."""
    for byte in _PIECE:
        await stream.write(bytes((byte,)))
        await asyncio.sleep(_DRIP_SECONDS)


async def flood(stream: web.StreamResponse) -> None:
    """Send 250 MB."""
    for _ in range(_HUGE // len(_PIECE)):
        await stream.write(_PIECE)


async def reset(stream: web.StreamResponse) -> None:
    """Send a part of an answer, and then nothing."""
    await stream.write(_PIECE)


ATTACKS = (drip, flood, reset)


def erratic() -> Callable[[web.StreamResponse], Awaitable[None]]:
    """Return an attack that floods and resets in turns."""
    attacks = itertools.cycle((flood, reset))

    async def attack(stream: web.StreamResponse) -> None:
        await next(attacks)(stream)

    return attack


def slow(mood: Mood, seconds: float) -> Middleware:
    """Return a middleware that takes so long for every reply while the mood is hostile."""

    @web.middleware
    async def respond(request: web.Request, handler: Handler) -> web.StreamResponse:
        if mood.hostile:
            await asyncio.sleep(seconds)
        return await handler(request)

    return respond


def jwt_key(number: int) -> bytes:
    """Return the key that signs the tokens of a cluster."""
    return f"jwt.key of {number}".encode().ljust(32, b".")


class SharedAddress:
    """Many clusters behind one address; a request is for the one whose key signed its token."""

    def __init__(self, standins: Sequence[StandIn], mood: Mood, slow_seconds: float) -> None:
        self._standins = standins
        self._disturbing: Sequence[Middleware] = (slow(mood, slow_seconds), hostile(mood, erratic()))
        self._keys = [jwt_key(number) for number in range(len(standins))]
        self._known: dict[str, int] = {}
        self._requests = [0] * len(standins)

    @property
    def counts(self) -> dict[str, list[int]]:
        """Return how many requests each cluster has had, and how many of them would change it."""
        writes = [sum(one.counts[name] for name in WRITES) for one in self._standins]
        return {"requests": self._requests, "writes": writes}

    def application(self) -> web.Application:
        """Return the routes to all of them."""

        @web.middleware
        async def respond(request: web.Request, handler: Handler) -> web.StreamResponse:
            number = self._number(request)
            self._requests[number] += 1
            if number < len(self._disturbing):
                return await self._disturbing[number](request, handler)
            return await handler(request)

        return application(self._standins, self._number, respond)

    def _number(self, request: web.Request) -> int:
        token = request.headers.get("X-SLURM-USER-TOKEN", "")
        if token not in self._known:
            found = (number for number, key in enumerate(self._keys) if signed_by(token, key))
            if (number := next(found, None)) is None:
                raise web.HTTPUnauthorized
            self._known[token] = number
        return self._known[token]


async def _start_webhook(mood: Mood, stack: AsyncExitStack) -> tuple[str, str]:
    """Serve a validating webhook that allows everything; return its address and its CA in base64."""

    async def validate(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        if mood.hostile:
            await asyncio.sleep(_SLOW_SECONDS)
        return web.json_response(
            {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "response": {"uid": asked["uid"], "allowed": True},
            }
        )

    app = web.Application()
    app.add_routes([web.post("/validate", validate)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    authority = make_authority("webhook of the benchmark")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_tls(authority))
    await site.start()
    ca = base64.b64encode(authority.certificate.public_bytes(Encoding.PEM)).decode()
    return f"https://127.0.0.1:{runner.addresses[0][1]}/validate", ca


def _tls(authority: Any) -> ssl.SSLContext:
    certificate, key = issue(authority, "webhook", addresses=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pair.write_bytes(certificate.public_bytes(Encoding.PEM) + secret)
        context.load_cert_chain(pair)
    return context


def _cluster(nodes: int) -> Slurmctld:
    slurmctld = Slurmctld()
    for number in range(nodes):
        slurmctld.register(f"n{number}")
    return slurmctld


async def main(options: argparse.Namespace) -> None:
    """Serve until standard input ends."""
    nodes, mood = options.nodes, Mood()
    clusters = [_cluster(nodes) for _ in range(options.count)]
    # A list as long as that would take slurmrestd many seconds, which say nothing about who reads it.
    pace = PACE if nodes <= NODES else 0.0
    standins = [StandIn(slurmctld, pace=pace) for slurmctld in clusters]
    address = SharedAddress(standins, mood, options.slow)
    async with AsyncExitStack() as stack:
        said: dict[str, Any] = {"urls": []}
        if options.shared:
            said["urls"].append(await stack.enter_async_context(serving_application(address.application())))
            standins = []
        for number, standin in enumerate(standins):
            attacks = ATTACKS[number : number + 1] if options.disturbing else ()
            middlewares = [hostile(mood, attack) for attack in attacks]
            said["urls"].append(await stack.enter_async_context(serving(standin, *middlewares)))
        if options.disturbing:
            said["webhook"], said["ca"] = await _start_webhook(mood, stack)
        print(json.dumps(said), flush=True)
        orders = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(orders), sys.stdin.buffer
        )
        while line := await orders.readline():
            for order, value in json.loads(line).items():
                if order == "hostile":
                    mood.hostile = value
                    print(json.dumps("done"), flush=True)
                elif order == "counts":
                    print(json.dumps(address.counts), flush=True)
                else:
                    number, node = value
                    getattr(clusters[number], order)(node)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("count", type=int)
    parser.add_argument("--nodes", type=int, default=NODES, help="of each cluster")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--disturbing", action="store_true")
    kind.add_argument("--shared", action="store_true")
    parser.add_argument("--slow", type=float, default=_SLOW_SECONDS, help="seconds of each slow reply")
    asyncio.run(main(parser.parse_args()))
