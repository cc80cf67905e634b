"""A webhook without a Kubernetes behind it: in front of a server that keeps it waiting, or of none."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

from aiohttp import web

from kubebox import pki
from tests.support.webhook.certificate_files import SecretVolume, pem
from tests.support.webhook.rule_cases import config_map
from tests.support.webhook.served_webhook import start, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.processes import Process


class SlowServer:
    """An API server that keeps everybody waiting, until told otherwise."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[SlowServer]:
        async def wait(_: web.Request) -> web.Response:
            self.asked.set()
            await self.go.wait()
            return web.json_response(config_map("files", "gres.conf"))

        app = web.Application()
        app.router.add_get("/{path:.*}", wait)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self.go.set()
            await runner.cleanup()


async def lonely(folder: Path, url: str, *flags: str) -> tuple[Process, ssl.SSLContext, str]:
    """Start a webhook in front of an API server of the test's own."""
    authority = pki.make_authority("webhook-ca")
    SecretVolume(folder / "certs").issue(authority)
    write_kubeconfig(folder / "kubeconfig", url, "token")
    process = start(None, folder, *flags)
    context = ssl.create_default_context(cadata=pem(authority.certificate).decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return process, context, f"https://127.0.0.1:{await process.port('webhook')}"


async def served(port: int) -> bytes:
    """Return the certificate of a fresh handshake, in DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return certificate
