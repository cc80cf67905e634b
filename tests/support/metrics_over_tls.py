"""Metrics over TLS, for those whom the API server allows: the same of every process that serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.service_accounts import reads_metrics, service_account

if TYPE_CHECKING:
    from kubebox import Box
    from tests.support.processes import Process


async def check_secure_metrics(box: Box, namespace: str, process: Process, series: str) -> None:
    """Make sure that a scrape without a token, or with one without the right, gets nothing."""
    stranger = service_account(box, namespace, "stranger")
    scraper = service_account(box, namespace, "scraper")
    url = f"https://127.0.0.1:{await process.port('metrics')}/metrics"
    async with aiohttp.ClientSession() as session:

        async def scrape(authorization: str | None) -> tuple[int, str, str | None]:
            headers = {"Authorization": authorization} if authorization else {}
            async with session.get(url, headers=headers, ssl=False) as response:
                return response.status, await response.text(), response.headers.get("WWW-Authenticate")

        assert (await scrape(None))[::2] == (401, "Bearer")
        assert (await scrape("Basic dTpw"))[0] == 401
        assert (await scrape("Bearer nonsense"))[0] == 401
        status, text, _ = await scrape(f"Bearer {stranger}")
        assert status == 403
        assert "/metrics" in text
        with reads_metrics(box, namespace, "scraper"):
            for _ in range(3):
                status, text, _ = await scrape(f"Bearer {scraper}")
                assert (status, series in text) == (200, True), text
        with pytest.raises(aiohttp.ClientError):
            await session.get(url.replace("https", "http"))
    assert stranger not in process.text()
    assert scraper not in process.text()
