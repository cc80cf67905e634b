"""The start and the end of the process, and servers behind it that do not answer."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import TYPE_CHECKING, Any

import aiohttp

from kubebox import pki
from slurm_operator.webhook.rules.registration import BINDING_PATH as BINDING
from slurm_operator.webhook.rules.registration import REMOVAL_PATH
from tests.support.charts.chart_accounts import webhook_kubeconfig
from tests.support.metrics_over_tls import check_secure_metrics
from tests.support.processes import eventually
from tests.support.webhook.admission_reviews import PATHS, question
from tests.support.webhook.certificate_files import SecretVolume
from tests.support.webhook.lone_webhook import SlowServer, lonely, served
from tests.support.webhook.rule_cases import manifest
from tests.support.webhook.served_webhook import NOWHERE, post, start, write_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

    from kubebox import Box
    from tests.support.webhook.served_webhook import Stage

# Nothing is looked up for this one.
PLAIN = manifest("RestApi")
WITH_FILES = manifest("Controller", {"configFileRefs": [{"name": "files"}]})


async def test_slow_lookups_hold_up_nobody_else(tmp_path: Path) -> None:
    """While one write waits for a lookup others are judged; without an answer it is refused."""
    async with SlowServer().running() as server:
        process, context, url = await lonely(tmp_path, server.url)
        with process:
            path = f"{url}{PATHS['Controller']}"
            waiting = asyncio.create_task(post(f"{path}?timeout=30s", question(WITH_FILES), context))
            await asyncio.wait_for(server.asked.wait(), 60)
            for _ in range(3):
                status, answer = await post(f"{url}{PATHS['RestApi']}", question(PLAIN), context)
                assert (status, answer["response"]["allowed"]) == (200, True)
            status, answer = await post(f"{path}?timeout=5s", question(WITH_FILES), context)
            assert (status, answer["response"]["allowed"]) == (200, False)
            assert "did not answer in time; try again" in answer["response"]["status"]["message"]
            assert not waiting.done()
            server.go.set()
            status, answer = await waiting
            assert (status, answer["response"]["allowed"]) == (200, True)


async def test_nothing_is_looked_up_in_namespaces_of_others(tmp_path: Path) -> None:
    """With --namespaces no object elsewhere is read; what needs none is judged there all the same."""
    async with SlowServer().running() as server:
        process, context, url = await lonely(tmp_path, server.url, "--namespaces=ours")
        with process:
            path = f"{url}{PATHS['Controller']}"
            status, answer = await post(path, question(WITH_FILES, namespace="theirs"), context)
            assert (status, answer["response"]["allowed"], server.asked.is_set()) == (200, True, False)
            bad = manifest("Controller", {"clusterName": "a b"})
            status, answer = await post(path, question(bad, namespace="theirs"), context)
            assert (status, answer["response"]["allowed"]) == (200, False)


async def test_other_nodesets_are_only_asked_about(tmp_path: Path) -> None:
    """Without an answer about other NodeSets one is admitted, and told that it could not be compared."""
    async with SlowServer().running() as server:
        process, context, url = await lonely(tmp_path, server.url)
        with process:
            status, answer = await post(f"{url}{PATHS['NodeSet']}?timeout=10s", question(), context)
            assert (status, answer["response"]["allowed"]) == (200, True)
            (warning,) = answer["response"]["warnings"]
            assert warning.startswith("spec.template.spec.hostname: ")


async def test_a_binding_is_never_held_up(tmp_path: Path) -> None:
    """Without an answer about pod and node the binding goes on as it is."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "slurm"},
        "target": {"kind": "Node", "name": "n"},
    }
    async with SlowServer().running() as server:
        process, context, url = await lonely(tmp_path, server.url)
        with process:
            status, answer = await post(f"{url}{BINDING}", question(binding, dryRun=True), context)
            assert (status, answer["response"]["allowed"], server.asked.is_set()) == (200, True, False)
            status, answer = await post(f"{url}{BINDING}", question(binding), context)
            assert (status, answer["response"]) == (200, {"uid": "question-1", "allowed": True})
            assert process.logged("cannot look up the topology of a node; the pod is bound without it")


async def test_a_removal_is_never_held_up(tmp_path: Path) -> None:
    """Without an answer about the pod it is allowed in time, and in a burst at once, but not recorded."""
    deletion: dict[str, Any] = {
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "DELETE",
        "object": None,
    }
    async with SlowServer().running() as server:
        process, context, url = await lonely(tmp_path, server.url, "--namespaces=slurm")
        path = f"{url}{REMOVAL_PATH}?timeout=2s"

        async def ask(**fields: Any) -> bool:
            status, answer = await post(path, question({}, **deletion | fields), context)
            assert (status, answer["response"]) == (200, {"uid": "question-1", "allowed": True})
            return True

        with process:
            await ask(dryRun=True)
            await ask(namespace="theirs")
            assert not server.asked.is_set()
            crowd = [asyncio.create_task(ask(name=f"worker-{number}")) for number in range(60)]
            await asyncio.wait_for(server.asked.wait(), 60)
            # Custom resources do not wait for them.
            status, answer = await post(f"{url}{PATHS['Token']}", question(manifest("Token")), context)
            assert (status, answer["response"]["allowed"]) == (200, True)
            assert all(await asyncio.gather(*crowd))
            assert process.logged("cannot record a request to remove a worker", error="deadline exceeded")
            _, metrics = await process.get("metrics", "/metrics")
    series = r'slurm_operator_removal_requests_total{result="(\w+)"} (\d+)'
    counts = {result: int(count) for result, count in re.findall(series, metrics)}
    # As many as are in progress at once fail; the others are not even tried.
    assert counts.keys() == {"unchanged", "failed", "skipped"}
    assert counts["failed"] + counts["skipped"] == len(crowd)


