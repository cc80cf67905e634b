"""A proxy on loopback that adds the token of the status API, as a client for browsers does."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from slurm_operator.status_rows import TOKEN_HEADER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PASSED = ("Content-Type", "Content-Security-Policy", "Cache-Control")
_ENDLESS = aiohttp.ClientTimeout(total=None)


@asynccontextmanager
async def token_proxy(target: str, bearer: str) -> AsyncIterator[str]:
    """Forward every request to a server, with a token; hand out the URL."""
    async with aiohttp.ClientSession(headers={TOKEN_HEADER: bearer}, timeout=_ENDLESS) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            async with session.get(f"{target}{request.path_qs}") as reply:
                headers = {name: reply.headers[name] for name in _PASSED if name in reply.headers}
                response = web.StreamResponse(status=reply.status, headers=headers)
                await response.prepare(request)
                async for part in reply.content.iter_any():
                    await response.write(part)
                return response

        application = web.Application()
        application.add_routes([web.get("/{path:.*}", forward)])
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
