from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Protocol

import aiohttp
import pytest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector
from structlog.testing import capture_logs

from slurm_operator.kube.process.listen_address import ListenAddress, parse_address
from slurm_operator.kube.process.loop_turns import SLICE
from slurm_operator.kube.process.metrics import REGISTRY
from slurm_operator.kube.process.probes import HealthServer, MetricsServer, report
from slurm_operator.kube.process.serving import HttpServer, self_signed_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from prometheus_client import Metric

LOOPBACK = ListenAddress("127.0.0.1", 0)


class Server(Protocol):
    @property
    def port(self) -> int | None: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()


@contextmanager
def registered(collector: Collector) -> Iterator[None]:
    REGISTRY.register(collector)
    try:
        yield
    finally:
        REGISTRY.unregister(collector)


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8081", ListenAddress("", 8081)),
        ("127.0.0.1:0", ListenAddress("127.0.0.1", 0)),
        ("localhost:6060", ListenAddress("localhost", 6060)),
        ("[::1]:8080", ListenAddress("::1", 8080)),
        ("0", None),
        ("", None),
    ],
)
def test_addresses(text: str, expected: ListenAddress | None) -> None:
    """An address is read as Go programs read it; zero means none."""
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["8081", "host", "host:", "host:http", ":-1", ":65536", "::1:80", ":\uff18\uff10"]
)
def test_wrong_addresses(text: str) -> None:
    """What is no address is refused with a sentence that shows the right form."""
    with pytest.raises(ValueError, match=r"want (host:port|an IPv6 address in brackets)"):
        parse_address(text)


def test_address_text_is_what_was_read() -> None:
    """An address is shown the way it is written."""
    for text in ("127.0.0.1:1", "[::1]:8080", ":8081"):
        assert str(parse_address(text)) == text


async def test_without_checks_all_is_well() -> None:
    """A process without checks is alive and ready as soon as it answers."""
    async with serving(HealthServer(LOOPBACK)) as url:
        assert await get(f"{url}/healthz") == (200, "ok")
        assert await get(f"{url}/readyz") == (200, "ok")
        assert (await get(f"{url}/other"))[0] == 404


async def test_readiness_names_what_fails_and_why() -> None:
    """A failing check gives 503 with its name and reason; the good ones are left out."""
    server = HealthServer(LOOPBACK)
    reasons: dict[str, str | None] = {"caches": "Pod is not listed yet", "lease": None}
    server.add_check("caches", lambda: reasons["caches"])
    server.add_check("lease", lambda: reasons["lease"])
    async with serving(server) as url:
        status, text = await get(f"{url}/readyz")
        assert (status, text) == (503, "[-]caches failed: Pod is not listed yet\nreadyz check failed\n")
        assert (await get(f"{url}/healthz"))[0] == 200
        reasons["caches"] = None
        assert await get(f"{url}/readyz") == (200, "ok")


async def test_verbose_lists_every_check() -> None:
    """With `?verbose` good and bad checks are listed in the order they were added."""
    server = HealthServer(LOOPBACK)
    server.add_check("b", lambda: None)
    server.add_check("a", lambda: "why")
    async with serving(server) as url:
        _, text = await get(f"{url}/readyz?verbose")
        assert text == "[+]b ok\n[-]a failed: why\nreadyz check failed\n"


async def test_liveness_has_checks_of_its_own() -> None:
    """A liveness check fails /healthz and leaves /readyz alone."""
    server = HealthServer(LOOPBACK)
    server.add_liveness("watchdog", lambda: "wedged")
    async with serving(server) as url:
        assert (await get(f"{url}/healthz"))[0] == 503
        assert (await get(f"{url}/readyz"))[0] == 200


async def test_checks_may_be_coroutines_fail_or_hang() -> None:
    """An awaitable check counts by its result; one that raises or hangs fails, without details."""
    server = HealthServer(LOOPBACK)

    async def good() -> str | None:
        return None

    async def hangs() -> str | None:
        await asyncio.Event().wait()
        return None

    def raises() -> str | None:
        raise ValueError("password=hunter2")

    server.add_check("good", good)
    server.add_check("hangs", hangs)
    server.add_check("raises", raises)
    async with serving(server) as url:
        status, text = await get(f"{url}/readyz?verbose")
        assert status == 503
        assert "[+]good ok" in text
        assert "[-]hangs failed: no answer within 1 s" in text
        assert "[-]raises failed: the check itself failed: ValueError" in text
        assert "hunter2" not in text