async def test_the_end_waits_for_what_is_in_flight(tmp_path: Path) -> None:
    """A question that was asked before SIGTERM gets its answer; then the process ends with 0."""
    async with SlowServer().running() as server:
        process, context, url = await lonely(tmp_path, server.url)
        with process:
            path = f"{url}{PATHS['Controller']}?timeout=30s"
            waiting = asyncio.create_task(post(path, question(WITH_FILES), context))
            await asyncio.wait_for(server.asked.wait(), 60)
            process.signal(signal.SIGTERM)

            async def stopping() -> bool:
                status, text = await process.get("health", "/readyz")
                return status == 503 and "the process is stopping" in text

            await eventually(stopping, "it is no longer ready")
            server.go.set()
            status, answer = await waiting
            assert (status, answer["response"]["allowed"]) == (200, True)
            assert await process.ended() == 0


async def test_a_delay_serves_on_but_ends_connections(tmp_path: Path) -> None:
    """After SIGTERM, while word of it spreads, questions are answered on connections that end with them."""
    async with SlowServer().running() as server:
        process, context, url = await lonely(tmp_path, server.url, "--shutdown-delay=30s")
        with process:
            process.signal(signal.SIGTERM)
            await eventually(lambda: process.logged("signal received"), "the signal arrived")

            async def unready() -> bool:
                return (await process.get("health", "/readyz"))[0] == 503

            await eventually(unready, "it is no longer ready")
            connector = aiohttp.TCPConnector(ssl=context)
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.post(f"{url}{PATHS['RestApi']}", json=question(PLAIN)) as response,
            ):
                assert (await response.json())["response"]["allowed"]
                assert response.headers["Connection"] == "close"


async def test_ready_means_tls_is_serving(tmp_path: Path) -> None:
    """Without certificates the process lives and says what it waits for; with them it is ready at once."""
    write_kubeconfig(tmp_path / "kubeconfig", NOWHERE, "token")
    volume, authority = SecretVolume(tmp_path / "certs"), pki.make_authority("webhook-ca")
    with start(None, tmp_path) as process:

        async def waits() -> bool:
            status, text = await process.get("health", "/readyz")
            return status == 503 and "tls.crt: No such file or directory" in text

        await eventually(waits, "it says which file it waits for")
        assert (await process.get("health", "/healthz")) == (200, "ok")
        wanted = volume.issue(authority)
        await eventually(process.ready, "ready once there is a certificate")
        assert await served(await process.port("webhook")) == wanted
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        assert not [entry for entry in process.entries() if entry["level"] == "error"], process.text()


async def test_a_signal_ends_the_wait_for_certificates(tmp_path: Path) -> None:
    """A process that still waits for its certificate ends like any other."""
    write_kubeconfig(tmp_path / "kubeconfig", NOWHERE, "token")
    with start(None, tmp_path) as process:
        await eventually(lambda: process.logged("waiting for a certificate"), "it waits")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0


async def test_metrics_are_for_those_who_may_read_them(
    kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """With --metrics-secure a scrape needs a token with the right; the chart's role suffices to find out."""
    SecretVolume(tmp_path / "certs").issue(pki.make_authority("webhook-ca"))
    secure = ("--set", "webhook.metricsSecure=true,webhook.metricsPort=8080")
    own = await asyncio.to_thread(webhook_kubeconfig, kube_box, kube_namespace, *secure)
    (tmp_path / "kubeconfig").symlink_to(own)
    with start(None, tmp_path, "--metrics-secure") as process:
        series = "# TYPE slurm_operator_admission_total counter"
        await check_secure_metrics(kube_box, kube_namespace, process, series)


async def test_a_taken_port_is_one_line(shared_stage: Stage, tmp_path: Path) -> None:
    """An address that cannot be had ends the process with 1 and one line that names it."""
    write_kubeconfig(tmp_path / "kubeconfig", NOWHERE, "token")
    SecretVolume(tmp_path / "certs").issue(shared_stage.authority)
    with start(None, tmp_path, f"--server-addr=127.0.0.1:{shared_stage.port}") as process:
        assert await process.ended() == 1
        (line,) = [line for line in process.text().splitlines() if not line.startswith("{")]
        assert f"cannot listen on 127.0.0.1:{shared_stage.port} for webhook" in line
