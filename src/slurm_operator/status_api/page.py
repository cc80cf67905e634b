"""The status page: three static files of the package, without any data, so they need no token.

The page loads nothing from elsewhere and has no inline script or style. Its policy permits exactly that, and
its links are relative, so that it works behind any prefix, such as that of the API server's pod proxy.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # After an update of the operator the old page must not meet the new API.
    "Cache-Control": "no-cache",
}
_FILES: Final = {
    "/": ("index.html", "text/html"),
    "/assets/status.js": ("status.js", "text/javascript"),
    "/assets/status.css": ("status.css", "text/css"),
    "/assets/icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_routes() -> list[tuple[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]]:
    """Return the paths of the page and what serves them."""
    return [(path, _serving(*found)) for path, found in _FILES.items()]


def _serving(name: str, kind: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(body=asset(name), content_type=kind, charset="utf-8", headers=_HEADERS)

    return serve


@cache
def asset(name: str) -> bytes:
    """Return a file of the page."""
    return (files("slurm_operator.status_api") / "assets" / name).read_bytes()
