"""The dashboard's proxy on loopback, in front of an API server on loopback: who gets in, and how far."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from slurm_operator.kube.client.client import Client
from slurm_operator.kube.client.config import ClientConfig
from slurm_operator.plugin.dashboard import _PASSED, Dashboard
from slurm_operator.plugin.manager_api import ManagerApi
from slurm_operator.plugin.pod_proxy import PodProxy
from slurm_operator.status_api import page
from tests.support.plugin.fake_kubernetes import CORE, OPERATOR, POD, FakeKubernetes
from tests.support.plugin.sample_authority import authority
from tests.support.plugin.states import STATES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR}/leases/slurm-operator"
PODS = f"{CORE}/namespaces/{OPERATOR}/pods"


@dataclass
class Opened:
    """A dashboard and the API server behind it."""

    server: FakeKubernetes
    page: Dashboard
    address: str

    @property
    def base(self) -> URL:
        """Return the address without its secret."""
        return URL(self.address).with_query(None)


@asynccontextmanager
async def opened(port: int = 0) -> AsyncIterator[Opened]:
    """Run a dashboard."""
    async with FakeKubernetes(STATES["healthy"], authority("2099-12-31")) as server:
        config = ClientConfig(server=server.server)
        async with Client(config) as client, PodProxy(config, "test") as proxy:
            page = Dashboard(ManagerApi(client, proxy), proxy)
            try:
                yield Opened(server, page, await page.start(port))
            finally:
                await page.stop()


@asynccontextmanager
async def browser(address: str = "") -> AsyncIterator[aiohttp.ClientSession]:
    """Return a browser; with an address, one that has exchanged its secret for a cookie."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        if address:
            async with session.get(address, allow_redirects=False) as response:
                assert response.status == 303
        yield session


async def test_a_word_in_the_query_does_not_let_other_sites_in() -> None:
    """Only the address with the secret may come from elsewhere, such as from a link; nothing else may."""
    async with opened() as dashboard, browser(dashboard.address) as own:
        for query in ({}, {"key": "x"}):
            url = (dashboard.base / "api/v1/overview").with_query(query)
            async with own.get(url, headers={"Sec-Fetch-Site": "same-site"}) as response:
                assert response.status == 403
        assert dashboard.server.manager.requests == []


async def test_a_leader_whose_pod_is_gone_is_left() -> None:
    """After an update of the operator the page finds the new leader, however long it was not looked at."""
    async with opened() as dashboard, browser(dashboard.address) as own:
        objects = dashboard.server.objects
        objects[f"{PODS}/manager-9"] = objects[f"{PODS}/{POD}"]
        lease, before = objects[LEASE], {"spec": {"holderIdentity": "manager-9_1"}}
        objects[LEASE] = {**lease, **before}
        async with own.get(dashboard.base / "api/v1/overview") as response:
            assert response.status == 404
        objects[LEASE] = lease
        async with own.get(dashboard.base / "api/v1/overview") as response:
            assert response.status == 200


async def test_an_address_that_is_opened_twice_is_closed() -> None:
    """Who reads the address from a list of processes and is first must not go on unnoticed."""
    async with opened() as dashboard, browser(dashboard.address) as thief, browser() as owner:
        overview = dashboard.base / "api/v1/overview"
        async with thief.get(overview) as response:
            assert response.status == 200
        dashboard.server.manager.endless = True
        async with thief.get(dashboard.base / "api/v1/stream") as stream:
            assert b"data: 0" in await stream.content.readuntil(b"\n\n")
            async with owner.get(dashboard.address) as response:
                assert (response.status, "has been used" in await response.text()) == (403, True)
            await asyncio.wait_for(stream.read(), 30)
        for one in (thief, owner):
            async with one.get(overview) as response:
                assert response.status == 403


async def test_the_same_browser_may_open_the_address_again() -> None:
    """A browser that restores its windows has the cookie."""
    async with opened() as dashboard, browser(dashboard.address) as own:
        async with own.get(dashboard.address, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "./")
        async with own.get(dashboard.base / "api/v1/overview") as response:
            assert response.status == 200


def test_all_headers_that_protect_the_page_are_passed_on() -> None:
    """What the manager sets to protect the page holds also behind the proxy."""
    assert {*page._HEADERS} <= {*_PASSED}


async def test_a_cookie_that_is_no_text_is_refused() -> None:
    """Any program on the machine may send any bytes; the user's terminal shows no traceback for them."""
    async with opened() as dashboard:
        port = int(dashboard.base.port or 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        cookie = b"kubectl-slurm-%d=\xff" % port
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nCookie: %s\r\n\r\n" % (port, cookie))
        assert b"403" in await asyncio.wait_for(reader.readline(), 30)
        writer.close()
