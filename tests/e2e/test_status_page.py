"""The status page of an installed operator in a real browser, through the API server, with running jobs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.demo_cluster import OPERATOR_NAMESPACE
from tests.support.browser import browser_page
from tests.support.processes import eventually
from tests.support.token_proxy import token_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.browser import BrowserPage
    from tests.support.e2e.slurm_cluster import Site

THERE = ("--namespace", OPERATOR_NAMESPACE)
# Where to leave pictures of the page, for the documentation.
PICTURES = os.environ.get("STATUS_PICTURES", "")


@contextmanager
def api_server(site: Site) -> Iterator[str]:
    """Reach the API server as its administrator, without a certificate, and hand out the URL."""
    kubectl = site.box._layout.bin / "kubectl"
    with subprocess.Popen(
        [kubectl, "proxy", "--port=0"],
        env=os.environ | site.box.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
            assert found, "kubectl proxy says where it listens"
            yield f"http://{found[0]}"
        finally:
            process.kill()


def leader(site: Site) -> str:
    """Return the path of the leader's status API, found as a client finds it."""
    lease = site.cluster.get("lease/slurm-operator", *THERE)
    name = lease["spec"]["holderIdentity"].rpartition("_")[0]
    pod = site.cluster.get(f"pod/{name}", *THERE)
    ports = [port for one in pod["spec"]["containers"] for port in one.get("ports", ())]
    (port,) = [one["containerPort"] for one in ports if one.get("name") == "status"]
    return f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{name}:{port}/proxy"


async def shows(page: BrowserPage, expression: str, what: str) -> None:
    """Wait until an expression is true in the page."""
    await eventually(lambda: page.js(expression), what)


async def look(page: BrowserPage, url: str, name: str, *, dark: bool = False) -> None:
    """Leave a picture of the page, if pictures are wanted."""
    if PICTURES:
        await page.goto(url, dark=dark)
        await shows(page, "document.querySelectorAll('#jobs tbody tr').length > 0", "jobs are listed")
        await page.screenshot(Path(PICTURES) / f"{name}.png")


def test_the_page_follows_a_scale_in_with_running_jobs(site: Site, tmp_path: Path) -> None:
    """Through the pod proxy of the API server, with a token of the viewer, the page shows what waits."""
    site.settled(2)
    jobs = [site.start_job("demo-0"), site.start_job("demo-1")]
    words = ("create", "token", "slurm-operator-viewer", "--audience=slurm-operator", *THERE)
    bearer = site.cluster.kubectl(*words).strip()

    async def watch(server: str) -> None:
        async with (
            token_proxy(f"{server}{leader(site)}", bearer) as url,
            browser_page(tmp_path / "browser.log") as page,
        ):
            await page.goto(f"{url}/")
            await shows(page, "document.querySelectorAll('.cell.s-busy').length === 2", "two busy workers")
            await shows(page, "document.querySelectorAll('#jobs tbody tr').length >= 2", "their jobs")
            await asyncio.to_thread(site.scale, 1)
            await shows(page, "document.querySelectorAll('.cell.s-draining.stuck').length === 1", "it waits")
            await shows(
                page, "document.querySelector('#blocked').textContent.includes('jobs running')", "why"
            )
            assert page.complaints == []
            await look(page, f"{url}/", "real")
            for job in jobs:
                await asyncio.to_thread(job.end)
            await shows(
                page, "document.querySelectorAll('.cell').length === 1", "it is gone when its job ended"
            )

    for job in jobs:
        job.assert_unharmed()
    with api_server(site) as server:
        asyncio.run(watch(server))
    site.settled(1)
    site.scale(2)
    site.settled(2)
