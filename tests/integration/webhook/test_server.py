"""The server itself, asked as the API server asks: versions, limits, certificates, faults, the end."""

from __future__ import annotations

import asyncio
import io
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from kubebox import pki
from slurm_operator.webhook.rules.registration import BINDING_PATH as BINDING
from tests.support.processes import eventually
from tests.support.webhook.admission_reviews import PATHS, question
from tests.support.webhook.certificate_files import SecretVolume, der, key_pem, pem, rsa_pair
from tests.support.webhook.lone_webhook import served
from tests.support.webhook.rule_cases import MAX, manifest
from tests.support.webhook.served_webhook import NOWHERE, start, write_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.processes import Process
    from tests.support.webhook.served_webhook import Stage

# --- versions and odd questions


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_answers_in_the_version_of_the_question(shared_stage: Stage, version: str) -> None:
    """A review is answered in its own version, with its uid, whether yes or no."""
    status, yes = await shared_stage.post(PATHS["NodeSet"], question(version=version))
    assert (status, yes["apiVersion"]) == (200, f"admission.k8s.io/{version}")
    assert yes["response"] == {"uid": "question-1", "allowed": True}
    bad = question(manifest("NodeSet", {MAX: 0, "ordinalPadding": 99}), version)
    status, no = await shared_stage.post(PATHS["NodeSet"], bad)
    assert (status, no["apiVersion"], no["kind"]) == (200, f"admission.k8s.io/{version}", "AdmissionReview")
    result = no["response"]["status"]
    assert (no["response"]["allowed"], result["code"], result["reason"]) == (False, 422, "Invalid")
    assert {cause["field"] for cause in result["details"]["causes"]} == {f"spec.{MAX}", "spec.ordinalPadding"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v2", "kind": "AdmissionReview", "request": {"uid": "u"}}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "Pod", "request": {"uid": "u"}}',
        b"[" * 10_000 + b"]" * 10_000,
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": ""}}',
    ],
)
@pytest.mark.parametrize("path", [PATHS["NodeSet"], BINDING])
async def test_what_is_no_question_is_a_bad_request(shared_stage: Stage, path: str, body: bytes) -> None:
    """What cannot be answered is 400 with a sentence; it is never taken for a yes."""
    status, text = await shared_stage.post(path, body)
    assert status == 400
    assert text.strip()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (manifest("NodeSet", {"replicas": "three"}), "spec.replicas"),
        (manifest("NodeSet") | {"spec": 5}, "spec"),
        (manifest("NodeSet") | {"metadata": []}, "metadata"),
        (manifest("Controller"), "kind"),
    ],
)
async def test_what_cannot_be_read_is_denied(shared_stage: Stage, body: dict[str, Any], field: str) -> None:
    """An object that is not of its kind's shape is refused in the terms of a refusal, never with a 500."""
    status, answer = await shared_stage.post(PATHS["NodeSet"], question(body))
    assert (status, answer["response"]["allowed"]) == (200, False)
    assert answer["response"]["status"]["details"]["causes"][0]["field"] == field


@pytest.mark.parametrize("request_", [{"operation": "DELETE", "object": None}, {"subResource": "status"}])
async def test_deletions_and_status_pass(shared_stage: Stage, request_: dict[str, Any]) -> None:
    """Even a configuration that asks about deletions and status gets a yes."""
    body = manifest("NodeSet", {MAX: 0})
    status, answer = await shared_stage.post(PATHS["NodeSet"], question(body, **request_))
    assert (status, answer["response"]["allowed"]) == (200, True)


async def test_a_question_that_is_too_large_is_refused(shared_stage: Stage) -> None:
    """A body beyond what etcd could store is not read."""
    status, _ = await shared_stage.post(PATHS["NodeSet"], io.BytesIO(b" " * (8 * 1024 * 1024)))
    assert status == 413


async def test_other_ways_in_are_closed(shared_stage: Stage) -> None:
    """Only POST, only known paths, no plain HTTP, nothing below TLS 1.2."""
    assert (await shared_stage.post("/validate-other", question()))[0] == 404
    context = ssl.create_default_context(cadata=pem(shared_stage.authority.certificate).decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"https://127.0.0.1:{shared_stage.port}{PATHS['NodeSet']}"
        async with session.get(url) as response:
            assert response.status == 405
        with pytest.raises(aiohttp.ClientError):
            await session.get(url.replace("https", "http"))
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):  # noqa: PT011 - whatever OpenSSL calls it
        await asyncio.open_connection("127.0.0.1", shared_stage.port, ssl=old)


