"""The status page in a real browser, served by a running operator."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from tests.integration.status_api.test_status_process import running
from tests.support.browser import browser_page
from tests.support.processes import eventually
from tests.support.slurm.hostile_replies import job, number
from tests.support.status_client import status_client, viewer
from tests.support.token_proxy import token_proxy

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from tests.support.browser import BrowserPage
    from tests.support.controllers.nodeset_namespace import Stage
    from tests.support.processes import Process
    from tests.support.slurm.hostile_server import HostileSlurmrestd

_CELLS = "[...document.querySelectorAll('.cell')].map(one => one.className.split(' ').slice(1).join(' '))"


async def shows(page: BrowserPage, expression: str, what: str) -> Any:
    """Wait until an expression is true in the page."""
    return await eventually(lambda: page.js(expression), what)


async def test_the_page_shows_what_happens(
    slinky_box: Box, stage: Stage, hostile: HostileSlurmrestd, operator: Process, tmp_path: Path
) -> None:
    """From an empty installation to a blocked worker: the page follows by itself, and breaks no policy."""
    bearer = await asyncio.to_thread(viewer, slinky_box, stage.namespace, "reader", stage.namespace)
    async with (
        status_client(operator, bearer) as status,
        token_proxy(status.url, bearer) as url,
        browser_page(tmp_path / "browser.log") as page,
    ):
        await page.goto(url)
        await shows(page, "document.querySelector('#live').textContent === 'live'", "it is live")
        await shows(
            page, "document.querySelector('#clusters').textContent.includes('No NodeSet yet')", "no workers"
        )
        await running(stage, hostile)
        await shows(page, f'JSON.stringify({_CELLS}) === \'["s-idle","s-idle"]\'', "two idle workers")
        ends = int(time.time()) + 3600
        times = {"start_time": number(ends - 3600), "end_time": number(ends), "time_limit": number(60)}
        for name in ("blue-0", "blue-1"):
            found = job(40 + int(name[-1]), name, name="<img src=x onerror=alert(1)>", **times)
            hostile.jobs[found["job_id"]] = found
            hostile.nodes.change(name, state=["MIXED", "DYNAMIC_NORM"], alloc_cpus=1)
        await shows(page, "document.querySelectorAll('.cell.s-busy').length === 2", "both are busy")
        await shows(page, "document.querySelectorAll('#jobs tbody tr').length === 2", "both jobs are listed")
        assert await page.js("document.querySelectorAll('#jobs img').length") == 0
        await stage.scale(1)
        await shows(
            page, "document.querySelector('#blocked')?.textContent.includes('jobs running')", "blocked"
        )
        await shows(page, "document.querySelectorAll('.cell.s-draining.stuck').length === 1", "it is marked")
        await page.js("document.querySelector('.cell.stuck').click()")
        await shows(
            page, "document.querySelector('#detail').textContent.includes('scale in is blocked')", "why"
        )
        await shows(
            page, "document.querySelector('#detail').textContent.includes('drain node')", "its history"
        )
        await page.js(
            "document.querySelector('#filter').value = 'no such thing';"
            "document.querySelector('#filter').dispatchEvent(new Event('input'))"
        )
        await shows(page, "document.querySelectorAll('.cell.dim').length === 2", "the filter dims the others")
        await page.goto(url, width=390, height=844, dark=True)
        await shows(page, "document.querySelectorAll('.cell').length === 2", "a phone shows the same")
        assert await page.js("document.documentElement.scrollWidth <= 390"), "nothing is wider than the phone"
        assert page.complaints == []


async def test_an_empty_installation_and_a_refused_token(
    slinky_box: Box, stage: Stage, operator: Process, tmp_path: Path
) -> None:
    """Without a cluster the page says what to do; without permission it says so, and shows nothing."""
    await stage.client.raw(
        "DELETE",
        f"/apis/slinky.slurm.net/v1beta1/namespaces/{stage.namespace}/controllers/slurm",
    )
    bearer = await asyncio.to_thread(viewer, slinky_box, stage.namespace, "reader", stage.namespace)
    nobodys = await asyncio.to_thread(viewer, slinky_box, stage.namespace, "stranger")
    async with status_client(operator, bearer) as status, browser_page(tmp_path / "browser.log") as page:

        async def empty() -> bool:
            return not await status.items(f"clusters?namespace={stage.namespace}")

        await eventually(empty, "the Controller is gone")
        async with token_proxy(status.url, bearer) as url:
            await page.goto(f"{url}/")
            await shows(
                page,
                "document.querySelector('#empty').textContent.includes('no Slurm cluster yet')",
                "what to do",
            )
        async with token_proxy(status.url, nobodys) as url:
            await page.goto(f"{url}/")
            await shows(
                page, "document.querySelector('#notice').textContent.includes('may not list')", "refused"
            )
        async with token_proxy(status.url, "wrong") as url:
            await page.goto(f"{url}/")
            await shows(
                page, "document.querySelector('#notice').textContent.includes('Send a token')", "refused"
            )
            assert await page.js("document.querySelectorAll('.cell').length") == 0