def test_report_of_no_checks() -> None:
    """Nothing to check is a good answer."""
    assert report({}, "livez", verbose=True) == ("livez check passed\n", True)


async def test_metrics_in_the_clear() -> None:
    """Without TLS anybody may read the metrics, in the text format Prometheus expects."""
    async with (
        serving(MetricsServer(LOOPBACK)) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics") as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "# TYPE workqueue_depth gauge" in await response.text()


async def test_others_get_their_turn_while_metrics_are_written() -> None:
    """Families that take long to collect do not keep the event loop, and none of them is lost."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    class Slow(Collector):
        def collect(self) -> Iterator[Metric]:
            for number in range(5):
                seen.append(turns)
                time.sleep(2 * SLICE)
                yield GaugeMetricFamily(f"slurm_operator_test_slow_{number}", "", value=number)

    seen: list[int] = []
    async with serving(MetricsServer(LOOPBACK)) as url, asyncio.TaskGroup() as group:
        running = group.create_task(others())
        with registered(Slow()):
            status, text = await get(f"{url}/metrics")
        running.cancel()
    assert status == 200
    assert [line for line in text.splitlines() if line.startswith("slurm_operator_test_slow")] == [
        f"slurm_operator_test_slow_{number} {number}.0" for number in range(5)
    ]
    assert seen == sorted(set(seen))
    assert "# TYPE workqueue_depth gauge" in text


async def test_metrics_that_cannot_be_collected() -> None:
    """A collector that fails is a 500 and a line in the log, without what it said, and ends nothing else."""

    class Broken(Collector):
        def collect(self) -> Iterator[Metric]:
            raise ValueError("password=hunter2")

    async with serving(MetricsServer(LOOPBACK)) as url:
        with registered(Broken()), capture_logs() as lines:
            status, text = await get(f"{url}/metrics")
        assert (status, text) == (500, "the metrics cannot be collected (ValueError)\n")
        assert [line["event"] for line in lines if line["log_level"] == "error"] == [
            "the metrics cannot be collected"
        ]
        assert (await get(f"{url}/metrics"))[0] == 200


async def test_disabled_server_does_not_listen() -> None:
    """A server without an address starts and stops without opening anything."""
    server = HealthServer(parse_address("0"))
    await server.start()
    assert server.port is None
    await server.close()


async def test_every_interface_includes_ipv6_loopback() -> None:
    """An address without host is open on IPv4 and IPv6."""
    async with serving(HealthServer(ListenAddress("", 0))) as url:
        assert await get(f"{url}/healthz") == (200, "ok")
        assert await get(f"{url}/healthz".replace("127.0.0.1", "[::1]")) == (200, "ok")


async def test_ipv6() -> None:
    """An IPv6 address is listened on."""
    server = HealthServer(ListenAddress("::1", 0))
    await server.start()
    try:
        assert await get(f"http://[::1]:{server.port}/healthz") == (200, "ok")
    finally:
        await server.close()


async def test_an_address_in_use_is_named() -> None:
    """A port that is taken gives one sentence with the address and the server's name."""
    async with serving(HealthServer(LOOPBACK)) as url:
        taken = ListenAddress("127.0.0.1", int(url.rpartition(":")[2]))
        for address in (taken, ListenAddress("", taken.port)):
            with pytest.raises(
                OSError, match=rf"cannot listen on {address} for metrics: Address already in use"
            ):
                await MetricsServer(address).start()


async def test_self_signed_certificate_serves_tls() -> None:
    """The certificate made in memory works for TLS 1.2 and newer, and is new each time."""

    async def hello(_request: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(text="hello")

    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    seen = set()
    for _ in range(2):
        server = HttpServer("test", LOOPBACK, [("/", hello)], tls=self_signed_context)
        await server.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
            seen.add(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
            assert writer.get_extra_info("ssl_object").version() in {"TLSv1.2", "TLSv1.3"}
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"hello")
            writer.close()
            await writer.wait_closed()
        finally:
            await server.close()
    assert len(seen) == 2
