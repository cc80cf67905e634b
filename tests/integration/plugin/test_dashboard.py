"""The dashboard's proxy on loopback: what it passes on, and to whom."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.plugin.bench import Bench
    from tests.support.plugin.fake_manager import FakeManager


@asynccontextmanager
async def serving(bench: Bench) -> AsyncIterator[str]:
    """Run the command and yield the address that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "slurm_operator.plugin.entry", "dashboard", "--no-browser"),
        f"--operator-namespace={bench.namespace}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**bench.environment(), "KUBECONFIG": str(bench.kubeconfig)},
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield line.decode().split()[-1]
    finally:
        process.terminate()
        await process.communicate()


async def test_the_page_is_served_to_the_one_who_has_the_address(bench: Bench, manager: FakeManager) -> None:
    """The secret of the address works once and gives a cookie; with it the page and the API are passed on."""
    bench.install(manager)
    jar = aiohttp.CookieJar(unsafe=True)
    async with serving(bench) as address, aiohttp.ClientSession(cookie_jar=jar) as browser:
        base = URL(address).with_query(None)
        assert base.host == "127.0.0.1"
        async with browser.get(base) as response:
            assert response.status == 403
            assert "works once" in await response.text()
        async with browser.get(address) as response:
            assert (response.status, await response.text()) == (200, "<html>the page</html>")
            assert response.url == base
            assert response.headers["Content-Security-Policy"] == "default-src 'self'"
            assert "Set-Cookie" not in response.headers
        async with browser.get(base / "api/v1/overview") as response:
            assert (await response.json())["clusters"][0]["name"] == "slurm"
        async with browser.get(base / "assets/status.js") as response:
            assert await response.text() == "asset status.js"
        async with browser.get(base / "api/v1/stream") as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            assert (await response.text()).count("event: update") == 3
        manager.refuse(401, "Unauthenticated", "expired")
        async with browser.get(base / "api/v1/workers", params={"name": "workers-2"}) as response:
            assert len((await response.json())["items"]) == 1
        async with aiohttp.ClientSession() as other, other.get(address) as response:
            assert response.status == 403
            assert "has been used" in await response.text()


async def test_others_get_nothing(bench: Bench, manager: FakeManager) -> None:
    """Another Host, another site, another method and another path are refused, and nothing is passed on."""
    bench.install(manager)
    jar = aiohttp.CookieJar(unsafe=True)
    async with serving(bench) as address, aiohttp.ClientSession(cookie_jar=jar) as browser:
        base = URL(address).with_query(None)
        async with browser.get(address, headers={"Host": f"evil.example:{base.port}"}) as response:
            assert response.status == 421
        async with browser.get(base.with_query(key="wrong")) as response:
            assert response.status == 403
        async with browser.get(address) as response:
            assert response.status == 200
        seen = len(manager.requests)
        async with browser.post(base / "api/v1/overview") as response:
            assert response.status == 405
        async with browser.get(
            base / "api/v1/overview", headers={"Sec-Fetch-Site": "cross-site"}
        ) as response:
            assert response.status == 403
        async with browser.get(base / "api/v1/overview", headers={"Host": "evil.example"}) as response:
            assert response.status == 421
        for path in ("/api/v1/../../../secrets", "/%2e%2e/%2e%2e/secrets", "/metrics", "/assets/../x", "//x"):
            async with browser.get(URL(f"{base.origin()}{path}", encoded=True)) as response:
                assert response.status == 404, path
        assert len(manager.requests) == seen
        async with aiohttp.ClientSession() as other, other.get(base / "api/v1/overview") as response:
            assert response.status == 403
