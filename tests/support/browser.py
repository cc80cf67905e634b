"""Drives a headless Chromium over its debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from kubebox.browser import running_browser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_SECONDS = 60.0


class BrowserPage:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._session = ""
        self.complaints: list[Any] = []
        """Errors of scripts, violations of the policy, and requests that failed."""

    async def open(self) -> None:
        """Open the tab."""
        target = await self._call("Target.createTarget", url="about:blank")
        attached = await self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self._call(f"{domain}.enable")

    async def read(self) -> None:
        """Take in what the browser says, until it ends."""
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                self._waiting.pop(content["id"]).set_result(content)
            elif content["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(content["params"])

    async def goto(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open an address in a window of some size."""
        await self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < height,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self._call("Emulation.setEmulatedMedia", features=[scheme])
        await self._call("Page.navigate", url=url)
        loaded = f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})"
        async with asyncio.timeout(_SECONDS):
            while not await self.js(loaded):  # noqa: ASYNC110 - the browser sends no event that fits
                await asyncio.sleep(0.1)

    async def js(self, expression: str) -> Any:
        """Return what an expression gives in the page."""
        reply = await self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    async def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page, as far as it is visible or as a whole."""
        reply = await self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(reply["data"]))

    async def _call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_str(json.dumps(message))
        reply = await asyncio.wait_for(self._waiting[number], _SECONDS)
        assert "error" not in reply, reply
        return reply["result"]


@asynccontextmanager
async def browser_page(log: Path) -> AsyncIterator[BrowserPage]:
    """Run a browser with one tab until the block ends."""
    running = running_browser(log)
    url = await asyncio.to_thread(running.__enter__)
    try:
        async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as socket:
            page = BrowserPage(socket)
            reading = asyncio.create_task(page.read())
            await page.open()
            yield page
            reading.cancel()
    finally:
        running.__exit__(None, None, None)
