"""`dashboard`: the status page of the manager, served on loopback by a proxy that adds the token.

A browser cannot send the header that the manager wants, and other programs and pages on the machine must not
get at what the user may see. So the address that is printed has a secret that works once: it is exchanged for
a cookie, and nothing is served without that cookie; if the secret comes again without the cookie, another
has read it, and nothing is served any more. The Host header must be that of loopback, which stops
names of other sites that resolve to 127.0.0.1, and requests that another site makes are refused. Only the
paths of the page are passed on.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import sys
import webbrowser
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import web

from slurm_operator.kube.errors import KubeError
from slurm_operator.plugin.exits import CommandError, ExitCode, ManagerUnavailable
from slurm_operator.status_rows import TOKEN_HEADER

if TYPE_CHECKING:
    from slurm_operator.plugin.commands import CommandSession
    from slurm_operator.plugin.manager_api import ManagerApi
    from slurm_operator.plugin.pod_proxy import PodProxy

LOOPBACK: Final = "127.0.0.1"
_PATHS: Final = re.compile(r"/(?:|assets/[a-z0-9-]+\.[a-z0-9]+|api/v1/[a-z]+)")
_PASSED: Final = (
    "Content-Type",
    "Content-Security-Policy",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "Cache-Control",
    "ETag",
    "Referrer-Policy",
    "X-Content-Type-Options",
    "X-Frame-Options",
)
_SAME_SITE: Final = ("", "same-origin", "none")
_UNAUTHORIZED, _NOT_FOUND, _UNAVAILABLE = 401, 404, 503
_CLOSE_SECONDS: Final = 2.0
_WRONG: Final = "This address is wrong. Open the one that `kubectl slurm dashboard` has printed.\n"
_USED: Final = (
    "This address has been used in another browser, so nothing more is served to either. "
    "Run `kubectl slurm dashboard` again.\n"
)


class Dashboard:
    """Answers a browser on loopback."""

    def __init__(self, api: ManagerApi, proxy: PodProxy) -> None:
        self._api = api
        self._proxy = proxy
        self._key = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._exchanged = False
        self._port = 0
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> str:
        """Listen, and return the address to open."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise CommandError(f"--port: cannot listen on {LOOPBACK}:{port}: {error.strerror}") from None
        self._port = self._runner.addresses[0][1]
        return f"http://{LOOPBACK}:{self._port}/?key={self._key}"

    async def stop(self) -> None:
        """Close every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            return refused
        if _brings_key(request):
            return self._exchange(request)
        if not self._known(request):
            text = "Open the address that `kubectl slurm dashboard` has printed; it works once.\n"
            return web.Response(status=403, text=text)
        if _PATHS.fullmatch(request.rel_url.raw_path) is None:
            return web.Response(status=404, text="Not found.\n")
        return await self._forward(request)

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.host not in (f"{LOOPBACK}:{self._port}", f"localhost:{self._port}"):
            return web.Response(status=421, text="This address serves 127.0.0.1 only.\n")
        if request.method != "GET":
            return web.Response(status=405, text="Only GET is answered.\n", headers={"Allow": "GET"})
        if request.headers.get("Sec-Fetch-Site", "") not in _SAME_SITE and not _brings_key(request):
            return web.Response(status=403, text="Requests of other sites are refused.\n")
        return None

    @property
    def _name(self) -> str:
        # Cookies do not know ports, and two dashboards may be open.
        return f"kubectl-slurm-{self._port}"

    def _known(self, request: web.Request) -> bool:
        given = request.cookies.get(self._name, "")
        # What is not UTF-8 came as surrogates.
        return hmac.compare_digest(given.encode(errors="surrogateescape"), self._cookie.encode())

    def _exchange(self, request: web.Request) -> web.Response:
        """Take the key of the address, once, and give a cookie for it.

        The browser is started with the address, which other users of the machine can read from the list of
        processes. One of them may be first: so the cookie ends when the key comes from elsewhere as well.
        """
        if not hmac.compare_digest(request.query["key"].encode(), self._key.encode()):
            return web.Response(status=403, text=_WRONG)
        if self._exchanged and not self._known(request):
            self._cookie = secrets.token_urlsafe(32)
            return web.Response(status=403, text=_USED)
        self._exchanged = True
        response = web.Response(status=303, headers={"Location": "./", "Cache-Control": "no-store"})
        response.set_cookie(self._name, self._cookie, httponly=True, samesite="Strict", path="/")
        return response

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on to the leader; once more if the token or the leader has changed."""
        stream = request.path.endswith("/stream")
        for last in (False, True):
            try:
                target, token = await self._api.connect()
                opened = self._proxy.open(
                    target,
                    request.rel_url.raw_path,
                    query=dict(request.query),
                    headers={TOKEN_HEADER: token, "Accept": request.headers.get("Accept", "*/*")},
                    seconds=None if stream else 30.0,
                )
                async with opened as reply:
                    # The API server does not find the pod of a leader that is gone.
                    if not last and reply.status in (_UNAUTHORIZED, _NOT_FOUND, _UNAVAILABLE):
                        self._api.forget(token=reply.status == _UNAUTHORIZED)
                        continue
                    return await self._pass_on(request, reply)
            except ManagerUnavailable as error:
                return web.Response(status=502, text=f"{error}\n")
            except (aiohttp.ClientError, TimeoutError, KubeError, OSError) as error:
                if request.transport is None or request.transport.is_closing():
                    raise
                self._api.forget()
                if last:
                    return web.Response(
                        status=502, text=f"The operator cannot be reached ({type(error).__name__}).\n"
                    )
        raise AssertionError

    async def _pass_on(self, request: web.Request, reply: aiohttp.ClientResponse) -> web.StreamResponse:
        """Send a reply to the browser as it comes, as long as its cookie holds."""
        response = web.StreamResponse(status=reply.status)
        for name in _PASSED:
            if name in reply.headers:
                response.headers[name] = reply.headers[name]
        await response.prepare(request)
        try:
            async for piece in reply.content.iter_any():
                if not self._known(request):
                    break
                await response.write(piece)
        except (aiohttp.ClientError, OSError):
            # The stream has ended on one of the two sides; the page connects again.
            return response
        await response.write_eof()
        return response


def _brings_key(request: web.Request) -> bool:
    """Return whether this is the address that was printed, which may be a link on another page."""
    return "key" in request.query and request.path == "/"


async def dashboard(session: CommandSession) -> int:
    """Serve the page until the user ends it."""
    await session.api.connect()
    page = Dashboard(session.api, session.api.proxy)
    address = await page.start(session.options.port)
    try:
        sys.stdout.write(
            f"The status page of the operator: {address}\nThe address works once. Ctrl-C ends it.\n"
        )
        sys.stdout.flush()
        if not session.options.no_browser and has_display(os.environ, sys.platform):
            await asyncio.to_thread(webbrowser.open, address)
        await asyncio.Event().wait()
    finally:
        await page.stop()
    return ExitCode.DONE


def has_display(environment: os._Environ[str] | dict[str, str], platform: str) -> bool:
    """Return whether there is a screen on which a browser could open."""
    return platform in ("darwin", "win32") or bool(
        environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    )