async def test_one_connection_serves_many_questions(shared_stage: Stage) -> None:
    """Connections stay open, as the API server likes them."""
    context = ssl.create_default_context(cadata=pem(shared_stage.authority.certificate).decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    connected: list[object] = []

    async def count(*_: object) -> None:
        connected.append(None)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, trace_configs=[trace]) as session:
        for _ in range(20):
            url = f"https://127.0.0.1:{shared_stage.port}{PATHS['NodeSet']}"
            async with session.post(url, json=question()) as response:
                assert (await response.json())["response"]["allowed"]
    assert len(connected) == 1


# --- log and numbers


async def test_a_denial_is_logged_and_counted(shared_stage: Stage) -> None:
    """The log names the question, who asked and the fields; the numbers grow; no value is repeated."""
    secret = manifest("Accounting", {"extraConf": "StoragePass=hunter2"})
    _, answer = await shared_stage.post(PATHS["Accounting"], question(secret, uid="uid-17"))
    assert answer["response"]["allowed"] is False
    entry = await eventually(lambda: shared_stage.process.logged("denied", uid="uid-17"), "it is logged")
    assert (entry["kind"], entry["user"], entry["fields"]) == ("Accounting", "alice", ["spec.extraConf"])
    await shared_stage.post(PATHS["NodeSet"], question(uid="uid-18"))
    assert shared_stage.process.logged("admitted", uid="uid-18")
    status, text = await shared_stage.process.get("metrics", "/metrics")
    assert status == 200
    for line in (
        'slurm_operator_admission_total{kind="Accounting",operation="CREATE",verdict="denied"}',
        'slurm_operator_admission_total{kind="NodeSet",operation="CREATE",verdict="allowed"}',
        f'controller_runtime_webhook_requests_total{{code="200",webhook="{PATHS["NodeSet"]}"}}',
        f'controller_runtime_webhook_latency_seconds_count{{webhook="{PATHS["NodeSet"]}"}}',
    ):
        assert line in text
    assert "hunter2" not in shared_stage.process.text() + text


# --- certificates


def complaints(process: Process) -> int:
    """Return how often a pair was called broken."""
    return sum(entry["msg"].startswith("cannot use the new") for entry in process.entries())


async def test_rotation_loses_no_request(own_stage: Stage) -> None:
    """While certificates change, good or broken, every write is judged and every handshake succeeds."""
    failures: list[object] = []
    counted = 0
    rotating = True

    async def write() -> None:
        nonlocal counted
        while rotating:
            answer = await own_stage.server.create(manifest("NodeSet", {}, "flow"), dryRun="All")
            counted += 1
            if answer.status != 201:
                failures.append(answer)

    async def ask() -> None:
        nonlocal counted
        while rotating:
            try:
                status, answer = await own_stage.post(PATHS["NodeSet"], question())
                counted += 1
                if status != 200 or not answer["response"]["allowed"]:
                    failures.append(answer)
            except (aiohttp.ClientError, OSError) as error:
                failures.append(error)

    flow = [asyncio.create_task(write()), asyncio.create_task(ask())]
    try:
        for round_ in range(3):
            wanted = own_stage.volume.issue(own_stage.authority)

            async def there(wanted: bytes = wanted) -> bool:
                return await served(own_stage.port) == wanted

            await eventually(there, "the new certificate is served")
            before = complaints(own_stage.process)
            own_stage.volume.write(tls_crt=b"no certificate", tls_key=b"no key")

            def reported(before: int = before) -> bool:
                return complaints(own_stage.process) > before

            await eventually(reported, "a broken pair is reported")
            assert await served(own_stage.port) == wanted
            assert await own_stage.process.ready()
            assert complaints(own_stage.process) == round_ + 1
    finally:
        rotating = False
        await asyncio.gather(*flow)
    assert failures == []
    assert counted > 10


async def test_another_type_of_key_takes_over_completely(tmp_path: Path) -> None:
    """After a change from an elliptic curve to RSA no handshake is served with the former certificate."""
    certificate, key = rsa_pair()
    volume, authority = SecretVolume(tmp_path / "certs"), pki.make_authority("webhook-ca")
    volume.issue(authority)
    write_kubeconfig(tmp_path / "kubeconfig", NOWHERE, "token")
    with start(None, tmp_path) as process:
        port = await process.port("webhook")
        other = pki.issue(authority, "webhook", addresses=["127.0.0.1"])[0]
        volume.write(tls_crt=pem(other), tls_key=key_pem(key))
        entry = await eventually(
            lambda: process.logged("cannot use the new certificate; still serving the previous one"),
            "a pair that does not belong together is refused",
        )
        assert "does not belong" in entry["reason"]
        assert "PRIVATE" not in process.text()
        volume.write(tls_crt=pem(certificate), tls_key=key_pem(key))
        wanted = der(certificate)

        async def there() -> bool:
            return await served(port) == wanted

        await eventually(there, "the RSA certificate is served")
        assert [await served(port) for _ in range(5)] == [wanted] * 5
        assert await process.ready()
